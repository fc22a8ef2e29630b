"""How much slower than its peers each rank is, by cause and step."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traceview.synth.workload import Cause, Straggler, Workload


def slowdown(
    workload: Workload, cause: Cause, step: int | None, axis: str | None = None
) -> NDArray[np.float64]:
    """Factor by which stragglers of one cause are slow in ``step``, shape (ranks,).

    Args:
        workload: The plan.
        cause: The cause.
        step: Step number, None outside of all steps.
        axis: Axis of the exchange in question; stragglers of another axis do not count.
    """
    factor = np.ones(workload.ranks)
    for straggler in _acting(workload, cause, step):
        if straggler.axis is None or straggler.axis == axis:
            factor[straggler.rank] *= straggler.factor
    return factor


def regression(workload: Workload, category: str, phase: str | None) -> float:
    """Factor by which kernels of ``category`` are slow in ``phase``, on all ranks."""
    found = (
        slow.factor
        for slow in workload.regressions
        if slow.category == category and slow.phase in (None, phase)
    )
    return prod(found)


def launch_delay_ns(workload: Workload, step: int | None) -> NDArray[np.int64]:
    """Time by which each launch is delayed in ``step``, shape (ranks,)."""
    delay = np.zeros(workload.ranks, dtype=np.int64)
    for straggler in _acting(workload, "late_launch", step):
        delay[straggler.rank] += straggler.extra_ns
    return delay


def _acting(workload: Workload, cause: Cause, step: int | None) -> Iterator[Straggler]:
    return (s for s in workload.stragglers if s.cause == cause and s.acts_in(step))
