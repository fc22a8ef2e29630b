"""Who talks to whom: the process groups of a run, named as Megatron Core names them.

Source: Megatron Core's parallel_state with its default orders ``tp-cp-dp-pp`` and ``ep-dp-pp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One process group per set of ranks along an axis.

    Attributes:
        names: Group name of each set, the same text on all its ranks.
        desc: Group description, as the framework passes it; no other group has it.
        axis: Parallelism axis.
        members: Global ranks, shape (sets, size), each row in group order; no rank is in two sets.
        hosts: Host of every rank of the job, shape (ranks,).
    """

    names: tuple[str, ...]
    desc: str
    axis: str
    members: NDArray[np.int64]
    hosts: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Ranks per set."""
        return int(self.members.shape[1])

    @property
    def crosses_hosts(self) -> NDArray[np.bool_]:
        """Per set, whether its traffic leaves the host."""
        hosts = self.hosts[self.members]
        return np.asarray(hosts.min(axis=1) != hosts.max(axis=1))

    @property
    def is_far(self) -> NDArray[np.bool_]:
        """For each rank and each position of its set, whether that peer is on another host: (ranks, size)."""
        hosts = self.hosts[self.members]
        far = np.zeros((len(self.hosts), self.size), dtype=bool)
        far[self.members] = hosts[:, :, np.newaxis] != hosts[:, np.newaxis, :]
        return far

    @property
    def position(self) -> NDArray[np.int64]:
        """Position of each rank in its set, shape (ranks,); 0 for ranks in none."""
        position = np.zeros(len(self.hosts), dtype=np.int64)
        position[self.members] = np.arange(self.size)
        return position

    def set_of(self, rank: int) -> int:
        """Row of ``rank``'s set in ``members``."""
        return int(np.nonzero(self.members == rank)[0][0])

    def ranks_of(self, rank: int) -> NDArray[np.int64]:
        """Members of the set that ``rank`` belongs to."""
        return np.asarray(self.members[self.set_of(rank)])

    def spread(self, per_set: NDArray[np.int64]) -> NDArray[np.int64]:
        """A value per set, handed to each of its ranks: shape (sets,) to (ranks,), 0 for ranks in none."""
        per_rank = np.zeros(len(self.hosts), dtype=per_set.dtype)
        per_rank[self.members] = per_set[:, np.newaxis]
        return per_rank

    def between(self, *positions: int) -> Group:
        """The same process group, reduced to some positions of each set."""
        return Group(self.names, self.desc, self.axis, self.members[:, positions], self.hosts)


@dataclass(frozen=True, slots=True)
class Topology:
    """The groups of a run.

    Attributes:
        world: All ranks.
        data: Replicas of the dense parameters; context-parallel ranks are replicas too.
        tensor: Tensor parallelism.
        context: Context parallelism.
        pipeline: Pipeline parallelism, in order of the stages.
        expert: Expert parallelism.
        expert_data: Replicas of one rank's experts.
    """

    world: Group
    data: Group
    tensor: Group
    context: Group
    pipeline: Group
    expert: Group
    expert_data: Group

    def groups(self) -> tuple[Group, ...]:
        """All groups, in the order a framework creates them."""
        return (
            self.world, self.data, self.context, self.tensor, self.pipeline, self.expert, self.expert_data
        )  # fmt: skip

    def in_stage(self, stage: int) -> NDArray[np.bool_]:
        """Which ranks hold pipeline stage ``stage``, shape (ranks,)."""
        ranks = np.arange(self.world.size)
        return np.isin(ranks, self.pipeline.members[:, stage])


def topology(workload: Workload) -> Topology:
    """The groups of ``workload``."""
    ranks = np.arange(workload.ranks)
    hosts = ranks // workload.ranks_per_host
    stages = workload.pipeline_parallel
    # axes from the slowest to the fastest
    dense = ranks.reshape(stages, -1, workload.context_parallel, workload.tensor_parallel)
    experts = ranks.reshape(stages, -1, workload.expert_parallel)
    numbers = count()

    def group(number: int, desc: str, axis: str, members: NDArray[np.int64]) -> Group:
        per_set = workload.group_names == "per_set"
        names = tuple(str(next(numbers) if per_set else number) for _ in members)
        return Group(names, desc, axis, members, hosts)

    return Topology(
        world=group(0, "default_pg", "world", ranks[np.newaxis, :]),
        data=group(1, "DATA_PARALLEL_GROUP_WITH_CP", "dp", _lines(dense, 1, 2)),
        context=group(5, "CONTEXT_PARALLEL_GROUP", "cp", _lines(dense, 2)),
        tensor=group(9, "TENSOR_MODEL_PARALLEL_GROUP", "tp", _lines(dense, 3)),
        pipeline=group(13, "PIPELINE_MODEL_PARALLEL_GROUP", "pp", _lines(dense, 0)),
        expert=group(21, "EXPERT_MODEL_PARALLEL_GROUP", "ep", _lines(experts, 2)),
        expert_data=group(25, "EXPERT_DATA_PARALLEL_GROUP", "edp", _lines(experts, 1)),
    )


def _lines(grid: NDArray[np.int64], *axes: int) -> NDArray[np.int64]:
    """The sets of ranks that differ along ``axes`` only, shape (sets, size)."""
    moved = np.moveaxis(grid, axes, range(-len(axes), 0))
    size = int(np.prod([grid.shape[axis] for axis in axes]))
    return np.ascontiguousarray(moved.reshape(-1, size))
