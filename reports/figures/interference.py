"""How much longer kernels take under communication than alone, by category."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.reports.figures import _bars, _theme

PARTS = (("as long as alone", _theme.OKABE_ITO[1]), ("excess", _theme.OKABE_ITO[2]))


def parts(rows: pl.DataFrame) -> pl.DataFrame:
    """``category`` and ms per window of compared kernels: what they would take alone, and what is beyond."""
    per = pl.col("window_count") * 1e6
    excess = pl.col("excess_ns").clip(lower_bound=0)
    known = rows.filter(pl.col("compared_count") > 0).select(
        pl.col("category").cast(pl.String),
        ((pl.col("compared_ns") - excess) / per).alias("as long as alone ms"),
        (excess / per).alias("excess ms"),
        "slowdown",
    )
    return known.sort(-pl.col("excess ms"), "category")


def by_category(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of an `interference` by category."""
    return _bars.lying(parts(rows), PARTS, key="category")


FIGURES = {("category",): by_category}
