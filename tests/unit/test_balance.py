"""Measures of balance against the formulas in plain Python."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview import balance

if TYPE_CHECKING:
    from collections.abc import Callable

LOADS = st.lists(st.integers(0, 10**12) | st.sampled_from([0, 1, 7]), min_size=1, max_size=12)
MEASURES = (
    balance.max_over_mean,
    balance.coefficient_of_variation,
    balance.gini,
    balance.normalized_entropy,
    balance.zero_ratio,
)
each_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.__name__)


def _max_over_mean(loads: list[int]) -> float:
    return max(loads) / (sum(loads) / len(loads))


def _coefficient_of_variation(loads: list[int]) -> float:
    mean = sum(loads) / len(loads)
    return math.sqrt(sum((x - mean) ** 2 for x in loads) / len(loads)) / mean


def _gini(loads: list[int]) -> float:
    """By definition: the mean difference over all ordered pairs."""
    return sum(abs(x - y) for x in loads for y in loads) / (2 * len(loads) * sum(loads))


def _normalized_entropy(loads: list[int]) -> float | None:
    shares = [x / sum(loads) for x in loads if x]
    return -sum(p * math.log(p) for p in shares) / math.log(len(loads)) if len(loads) > 1 else None


ORACLES: dict[Callable[[pl.Expr], pl.Expr], Callable[[list[int]], float | None]] = {
    balance.max_over_mean: _max_over_mean,
    balance.coefficient_of_variation: _coefficient_of_variation,
    balance.gini: _gini,
    balance.normalized_entropy: _normalized_entropy,
}


def _of_each(measure: Callable[[pl.Expr], pl.Expr], groups: list[list[int]]) -> list[float | None]:
    """The measure of every group, all in one aggregation."""
    rows = [(number, load) for number, loads in enumerate(groups) for load in loads]
    frame = pl.DataFrame(rows, {"group": pl.Int64, "load": pl.Int64}, orient="row")
    return frame.group_by("group").agg(x=measure(pl.col("load"))).sort("group")["x"].to_list()


@given(st.lists(LOADS.filter(any), min_size=1, max_size=4))
def test_every_group_gets_the_value_of_the_plain_formula(groups: list[list[int]]) -> None:
    for measure, oracle in ORACLES.items():
        for found, loads in zip(_of_each(measure, groups), groups, strict=True):
            assert found == (
                None if oracle(loads) is None else pytest.approx(oracle(loads), rel=1e-9, abs=1e-9)
            )


@given(LOADS)
def test_the_share_of_zeros_is_counted(loads: list[int]) -> None:
    assert _of_each(balance.zero_ratio, [loads]) == [pytest.approx(loads.count(0) / len(loads))]


@given(LOADS.filter(any), st.integers(2, 1000))
def test_the_unit_of_the_load_does_not_matter(loads: list[int], factor: int) -> None:
    for measure in MEASURES:
        scaled = _of_each(measure, [[load * factor for load in loads]])
        assert scaled == [
            pytest.approx(x, abs=1e-9) if x is not None else None for x in _of_each(measure, [loads])
        ]


def test_equal_loads_are_balanced_and_a_single_bearer_is_the_worst_case() -> None:
    even, alone = [5, 5, 5, 5], [0, 20, 0, 0]
    values = [_of_each(measure, [even, alone]) for measure in MEASURES]
    assert values == [[1, 4], [0, pytest.approx(math.sqrt(3))], [0, 0.75], [1, 0], [0, 0.75]]


@each_measure
def test_an_unknown_load_makes_the_answer_unknown(measure: Callable[[pl.Expr], pl.Expr]) -> None:
    frame = pl.DataFrame({"load": [3, None, 4]}, schema={"load": pl.Int64})
    assert frame.select(measure(pl.col("load"))).item() is None


@each_measure
def test_no_load_at_all_has_no_answer(measure: Callable[[pl.Expr], pl.Expr]) -> None:
    assert pl.DataFrame(schema={"load": pl.Int64}).select(measure(pl.col("load"))).item() is None


def test_where_nothing_is_loaded_there_is_no_spread_to_speak_of() -> None:
    values = [_of_each(measure, [[0, 0]]) for measure in MEASURES]
    assert values == [[None], [None], [None], [None], [1.0]]
