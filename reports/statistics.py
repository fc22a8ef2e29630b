"""How long a step takes, over the steps and ranks that were recorded: never a lone mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINIMUM_STEPS = 5
"""With fewer steps a bootstrap interval would say more about luck than about the job."""

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class StepTime:
    """Step times over all rank-steps, in ns.

    Attributes:
        step_count: Distinct steps.
        rank_step_count: Values behind the median and p95.
        median_ns: Median.
        p95_ns: 95th percentile, linearly interpolated.
        low_ns: Lower end of the bootstrap interval of the median; None below `MINIMUM_STEPS` steps.
        high_ns: Upper end of it.
    """

    step_count: int
    rank_step_count: int
    median_ns: float
    p95_ns: float
    low_ns: float | None
    high_ns: float | None


def step_time(step: NDArray[np.int64], duration_ns: NDArray[np.int64]) -> StepTime | None:
    """The distribution of ``duration_ns``; None where there is no value.

    Args:
        step: Step number of each value; ranks repeat it.
        duration_ns: How long that step took on one rank.
    """
    if not len(step):
        return None
    median, p95 = np.percentile(duration_ns, [50, 95])
    steps = len(np.unique(step))
    low, high = median_interval(step, duration_ns) if steps >= MINIMUM_STEPS else (None, None)
    return StepTime(steps, len(step), float(median), float(p95), low, high)


def median_interval(
    cluster: NDArray[np.int64], value: NDArray[np.int64], *, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of the median of ``value`` that draws whole clusters with replacement.

    The ranks of one step wait for each other, so their times are one observation and not many: drawing
    single rank-steps would make the interval too narrow.

    Args:
        cluster: What is drawn together, such as the step; same length as ``value``.
        value: Observations.
        seed: Of the draws; the same input gives the same interval.
    """
    order = np.argsort(value, kind="stable")
    ordered = value[order]
    _, code = np.unique(cluster[order], return_inverse=True)
    width = int(code.max()) + 1
    draws = np.random.default_rng(seed).integers(0, width, size=(RESAMPLES, width))
    medians = np.empty(RESAMPLES)
    for number, draw in enumerate(draws):  # one pass per resample: all at once would not fit at 1,024 ranks
        running = np.cumsum(np.bincount(draw, minlength=width)[code])
        half = running[-1] / 2
        middle = [np.searchsorted(running, half, side="left"), np.searchsorted(running, half, side="right")]
        medians[number] = ordered[middle].mean()
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)
