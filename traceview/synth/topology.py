"""Who talks to whom: the process groups of a run, named as Megatron Core names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One process group per set of ranks along an axis; together the sets partition the ranks.

    Attributes:
        name: Group name, the same text on all ranks.
        desc: Group description, as the framework passes it.
        axis: Parallelism axis.
        members: Global ranks, shape (sets, size), each row in group order.
        crosses_hosts: Per set, whether its traffic leaves the host.
    """

    name: str
    desc: str
    axis: str
    members: NDArray[np.int64]
    crosses_hosts: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Ranks per set."""
        return int(self.members.shape[1])

    def ranks_of(self, rank: int) -> NDArray[np.int64]:
        """Members of the set that ``rank`` belongs to."""
        return np.asarray(self.members[np.nonzero(self.members == rank)[0][0]])

    def spread(self, per_set: NDArray[np.int64]) -> NDArray[np.int64]:
        """A value per set, handed to each of its ranks: shape (sets,) to (ranks,)."""
        per_rank = np.empty(self.members.size, dtype=per_set.dtype)
        per_rank[self.members] = per_set[:, np.newaxis]
        return per_rank


@dataclass(frozen=True, slots=True)
class Topology:
    """The groups of a run.

    Attributes:
        world: All ranks.
        tensor: Tensor parallelism; of size 1 here.
        pipeline: Pipeline parallelism; of size 1 here.
        data: Replicas of the dense parameters.
        expert: Expert parallelism: consecutive ranks.
        expert_data: Replicas of one rank's experts.
    """

    world: Group
    tensor: Group
    pipeline: Group
    data: Group
    expert: Group
    expert_data: Group

    def groups(self) -> tuple[Group, ...]:
        """All groups, in the order a framework creates them."""
        return (self.world, self.data, self.tensor, self.pipeline, self.expert, self.expert_data)


def topology(workload: Workload) -> Topology:
    """The groups of ``workload``."""
    ranks = np.arange(workload.ranks)
    grid = ranks.reshape(-1, workload.expert_parallel)  # (expert-data replica, expert-parallel rank)

    def group(name: str, desc: str, axis: str, members: NDArray[np.int64]) -> Group:
        hosts = members // workload.ranks_per_host
        return Group(name, desc, axis, members, hosts.min(axis=1) != hosts.max(axis=1))

    return Topology(
        world=group("0", "default_pg", "world", ranks[np.newaxis, :]),
        data=group("1", "DATA_PARALLEL_GROUP_WITH_CP", "dp", ranks[np.newaxis, :]),
        tensor=group("9", "TENSOR_MODEL_PARALLEL_GROUP", "tp", ranks[:, np.newaxis]),
        pipeline=group("13", "PIPELINE_MODEL_PARALLEL_GROUP", "pp", ranks[:, np.newaxis]),
        expert=group("21", "EXPERT_MODEL_PARALLEL_GROUP", "ep", grid),
        expert_data=group("25", "EXPERT_DATA_PARALLEL_GROUP", "edp", np.ascontiguousarray(grid.T)),
    )
