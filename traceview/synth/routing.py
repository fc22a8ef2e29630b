"""Which experts the tokens choose: drawn once per (step, microbatch, layer) from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traceview.synth.topology import Group
    from traceview.synth.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """The rows one MoE layer exchanges for one microbatch.

    Attributes:
        step: Step number.
        microbatch: Microbatch of the step.
        layer: MoE layer.
        loads: Tokens that each expert gets from each set of the expert-parallel group, shape (sets, experts).
        rows_out: Rows each rank sends to each peer of its expert-parallel group, shape (ranks, size).
        rows_in: Rows each rank receives from each peer, shape (ranks, size).
    """

    step: int
    microbatch: int
    layer: int
    loads: NDArray[np.int64]
    rows_out: NDArray[np.int32]
    rows_in: NDArray[np.int32]

    @property
    def received(self) -> NDArray[np.int64]:
        """Rows each rank's experts work on, shape (ranks,)."""
        return np.asarray(self.rows_in.sum(axis=1, dtype=np.int64))


def route(workload: Workload, group: Group) -> Iterator[Routing]:
    """The routing of every (step, microbatch, layer), in that order.

    A layer's popular experts stay popular over the run; the tokens' choices are drawn anew each time.
    """
    rng = np.random.Generator(np.random.PCG64([workload.seed, 0]))
    spread = workload.expert_imbalance
    popularity = [np.exp(spread * rng.standard_normal(workload.experts)) for _ in range(workload.layers)]
    for step in range(workload.first_step, workload.first_step + workload.steps):
        preference = _preference(workload, group, step)
        shares = [_shares(workload, weight * preference) for weight in popularity]
        for microbatch in range(workload.microbatches):
            for layer, share in enumerate(shares):
                chosen = _choices(workload, share, rng)
                rows_out = chosen.reshape(workload.ranks, group.size, -1).sum(axis=2, dtype=np.int32)
                rows_in = np.empty_like(rows_out)
                rows_in[group.members] = rows_out[group.members].swapaxes(1, 2)
                loads = chosen[group.members].sum(axis=1)
                yield Routing(step, microbatch, layer, loads, rows_out, rows_in)


def _preference(workload: Workload, group: Group, step: int) -> NDArray[np.float64]:
    """How many times over each rank prefers each expert in ``step``, shape (ranks, experts).

    Only the ranks that share a set with a straggler can send it more.
    """
    preference = np.ones((workload.ranks, workload.experts))
    per_rank = workload.experts // workload.expert_parallel
    for straggler in workload.stragglers:
        if straggler.cause == "more_tokens" and straggler.acts_in(step):
            first = int(group.position[straggler.rank]) * per_rank
            senders = group.members[group.set_of(straggler.rank)]
            preference[senders, first : first + per_rank] *= straggler.factor
    return preference


def _shares(workload: Workload, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each rank's choices that each expert attracts, shape (ranks, experts); rows sum to 1."""
    share = weight / weight.sum(axis=1, keepdims=True)
    # A token chooses an expert at most once, so no expert can attract more than 1/top_k of the choices.
    ceiling = max(0.9 / workload.top_k, 1 / workload.experts)
    for _ in range(8):
        share = np.minimum(share, ceiling)
        share /= share.sum(axis=1, keepdims=True)
    return np.asarray(share)


def _choices(workload: Workload, share: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Tokens per (rank, expert); each rank makes ``top_k`` choices per token."""
    total = workload.own_tokens * workload.top_k
    biased = any(straggler.cause == "more_tokens" for straggler in workload.stragglers)
    if workload.expert_imbalance == 0 and not biased:
        even = np.full(workload.experts, total // workload.experts)
        even[: total % workload.experts] += 1
        return np.tile(even, (workload.ranks, 1))
    return rng.multinomial(total, share)
