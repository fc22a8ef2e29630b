"""Intervals, tests and noise: against draws spelled out, and against what they promise over many seeds."""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from traceview import statistics
from traceview.statistics import (
    RESAMPLES,
    Steps,
    adjusted_p,
    difference_interval,
    median_interval,
    noise,
    step_time,
)

# --- one run -----------------------------------------------------------------------------------------


def _interval_by_brute_force(step: list[int], value: list[int]) -> tuple[float, float]:
    """The same draws, with every resample spelled out as a list."""
    steps = sorted(set(step))
    draws = np.random.default_rng(0).integers(0, len(steps), size=(RESAMPLES, len(steps)))
    medians = []
    for draw in draws:
        pool = [v for chosen in draw for s, v in zip(step, value, strict=True) if s == steps[chosen]]
        medians.append(np.median(pool))
    return float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_interval_equals_the_one_of_resamples_spelled_out(ranks: int) -> None:
    draws = np.random.default_rng(7)
    step = [number for number in range(6) for _ in range(ranks)]
    value = draws.integers(1_000, 2_000, len(step)).tolist()
    assert median_interval(np.array(step), np.array(value)) == _interval_by_brute_force(step, value)


def test_ranks_of_one_step_are_not_independent_observations() -> None:
    value = np.array([100, 140, 90, 130, 110, 150, 95, 125])
    narrow = median_interval(np.arange(8), value)
    assert median_interval(np.repeat(np.arange(8), 50), np.repeat(value, 50)) == narrow


def test_step_time_is_over_rank_steps_and_has_an_interval_from_five_steps_on() -> None:
    few = step_time(np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40]))
    assert few is not None
    assert (few.median_ns, few.step_count, few.rank_step_count) == (25, 4, 4)
    assert few.low_ns is None
    many = step_time(np.array([1, 2, 3, 4, 5, 5]), np.array([10, 20, 30, 40, 50, 60]))
    assert many is not None
    assert (many.step_count, many.rank_step_count) == (5, 6)
    assert many.low_ns is not None
    assert many.high_ns is not None
    assert 10 <= many.low_ns <= many.median_ns <= many.high_ns <= 60


def test_no_step_has_no_step_time() -> None:
    empty = np.array([], np.int64)
    assert step_time(empty, empty) is None


# --- two runs ----------------------------------------------------------------------------------------


def _steps(rows: list[list[float]], windows: int = 1) -> Steps:
    """One list per row, one value per window and step."""
    totals = np.array(rows, float).T * windows
    return Steps(totals, np.full(len(totals), float(windows)))


def _random(draws: np.random.Generator, steps: int, rows: int, spread: float = 1.0) -> Steps:
    """Rows of very different size and some dependence, as the rows of a step are."""
    common = draws.standard_normal((steps, 1))
    values = 100 + spread * (common + draws.standard_normal((steps, rows))) * np.geomspace(0.01, 10, rows)
    return Steps(values * 8, np.full(steps, 8.0))


def _welch(first: list[float], second: list[float]) -> float:
    squared = sum(np.var(side, ddof=1) / len(side) for side in (first, second))
    return float(abs(np.mean(second) - np.mean(first)) / sqrt(squared))


def test_p_is_the_share_of_dealings_with_as_clear_a_difference_anywhere() -> None:
    draws = np.random.default_rng(3)
    before, after = _random(draws, 4, 3), _random(draws, 5, 3)
    values = np.vstack([before.totals, after.totals]) / 8
    largest, real = [], [0.0] * 3
    for chosen in combinations(range(9), 4):
        rest = [step for step in range(9) if step not in chosen]
        found = [_welch(list(values[list(chosen), row]), list(values[rest, row])) for row in range(3)]
        real = found if chosen == (0, 1, 2, 3) else real
        largest.append(found)
    clearest = int(np.argmax(real))
    expected = np.mean([max(found) >= real[clearest] - 1e-9 for found in largest])
    assert adjusted_p(before, after)[clearest] == pytest.approx(expected)
    least = int(np.argmin(real))
    alone = np.mean([found[least] >= real[least] - 1e-9 for found in largest])
    assert adjusted_p(before, after)[least] >= alone  # never below what the row alone would give


def test_four_steps_against_four_can_be_significant_and_three_against_three_cannot() -> None:
    fast, slow = [10.0, 11, 12, 13], [20.0, 21, 22, 23]
    assert adjusted_p(_steps([fast]), _steps([slow]))[0] == pytest.approx(2 / 70)
    assert adjusted_p(_steps([fast[:3]]), _steps([slow[:3]]))[0] == pytest.approx(2 / 20)


def test_rows_without_any_variance_differ_surely_or_not_at_all() -> None:
    same, other = [5.0] * 4, [6.0] * 4
    assert adjusted_p(_steps([same, same]), _steps([other, same])).tolist() == pytest.approx([2 / 70, 1])
    low, high = difference_interval(_steps([same]), _steps([other]))
    assert (low[0], high[0]) == pytest.approx((1, 1))
    assert noise(_steps([same])).tolist() == [0]


@pytest.mark.parametrize(("before_count", "after_count"), [(4, 4), (5, 5), (7, 7), (4, 16)])
def test_false_alarms_in_any_of_twelve_rows_stay_within_five_percent(
    before_count: int, after_count: int
) -> None:
    draws = np.random.default_rng(11)
    rounds = 120
    alarms = 0
    for _ in range(rounds):
        before, after = _random(draws, before_count, 12), _random(draws, after_count, 12)
        alarms += bool((adjusted_p(before, after) <= 0.05).any())
    assert alarms / rounds <= 0.05 + 2 * sqrt(0.05 * 0.95 / rounds)


def test_a_planted_difference_is_found_among_many_rows() -> None:
    draws = np.random.default_rng(12)
    found = 0
    for _ in range(50):
        before, after = _random(draws, 6, 20, spread=0.2), _random(draws, 6, 20, spread=0.2)
        after.totals[:, 7] += 8 * 3.0 * np.geomspace(0.01, 10, 20)[7]
        found += bool(adjusted_p(before, after)[7] <= 0.05)
    assert found >= 45


@pytest.mark.parametrize("count", [4, 6, 12])
def test_the_interval_holds_the_true_difference_about_as_often_as_it_says(count: int) -> None:
    draws = np.random.default_rng(13)
    rows = 400  # independent rows are independent trials
    before, after = (
        Steps(draws.standard_normal((count, rows)) + mean, np.ones(count)) for mean in (10.0, 12.0)
    )
    low, high = difference_interval(before, after)
    assert 0.92 <= np.mean((low <= 2) & (high >= 2)) <= 0.985


def test_ranks_that_repeat_a_step_make_the_interval_no_narrower() -> None:
    rows = [[10.0, 14, 9, 13], [1.0, 2, 3, 4]]
    alone = difference_interval(_steps(rows), _steps(rows[::-1]))
    many = difference_interval(_steps(rows, windows=64), _steps(rows[::-1], windows=64))
    np.testing.assert_allclose(alone, many)


def test_rows_are_resampled_alike_however_many_there_are() -> None:
    before, after = (_random(np.random.default_rng(seed), 6, 300) for seed in (1, 2))
    few = [Steps(steps.totals[:, 250:260], steps.windows) for steps in (before, after)]
    for whole, part in zip(difference_interval(before, after), difference_interval(*few), strict=True):
        np.testing.assert_allclose(whole[250:260], part)


def test_steps_with_more_windows_weigh_more() -> None:
    steps = Steps(np.array([[10.0], [60.0]]), np.array([1.0, 3.0]))
    assert steps.means().tolist() == [70 / 4]


def test_noise_is_what_halves_of_the_run_differ_by() -> None:
    value = [1.0, 5, 2, 9]
    halves = [
        abs(
            np.mean([value[step] for step in chosen])
            - np.mean([value[s] for s in {0, 1, 2, 3} - set(chosen)])
        )
        for chosen in combinations(range(4), 2)
    ]
    assert noise(_steps([value]))[0] == pytest.approx(max(halves))


def test_noise_of_halves_is_scaled_to_the_steps_that_are_compared() -> None:
    steps = _steps([[1.0, 5, 2, 9]])  # halves of 2 against 2; 4 against 4 differ by less, by chance
    assert noise(steps, compared=(4, 4))[0] == pytest.approx(noise(steps)[0] / sqrt(2))


def test_drift_is_noise_even_if_random_halves_hardly_show_it() -> None:
    drifting = [float(step) for step in range(20)]
    assert noise(_steps([drifting]))[0] == pytest.approx(10)


def test_students_critical_values_are_those_of_the_tables() -> None:
    for freedom, value in ((3, 3.1824), (4, 2.7764), (6, 2.4469), (10, 2.2281), (30, 2.0423)):
        assert statistics._student(freedom) == pytest.approx(value, rel=2e-3)


def test_the_same_steps_give_the_same_answer_twice() -> None:
    before, after = (_random(np.random.default_rng(seed), 12, 5) for seed in (1, 2))  # drawn, not enumerated
    for ask in (adjusted_p, difference_interval):
        np.testing.assert_array_equal(ask(before, after), ask(before, after))
    np.testing.assert_array_equal(noise(before), noise(before))
