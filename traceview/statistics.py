"""What can be said about runs of a few steps: intervals, tests and noise, never a lone mean.

The step is the unit that is drawn: the ranks of one step wait for each other, so their times are one
observation and not many. Every draw is seeded, so the same input gives the same answer.

- `median_interval`, `step_time`: the step time of one run.
- `Steps`, rows of times per step: `difference_interval` of the means of two runs, `adjusted_p` of whether
  they differ at all, and `noise`, how much halves of the same run differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MINIMUM_STEPS = 5
"""With fewer steps a bootstrap interval of a median would say more about luck than about the job."""

COMPARABLE_STEPS = 4
"""With fewer steps on either side no difference can be significant: 3 against 3 can be split in 20 ways, and
the two most extreme of them are 10 %."""

RESAMPLES = 1000
MEAN_RESAMPLES = 10_000
CONFIDENCE = 0.95
LABELLINGS = 4000
"""Ways to deal the steps of two runs out again; all of them where there are fewer."""

SPLITS = 1000
"""Ways to halve a run; all of them where there are fewer."""

_LEAST_VARIANCE = 1e-9
"""Of a row scaled to variance 1: what rounding leaves of no variance at all."""

_ROWS_AT_ONCE = 128
"""Rows whose resamples are held in memory together."""

_NORMAL = NormalDist()


# --- one run -----------------------------------------------------------------------------------------


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


def step_time(step: Ints, duration_ns: Ints) -> StepTime | None:
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


def median_interval(cluster: Ints, value: Ints, *, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the median of ``value`` that draws whole clusters with replacement.

    Drawing single rank-steps would make the interval too narrow.

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


# --- two runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What the steps of one run went into, in step order.

    Attributes:
        totals: Time of each step and row, summed over its windows; shape (steps, rows).
        windows: Windows (rank × device) of each step, all positive; shape (steps,).
    """

    totals: Floats
    windows: Floats

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.windows)

    def means(self, times: Floats | None = None) -> Floats:
        """Time per window of every row.

        Args:
            times: How often each step counts, shape (draws, steps); None: once.

        Returns:
            Shape (draws, rows), or (rows,) without ``times``.
        """
        if times is None:
            return np.asarray(self.totals.sum(axis=0) / self.windows.sum())
        return np.asarray((times @ self.totals) / (times @ self.windows)[:, None])

    def resampled(self, *, seed: int = 0) -> Floats:
        """Bootstrap draws of `means`: whole steps with replacement, shape (`MEAN_RESAMPLES`, rows)."""
        return self.means(_resamples(self.count, seed=seed))


def difference_interval(before: Steps, after: Steps, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Bootstrap interval (`CONFIDENCE`, for each row alone) of ``after.means() − before.means()``.

    Percentiles of resampled means are too narrow for few steps. So deviations are stretched by √(n/(n−1)) for
    each run, and the percentiles taken further out, where Student's t has them (Welch's degrees of freedom).

    Args:
        before: At least 2 steps.
        after: At least 2 steps, of the same rows.
        seed: Of the draws.

    Returns:
        Lower and upper ends, shape (rows,) each.

    Source: Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 4.1.
    """
    centre = after.means() - before.means()
    tails = _tails(before, after)
    ends = []
    for first in range(0, len(tails), _ROWS_AT_ONCE):
        block = slice(first, first + _ROWS_AT_ONCE)
        a, b = (Steps(steps.totals[:, block], steps.windows) for steps in (before, after))
        spread = _deviations(b, seed=seed + 1) - _deviations(a, seed=seed)
        ends += [np.quantile(spread[:, row], [tail, 1 - tail]) for row, tail in enumerate(tails[block])]
    low, high = np.array(ends).reshape(-1, 2).T
    return centre + low, centre + high


def ratio_interval(before: Steps, after: Steps, *, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval (`CONFIDENCE`) of the ratio of two mean times, ``before / after``, of one row each.

    As `difference_interval`, of logarithms.

    Args:
        before: At least 2 steps, of one row.
        after: At least 2 steps, of one row.
        seed: Of the draws.
    """
    centre = np.log(before.means()[0] / after.means()[0])
    parts = [
        np.log(steps.resampled(seed=seed + number)[:, 0] / steps.means()[0])
        * np.sqrt(steps.count / (steps.count - 1))
        for number, steps in enumerate((before, after))
    ]
    [tail] = _tails(_relative(before), _relative(after))
    low, high = np.quantile(parts[0] - parts[1], [tail, 1 - tail])
    return float(np.exp(centre + low)), float(np.exp(centre + high))


def adjusted_p(before: Steps, after: Steps, *, seed: int = 0) -> Floats:
    """How often chance alone would show, anywhere, a difference as clear as that of each row.

    Steps of both runs are dealt out again, in all ways or `LABELLINGS` of them, and of each dealing the
    largest Welch t of all rows counts (step-down). So with a threshold of 5 % the chance of even one false
    alarm among all rows is at most 5 %, exactly where steps are exchangeable, however the rows depend on
    each other.

    Args:
        before: At least 2 steps.
        after: At least 2 steps, of the same rows.
        seed: Of the draws.

    Returns:
        Shape (rows,): p-values, adjusted for all rows.

    Source: Westfall and Young, "Resampling-Based Multiple Testing", 1993, algorithm 4.1.
    """
    values = np.concatenate([_per_window(before), _per_window(after)])
    scale = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1)
    is_before = _labellings(before.count, after.count, seed=seed)  # the first one is the real one
    statistic = _welch(scaled, is_before)
    order = np.argsort(-statistic[0], kind="stable")
    ranked = statistic[:, order]
    largest = np.maximum.accumulate(ranked[:, ::-1], axis=1)[:, ::-1]  # of this row and all less clear ones
    as_clear = largest >= ranked[0] * (1 - 1e-9)  # mirrored dealings differ by rounding
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(as_clear.mean(axis=0))
    return adjusted


def noise(steps: Steps, *, compared: tuple[int, int] | None = None, seed: int = 0) -> Floats:
    """How much two halves of one run differ in each row: its noise floor.

    95 % of random halves differ by no more; nor do the first and the last half, which shows drift.

    Args:
        steps: At least 2 steps.
        compared: Numbers of steps of a comparison; halves have fewer steps, so what they differ by by chance
            is scaled to these numbers. None leaves it as it is.
        seed: Of the draws.

    Returns:
        Shape (rows,), in the unit of the rows.
    """
    halves = (steps.count // 2, steps.count - steps.count // 2)
    is_first = _labellings(*halves, limit=SPLITS, seed=seed)
    between = np.abs(steps.means(1.0 - is_first) - steps.means(is_first))
    usual = np.quantile(between, CONFIDENCE, axis=0, method="higher")
    scale = sqrt(_error(compared) / _error(halves)) if compared else 1.0
    return np.asarray(np.maximum(scale * usual, between[0]))


@lru_cache(maxsize=8)
def _resamples(count: int, *, seed: int) -> Floats:
    """How often each of ``count`` steps is drawn, shape (`MEAN_RESAMPLES`, count)."""
    even = np.full(count, 1 / count)
    draws = np.random.default_rng(seed).multinomial(count, even, size=MEAN_RESAMPLES)
    return draws.astype(np.float64)


def _error(counts: tuple[int, int]) -> float:
    """Squared standard error of a difference of two means, in variances of one value."""
    return 1 / counts[0] + 1 / counts[1]


def _per_window(steps: Steps) -> Floats:
    return np.asarray(steps.totals / steps.windows[:, None])


def _relative(steps: Steps) -> Steps:
    """The same steps with a mean of 1, so that runs of different length can be weighed."""
    return Steps(steps.totals / steps.means(), steps.windows)


def _deviations(steps: Steps, *, seed: int) -> Floats:
    stretch = np.sqrt(steps.count / (steps.count - 1))
    return np.asarray((steps.resampled(seed=seed) - steps.means()) * stretch)


def _tails(before: Steps, after: Steps) -> list[float]:
    """Share of the normal distribution beyond Student's critical value, for each row."""
    squares = [_per_window(steps).var(axis=0, ddof=1) / steps.count for steps in (before, after)]
    below = sum(square**2 / (steps.count - 1) for square, steps in zip(squares, (before, after), strict=True))
    fewest = min(before.count, after.count) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(np.asarray(below) > 0, (squares[0] + squares[1]) ** 2 / below, fewest)
    return [_NORMAL.cdf(-_student(max(float(degrees), 1.0))) for degrees in freedom]


def _student(freedom: float) -> float:
    """Two-sided critical value of Student's t at `CONFIDENCE`; within 0.2 % from 3 degrees of freedom on.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    z = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


@lru_cache(maxsize=8)  # the same for every table of a comparison
def _labellings(first: int, second: int, *, seed: int, limit: int = LABELLINGS) -> Floats:
    """Ways to mark ``first`` of all steps 1 and ``second`` of them 0; the first way is as they stand."""
    count = first + second
    if comb(count, first) <= limit:
        chosen = np.array(list(combinations(range(count), first)))
        marks = np.zeros((len(chosen), count))
        np.put_along_axis(marks, chosen, 1.0, axis=1)
        return marks
    given = np.repeat([1.0, 0.0], [first, second])
    dealt = np.random.default_rng(seed).permuted(np.tile(given, (limit - 1, 1)), axis=1)
    return np.vstack([given, dealt])


def _welch(scaled: Floats, is_first: Floats) -> Floats:
    """Absolute Welch t of every labelling and row; rows are centred and have variance 1, or are all 0."""
    squared_error = np.zeros((len(is_first), scaled.shape[1]))
    gap = np.zeros_like(squared_error)
    for marks, sign in ((is_first, -1.0), (1.0 - is_first, 1.0)):
        count = marks[0].sum()
        mean = marks @ scaled / count
        variance = (marks @ scaled**2 - count * mean**2) / (count - 1)
        squared_error += np.maximum(variance, _LEAST_VARIANCE) / count
        gap += sign * mean
    return np.asarray(np.abs(gap) / np.sqrt(squared_error))
