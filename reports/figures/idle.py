"""What each rank's device idles for, as stacked bars that add up to its idle time."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.reports.figures import _bars, _theme

PARTS = (
    ("launch starved", _theme.OKABE_ITO[2]),
    ("host blocked", _theme.OKABE_ITO[3]),
    ("profiler", _theme.OKABE_ITO[6]),
    ("blocking", _theme.OKABE_ITO[0]),
    ("dependency stalled", _theme.OKABE_ITO[1]),
    ("turnaround", _theme.OKABE_ITO[4]),
    ("graph unseen", _theme.OKABE_ITO[5]),
    ("unexplained", "#5c4a99"),
    ("launch unknown", "#8a8f98"),
    ("window edge", _theme.NOTHING),
)
"""Causes, those of the host first, so that its share can be read from the foot of a bar."""


def parts(idle: pl.DataFrame) -> pl.DataFrame:
    """``rank, device`` and the `PARTS` of a mean window in ms, to the ns, of an `idle` by rank and cause."""
    cause, per = pl.col("cause").cast(pl.String), pl.col("window_count").first() * 1e6
    named = (
        (pl.col("idle_ns").filter(cause == name.replace(" ", "_")).sum() / per).round(6).alias(f"{name} ms")
        for name, _ in PARTS
    )
    return idle.group_by("rank", "device").agg(*named).sort("rank", "device")


def by_rank(idle: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Stacked bars of an `idle` by rank and cause."""
    table = parts(idle)
    return _bars.upright(table, _bars.used(table, PARTS))


FIGURES = {("rank", "cause"): by_rank}
