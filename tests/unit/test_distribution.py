"""Quantiles over the partials of many ranks: exact, or within the error that is told."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analyzers import _distribution
from traceview.analyzers._distribution import ERROR, EXACT_TOTAL, EXACT_VALUES, distributions, quantiles

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), st.integers(0, 50) | st.none()),
    max_size=60,
)


def _frame(rows: list[tuple[str | None, int, int | None]]) -> pl.DataFrame:
    schema = {"label": pl.String, "rank": pl.Int32, "dur_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _over_ranks(rows: pl.DataFrame) -> pl.DataFrame:
    partials = distributions(rows, ["rank", "label"], ns="dur_ns")
    return quantiles(partials, ["label"], "ns")


@given(ROWS)
def test_quantiles_of_few_values_are_those_of_all_values_together(
    rows: list[tuple[str | None, int, int | None]],
) -> None:
    found = {row["label"]: row for row in _over_ranks(_frame(rows)).to_dicts()}
    assert set(found) == {label for label, _, _ in rows}
    for label, row in found.items():
        values = [value for name, _, value in rows if name == label and value is not None]
        if not values:
            assert [row[name] for name in ("median_ns", "p95_ns", "quantile_method")] == [None] * 3
            continue
        assert row["quantile_method"] == "exact"
        assert row["median_ns"] == pytest.approx(np.percentile(values, 50))
        assert row["p95_ns"] == pytest.approx(np.percentile(values, 95))


def test_many_distinct_values_are_rounded_by_no_more_than_is_told_and_the_method_says_so() -> None:
    draw = np.random.default_rng(5)
    values = (10 ** draw.uniform(0, 12, size=(3, 2 * EXACT_TOTAL))).astype(np.int64)
    rows = pl.concat(
        pl.DataFrame({"label": "x", "rank": rank, "dur_ns": of_rank}) for rank, of_rank in enumerate(values)
    )
    partials = distributions(rows, ["rank", "label"], ns="dur_ns")
    assert partials["ns_values"].list.len().max() < 40 * (1 << (_distribution.BITS - 1))  # type: ignore[operator]
    assert partials["ns_counts"].list.sum().to_list() == [2 * EXACT_TOTAL] * 3
    row = quantiles(partials, ["label"], "ns").row(0, named=True)
    assert row["quantile_method"] == "rounded"
    for name, share in (("median_ns", 50), ("p95_ns", 95)):
        assert row[name] == pytest.approx(np.percentile(values, share), rel=ERROR)
        assert row[name] != np.percentile(values, share)


def test_a_label_of_few_values_stays_exact_beside_one_of_many() -> None:
    many = pl.DataFrame({"label": "many", "rank": 0, "dur_ns": np.arange(EXACT_TOTAL + 1) + 10**6})
    few = pl.DataFrame({"label": "few", "rank": 0, "dur_ns": np.arange(EXACT_VALUES) + 10**6})
    found = dict(_over_ranks(pl.concat([many, few])).select("label", "quantile_method").iter_rows())
    assert found == {"many": "rounded", "few": "exact"}


def test_one_measure_that_is_rounded_marks_the_row() -> None:
    lengths = np.arange(EXACT_TOTAL + 1) + 10**6
    rows = pl.DataFrame({"label": "x", "dur_ns": lengths, "bytes": 4})
    partials = distributions(rows, ["label"], ns="dur_ns", bytes="bytes")
    row = quantiles(partials, ["label"], "ns", "bytes").row(0, named=True)
    assert (row["median_bytes"], row["p95_bytes"], row["quantile_method"]) == (4.0, 4.0, "rounded")
