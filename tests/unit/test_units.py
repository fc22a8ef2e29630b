"""Numbers as text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (7, "7.00 ns"),
        (999.4, "999 ns"),
        (1_500, "1.50 µs"),
        (999_600, "1.00 ms"),
        (4_160_000, "4.16 ms"),
        (61_234_000_000, "61.2 s"),
        (-2_500_000, "-2.50 ms"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_a_duration_has_three_digits_and_the_unit_of_its_rounded_value(ns: float | None, text: str) -> None:
    assert units.duration(ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_270_000, "1.27 MB"), (3e12, "3.00 TB")]
)
def test_a_size_is_decimal(count: float, text: str) -> None:
    assert units.size(count) == text


def test_an_unknown_ratio_is_a_dash_and_never_zero() -> None:
    assert units.percent(None) == units.percent(math.nan) == units.MISSING
    assert units.percent(0.0) == "0.0 %"
    assert units.percent(0.963) == "96.3 %"


def test_a_bare_percentage_has_no_sign() -> None:
    assert units.percent_value(0.5) == "50.0"
    assert units.percent_value(None) == units.MISSING


@pytest.mark.parametrize(
    ("value", "text"), [(9.996, "10.0"), (0.09996, "0.100"), (99.96, "100"), (12_345.6, "12,346")]
)
def test_digits_are_counted_after_rounding(value: float, text: str) -> None:
    assert units.significant(value) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_rounded_value_is_within_half_a_unit_of_its_third_digit(value: float) -> None:
    text = units.significant(value)
    assert "e" not in text
    assert abs(float(text.replace(",", "")) - value) <= 0.5001 * 10 ** (math.floor(math.log10(value)) - 2)


def test_milliseconds_carry_no_unit() -> None:
    assert units.milliseconds(4_160_000) == "4.16"
    assert units.milliseconds(None) == units.MISSING


def test_counts_group_their_thousands() -> None:
    assert units.count(1_234_567) == "1,234,567"
    assert units.count(None) == units.MISSING
    assert units.plural(1, "rank") == "1 rank"
    assert units.plural(2_000, "rank") == "2,000 ranks"


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([12, 0, 1, 7, 1], "0-1, 7, 12")]
)
def test_neighbouring_numbers_are_joined(values: list[int], text: str) -> None:
    assert units.numbers(values) == text


@given(st.sets(st.integers(0, 60)))
def test_joined_numbers_spell_the_same_set(values: set[int]) -> None:
    spelled: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", units.numbers(list(values))):
        spelled |= set(range(int(first), int(last or first) + 1))
    assert spelled == values


@pytest.mark.parametrize(
    ("value", "decimals", "signed", "text"),
    [
        (1234.567, 2, False, "1,234.57"),
        (1.2, 3, True, "+1.200"),
        (-0.0042, 3, True, "-0.004"),
        (-0.0004, 3, True, "0.000"),  # no sign for what rounds to nothing
        (0.0, 0, True, "0"),
        (None, 2, True, "–"),
        (math.inf, 2, False, "–"),
    ],
)
def test_a_fixed_number_has_the_decimals_of_its_column(
    value: float | None, decimals: int, *, signed: bool, text: str
) -> None:
    assert units.fixed(value, decimals, signed=signed) == text
