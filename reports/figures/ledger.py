"""Where each rank's time goes, with the expert-parallel exchanges split into waiting and moving bytes."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.reports.figures import _bars, _theme

PARTS = (
    ("compute", _theme.OKABE_ITO[0]),
    ("ep waiting", _theme.OKABE_ITO[2]),
    ("ep moving bytes", _theme.OKABE_ITO[3]),
    ("ep not split", _theme.OKABE_ITO[6]),
    ("other communication", _theme.OKABE_ITO[5]),
    ("several at once", _theme.OKABE_ITO[4]),
    ("copies", "#5c4a99"),
    ("idle", _theme.NOTHING),
)


def parts(ledger: pl.DataFrame) -> pl.DataFrame:
    """``rank, device`` and the `PARTS` of a mean window in ms, of a `ledger` by rank; they add up to it."""
    part, time = pl.col("part").cast(pl.String), pl.col("time_ns")
    is_comm, is_ep = part == "comm", pl.col("axis").cast(pl.String).eq_missing("ep")
    wait, transfer = pl.col("exposed_wait_ns").fill_null(0), pl.col("exposed_transfer_ns").fill_null(0)
    expert = is_comm & is_ep
    times = (
        time.filter(part == "compute"),
        wait.filter(expert),
        transfer.filter(expert),
        (time - wait - transfer).filter(expert),
        time.filter(is_comm & ~is_ep),
        time.filter(part == "several"),
        time.filter(part == "copy"),
        time.filter(part == "idle"),
    )
    per = pl.col("window_count").first() * 1e6
    named = ((one.sum() / per).alias(f"{name} ms") for (name, _), one in zip(PARTS, times, strict=True))
    return ledger.group_by("rank", "device").agg(*named).sort("rank", "device")


def by_rank(ledger: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Stacked bars of a `ledger` by rank."""
    table = parts(ledger)
    return _bars.upright(table, _bars.used(table, PARTS))


FIGURES = {("rank",): by_rank}
