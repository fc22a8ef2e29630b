"""Durations and sizes of many ranks in little space: what quantiles over all ranks are taken from.

A rank hands over, per label, its distinct values and how often each occurs. A rank with up to `EXACT_TOTAL`
of them, and any label with up to `EXACT_VALUES`, keeps them as they are; other labels are rounded to `BITS`
significant bits, which moves a value by at most `ERROR`. So quantiles over any number of ranks are exact, or
off by a known share. Counts, sums and extremes never come from here; they are always exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.schema import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traceview.intervals import Floats, Ints

EXACT_VALUES, EXACT_TOTAL = 512, 1 << 14
BITS = 9
ERROR = 2.0**-BITS
"""Largest relative error of a rounded value: half a bin, 0.2 %."""

METHODS = ("exact", "rounded")
_LIST = pl.List(pl.Int64())


def partial_columns(*measures: str) -> dict[str, Column]:
    """Columns of a partial that hold the distributions of ``measures``, such as "ns" or "bytes"."""
    return {
        f"{measure}_{name}": Column(kind, doc, nullable=True)
        for measure in measures
        for name, kind, doc in (
            ("values", _LIST, "distinct values, ascending; rounded if there are many"),
            ("counts", _LIST, "how often each occurs"),
            ("rounded", pl.Boolean(), "whether the values are rounded"),
        )
    }


def result_columns(*measures: str, what: str) -> dict[str, Column]:
    """Columns of a result that `quantiles` fills; ``what`` says of what they are."""
    unit = {measure: measure.rpartition("_")[2] for measure in measures}
    return {
        name: column
        for measure in measures
        for name, column in {
            f"median_{measure}": Column(pl.Float64(), f"median {what}", unit[measure], nullable=True),
            f"p95_{measure}": Column(
                pl.Float64(), "95th percentile of them, linearly interpolated", unit[measure], nullable=True
            ),
        }.items()
    } | {
        "quantile_method": Column(
            pl.Enum(METHODS),
            "exact; or rounded: median and p95 within 0.2 %, all else is exact",
            nullable=True,
        )
    }


def distributions(rows: pl.DataFrame, keys: Sequence[str], **columns: str) -> pl.DataFrame:
    """One row per value of ``keys``, with its distributions.

    Args:
        rows: What to distribute; nulls are left out.
        keys: At least one column.
        columns: Column of ``rows`` by measure, as in ``ns="dur_ns"``.
    """
    found = rows.select(keys).unique(maintain_order=True)
    for measure, column in columns.items():
        one = _distribution(rows.drop_nulls(column), keys, measure, column)
        found = found.join(one, on=list(keys), how="left", nulls_equal=True)
    return found


def _distribution(rows: pl.DataFrame, keys: Sequence[str], measure: str, column: str) -> pl.DataFrame:
    distinct = rows.group_by(*keys, pl.col(column).alias("value")).agg(count=pl.len().cast(pl.Int64))
    many = (pl.len() > EXACT_VALUES).over(keys) & pl.lit(len(distinct) > EXACT_TOTAL)
    judged = distinct.with_columns(many=many)
    value = judged["value"].to_numpy()
    kept = np.where(judged["many"].to_numpy(), _rounded(value), value)
    return (
        judged.with_columns(pl.Series("value", kept, pl.Int64))
        .group_by(*keys, "value")
        .agg(pl.col("count").sum(), pl.col("many").any())
        .sort("value")
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("value").alias(f"{measure}_values"),
            pl.col("count").alias(f"{measure}_counts"),
            pl.col("many").any().alias(f"{measure}_rounded"),
        )
    )


def _rounded(value: Ints) -> Ints:
    """Each value as the middle of its bin: `BITS` significant bits, the lowest ones cut off."""
    _, length = np.frexp(value.astype(np.float64))
    cut = np.maximum(length.astype(np.int64) - BITS, 0)
    middle = np.where(cut > 0, np.int64(1) << np.maximum(cut - 1, 0), 0)
    return ((value >> cut) << cut) + middle


def quantiles(partials: pl.DataFrame, keys: Sequence[str], *measures: str) -> pl.DataFrame:
    """One row per value of ``keys``, with the `result_columns` of ``measures`` over all rows of it.

    Args:
        partials: Rows with ``keys`` and the `partial_columns` of ``measures``.
        keys: At least one column.
        measures: What to take quantiles of.
    """
    rounded = pl.any_horizontal(pl.col(f"{measure}_rounded").any() for measure in measures)
    found = partials.group_by(keys).agg(rounded=rounded).with_row_index("group")
    shares: dict[str, Floats] = {}
    for measure in measures:
        group, value, count = _merged(partials, found, keys, measure)
        size = np.zeros(len(found), np.int64)
        np.add.at(size, group, count)
        for name, share in (("median", 0.5), ("p95", 0.95)):
            shares[f"{name}_{measure}"] = _at(share, value, np.cumsum(count), size)
    any_value = np.logical_or.reduce([~np.isnan(values) for values in shares.values()])
    method = pl.when("rounded").then(pl.lit(METHODS[1])).otherwise(pl.lit(METHODS[0]))
    return found.select(
        *keys,
        *(pl.Series(name, values).fill_nan(None) for name, values in shares.items()),
        quantile_method=pl.when(pl.Series(any_value)).then(method).cast(pl.Enum(METHODS)),
    )


def _merged(
    partials: pl.DataFrame, found: pl.DataFrame, keys: Sequence[str], measure: str
) -> tuple[Ints, Ints, Ints]:
    """Group, value and count of the distributions of all rows, by group and value."""
    values, counts = f"{measure}_values", f"{measure}_counts"
    # groups are numbered before the lists are unfolded: keys are wide, and there are many values
    rows = partials.select(*keys, values, counts).drop_nulls(values)
    merged = (
        rows.join(found.select(*keys, "group"), on=list(keys), how="left", nulls_equal=True)
        .select("group", values, counts)
        .explode(values, counts)
        .group_by("group", values)
        .agg(pl.col(counts).sum())
        .sort("group", values)
    )
    group, value, count = (merged[name].cast(pl.Int64).to_numpy() for name in ("group", values, counts))
    return group, value, count


def _at(share: float, value: Ints, running: Ints, size: NDArray[np.int64]) -> Floats:
    """The quantile ``share`` of each group; NaN for an empty one.

    Args:
        share: 0..1.
        value: Distinct values by group, ascending.
        running: Running sum of how often each occurs.
        size: How many values each group has.
    """
    place = share * np.maximum(size - 1, 0)
    low = np.floor(place).astype(np.int64)
    before = np.cumsum(size) - size
    last = max(len(value) - 1, 0)
    padded = value if len(value) else np.zeros(1, np.int64)
    first, second = (
        padded[np.minimum(np.searchsorted(running, before + np.minimum(at, size - 1), side="right"), last)]
        for at in (low, low + 1)
    )
    return np.where(size > 0, first + (place - low) * (second - first), np.nan)
