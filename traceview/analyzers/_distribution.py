"""Durations of many ranks in little space: what median and 95th percentile over all ranks are taken from.

A rank hands over, per label, its distinct durations and how often each occurs. Up to `EXACT_VALUES` of them
are kept as they are; a label with more is rounded to `BITS` significant bits, which moves a value by at most
`ERROR`. So quantiles over any number of ranks are exact, or off by a known share. Counts, sums and extremes
never come from here; they are always exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.schema import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EXACT_VALUES = 512
BITS = 9
ERROR = 2.0**-BITS
"""Largest relative error of a rounded duration: half a bin, 0.2 %."""

METHODS = ("exact", "rounded")
_LENGTHS = pl.List(pl.Int64())

PARTIAL = {
    "values_ns": Column(_LENGTHS, "distinct durations, ascending; rounded if there are many", "ns"),
    "counts": Column(_LENGTHS, "how often each occurs"),
    "is_rounded": Column(pl.Boolean(), "whether the durations are rounded"),
}
"""Columns of a partial that hold a distribution."""

RESULT = {
    "median_ns": Column(pl.Float64(), "median duration over all ranks", "ns", nullable=True),
    "p95_ns": Column(pl.Float64(), "95th percentile, linearly interpolated", "ns", nullable=True),
    "quantile_method": Column(
        pl.Enum(METHODS), "exact; or rounded: median and p95 within 0.2 %, all else is exact", nullable=True
    ),
}
"""Columns of a result that `quantiles` fills."""


def distributions(durations: pl.DataFrame, keys: Sequence[str], column: str = "dur_ns") -> pl.DataFrame:
    """One row per value of ``keys`` with the columns of `PARTIAL`: its ``column`` as a distribution."""
    distinct = durations.group_by(*keys, pl.col(column).alias("value")).agg(count=pl.len().cast(pl.Int64))
    many = (pl.len() > EXACT_VALUES).over(keys) if keys else pl.len() > EXACT_VALUES
    judged = distinct.with_columns(is_rounded=many)
    value = np.where(judged["is_rounded"].to_numpy(), _rounded(judged["value"].to_numpy()), judged["value"])
    return (
        judged.with_columns(pl.Series("value", value, pl.Int64))
        .group_by(*keys, "value", "is_rounded")
        .agg(pl.col("count").sum())
        .sort("value")
        .group_by(*(keys or [pl.lit(0).alias("all")]), maintain_order=True)
        .agg(values_ns="value", counts="count", is_rounded=pl.col("is_rounded").any())
        .select(*keys, *PARTIAL)
    )


def _rounded(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each value as the middle of its bin: `BITS` significant bits, the lowest ones cut off."""
    _, length = np.frexp(value.astype(np.float64))
    cut = np.maximum(length.astype(np.int64) - BITS, 0)
    middle = np.where(cut > 0, np.int64(1) << np.maximum(cut - 1, 0), 0)
    return ((value >> cut) << cut) + middle


def quantiles(partials: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One row per value of ``keys`` with the columns of `RESULT`, over all rows of ``partials``.

    Args:
        partials: Rows with ``keys`` and the columns of `PARTIAL`.
        keys: Grain of the answer; at least one column.
    """
    listed = partials.select(*keys, *PARTIAL)
    found = listed.group_by(keys).agg(is_rounded=pl.col("is_rounded").any()).with_row_index("group")
    merged = (
        listed.drop("is_rounded")
        .explode("values_ns", "counts")
        .drop_nulls("values_ns")
        .join(found, on=list(keys), how="left", nulls_equal=True)
        .group_by("group", "values_ns")
        .agg(pl.col("counts").sum())
        .sort("group", "values_ns")
    )
    group, value, count = (merged[name].to_numpy() for name in ("group", "values_ns", "counts"))
    size = np.zeros(len(found), np.int64)
    np.add.at(size, group, count)
    running = np.cumsum(count)
    method = pl.when("is_rounded").then(pl.lit(METHODS[1])).otherwise(pl.lit(METHODS[0]))
    before = np.cumsum(size) - size
    return found.select(
        *keys,
        pl.Series("median_ns", _at(0.5, value, running, before, size)).fill_nan(None),
        pl.Series("p95_ns", _at(0.95, value, running, before, size)).fill_nan(None),
        quantile_method=pl.when(pl.Series(size > 0)).then(method).cast(pl.Enum(METHODS)),
    )


def _at(
    share: float,
    value: NDArray[np.int64],
    running: NDArray[np.int64],
    before: NDArray[np.int64],
    size: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The quantile ``share`` of each group; NaN for an empty one.

    Args:
        share: 0..1.
        value: Distinct values by group, ascending.
        running: Running sum of how often each occurs.
        before: How many come before each group.
        size: How many each group has.
    """
    place = share * np.maximum(size - 1, 0)
    low = np.floor(place).astype(np.int64)
    last = max(len(value) - 1, 0)
    padded = value if len(value) else np.zeros(1, np.int64)
    first, second = (
        padded[np.minimum(np.searchsorted(running, before + np.minimum(at, size - 1), side="right"), last)]
        for at in (low, low + 1)
    )
    return np.where(size > 0, first + (place - low) * (second - first), np.nan)
