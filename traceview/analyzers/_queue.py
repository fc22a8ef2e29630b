"""How far the host is ahead: launch delays, work launched and not yet finished, and what graphs launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers._launched import graph_calls
from traceview.intervals import Ints, Spans, innermost, split, total, union

if TYPE_CHECKING:
    from traceview.analyzers._occupancy import Occupancy
    from traceview.trace import Trace

_EACH = {
    "op_count": pl.len(),
    "launched_count": pl.col("launch_ts_ns").count(),
    "graph_op_count": pl.col("is_graph").sum(),
    "opaque_count": (pl.col("kind") == "graph").sum(),
}


def figures(trace: Trace, work: pl.DataFrame, windows: pl.DataFrame, found: Occupancy) -> pl.DataFrame:
    """Per window: `queue_figures`, delays, counts and the device time of graphs, in the order of ``windows``.

    Args:
        trace: One rank.
        work: Its `launched` device work, row by row as in `ops`.
        windows: `windows` looked at.
        found: `occupancy` of both.
    """
    rows = np.arange(len(windows), dtype=np.int64)
    begun = found.pieces.start == work["ts_ns"].to_numpy()[found.row]
    started = work[found.row[begun]].with_columns(pl.Series("window", found.pieces.key[begun]))
    counts = started.group_by("window").agg(**_EACH).join(_delays(started), on="window", how="left")
    graph, opaque = (work["is_graph"].to_numpy(), (work["kind"] == "graph").to_numpy())
    frame = pl.DataFrame({"window": rows}).join(counts, on="window", how="left", maintain_order="left")
    return frame.with_columns(
        pl.col(*_EACH).fill_null(0),
        pl.Series("busy_ns", found.measure(found.busy)),
        pl.Series("graph_busy_ns", found.measure(union(found.pieces.take(graph[found.row])))),
        pl.Series("opaque_ns", found.measure(union(found.pieces.take(opaque[found.row])))),
        pl.Series("graph_launch_count", _graph_launches(trace, work, windows)),
        *_depths(work, windows),
    ).drop("window")


def _delays(started: pl.DataFrame) -> pl.DataFrame:
    """Median and 95th percentile, per window, of the time from a call's start to its first work's start."""
    first = started.filter(pl.col("launch_ts_ns").is_not_null() & ~pl.col("continues"))
    delay = pl.col("ts_ns") - pl.col("launch_ts_ns")
    return first.group_by("window").agg(
        delay_median_ns=delay.median(), delay_p95_ns=delay.quantile(0.95, "nearest").cast(pl.Float64)
    )


def _depths(work: pl.DataFrame, windows: pl.DataFrame) -> list[pl.Series]:
    """``queue_ns``, the time of all ops between launch and end, and ``queue_empty_ns``, without any such op.

    Work without a recorded launch counts from its own start.
    """
    start, launch = work["ts_ns"], work["launch_ts_ns"]
    since = pl.select(pl.min_horizontal(start, launch)).to_series().to_numpy()
    spans = Spans.of(since, work["end_ns"].to_numpy(), key=work["device"].to_numpy())
    begin, length = windows["ts_ns"].to_numpy(), windows["dur_ns"].to_numpy()
    frames = Spans.of(begin, begin + length, key=windows["device"].to_numpy())
    inside, _ = split(spans, frames)
    depth, used = (total(part, len(windows)) for part in (inside, union(inside)))
    return [pl.Series("queue_ns", depth), pl.Series("queue_empty_ns", length - used)]


def _graph_launches(trace: Trace, work: pl.DataFrame, windows: pl.DataFrame) -> Ints:
    """Graph launches of each window, each where its first work starts, or else where it is called.

    Where the whole recording is one window, it has them all.
    """
    calls = graph_calls(trace.table("launches"))
    first = (
        work.filter(pl.col("is_graph") & pl.col("correlation").is_not_null())
        .sort("ts_ns", maintain_order=True)
        .unique("correlation", keep="first", maintain_order=True)
        .select("correlation", "device", at_ns="ts_ns")
    )
    placed = calls.join(first, on="correlation", how="left").select(
        pl.coalesce("device", windows["device"].min()).alias("device").cast(pl.Int64),
        at_ns=pl.coalesce("at_ns", "ts_ns"),
    )
    begin = windows["ts_ns"].to_numpy()
    frames = Spans.of(begin, begin + windows["dur_ns"].to_numpy(), key=windows["device"].to_numpy())
    at = placed["at_ns"].to_numpy()
    if len(frames) and windows["step"].null_count() == len(windows):
        at = np.clip(at, frames.start.min(), frames.end.max() - 1)
    window = innermost(frames, placed["device"].fill_null(0).to_numpy(), at)
    return np.bincount(window[window >= 0], minlength=len(windows)).astype(np.int64)
