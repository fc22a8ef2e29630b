"""Where each rank's time goes, as stacked bars that add up to its step."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.reports.figures import _bars, _theme

PARTS = (
    ("compute alone", _theme.OKABE_ITO[0]),
    ("compute over communication", _theme.OKABE_ITO[1]),
    ("exposed communication", _theme.OKABE_ITO[2]),
    ("exposed copies", _theme.OKABE_ITO[3]),
    ("idle", _theme.NOTHING),
)


def parts(breakdown: pl.DataFrame) -> pl.DataFrame:
    """``rank, device`` and the `PARTS` of a mean window in ms, of a `breakdown` by rank."""
    compute, hidden = pl.col("compute_ns"), pl.col("hidden_comm_ns")
    times = (compute - hidden, hidden, *map(pl.col, ("exposed_comm_ns", "exposed_copy_ns", "idle_ns")))
    per = pl.col("window_count") * 1e6
    named = ((time / per).alias(f"{name} ms") for (name, _), time in zip(PARTS, times, strict=True))
    return breakdown.select("rank", "device", *named)


def by_rank(breakdown: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Stacked bars of a `breakdown` by rank."""
    return _bars.upright(parts(breakdown), PARTS)


FIGURES = {("rank",): by_rank}
