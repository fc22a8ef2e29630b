"""Why the device idles: whether the host is late, a dependency holds work back, or nobody recorded why.

Every ns in which nothing runs has exactly one cause; so has every ns in which no compute runs, where the
causes also say how much compute provably waits for communication. The causes and their thresholds are
defined in `_gaps`, the waits of the host in `_waits`, launch delays, queue and graphs in `_queue`. Rows add
up: ``idle_ns`` to that of `breakdown`, and ``no_compute_ns`` to window − compute, exactly.

Three notions stay apart. *Exposed* communication (`breakdown`) runs while no compute does. It is *blocking*
for as long as the compute that comes next had been launched, and starts at once when the communication ends.
The device is *launch-starved* while it idles since the host is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _gaps
from traceview.analyzers._gaps import CAUSES, HOST_CAUSES, with_trains
from traceview.analyzers._launched import launched
from traceview.analyzers._occupancy import COMPUTE, occupancy
from traceview.analyzers._queue import figures
from traceview.analyzers._ratios import ratio
from traceview.analyzers._waits import LABELS, REASONS, waits
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, innermost, split
from traceview.schema import OPS, OVERHEADS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

_NS, _RATIO = pl.Int64(), pl.Float64()
_WINDOW = ("rank", "device", "step")
_OP_LABELS = ("phase", "layer")
GRAINS = {
    "rank": ("rank", "device"),
    "step": ("step",),
    "cause": ("cause",),
    "sync": LABELS,
    "phase": ("phase",),
    "layer": ("layer",),
}
WAITS_KEPT = 64
"""Kinds of waits a window keeps apart, those that cost most; the others share a row."""
OTHERS = "(others)"

_GAP_SUMS = ("idle_ns", "host_late_ns", "no_compute_ns", "gap_count")
_WAIT_SUMS = ("sync_count", "sync_wait_ns")
_WINDOW_SUMS = (
    "window_ns",
    "busy_ns",
    "op_count",
    "launched_count",
    "queue_ns",
    "queue_empty_ns",
    "graph_launch_count",
    "graph_op_count",
    "graph_busy_ns",
    "opaque_count",
    "opaque_ns",
)
_DELAYS = ("delay_median_ns", "delay_p95_ns")
_NOT_BY_LABEL = "; null in rows of a cause, wait, phase or layer"


def _count(what: str) -> Column:
    return Column(_NS, f"{what}{_NOT_BY_LABEL}", nullable=True)


def _time(what: str) -> Column:
    return Column(_NS, f"{what}{_NOT_BY_LABEL}", "ns", nullable=True)


def _ratio(what: str) -> Column:
    return Column(_RATIO, f"{what}; null without any{_NOT_BY_LABEL}", nullable=True)


RESULT = Table(
    "idle",
    "Idle time of devices by cause, and how far hosts are ahead; idle_ns adds up to that of breakdown.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        "cause": Column(pl.Enum(CAUSES), "what the device waits for; null when summed", nullable=True),
        "sync": Column(
            pl.String(), "call in which the host waits; null for time no wait explains", nullable=True
        ),
        "reason": Column(pl.Enum(REASONS), "what the host waits for", nullable=True),
        "operator": Column(pl.String(), "operator around the wait", nullable=True),
        "range": Column(pl.String(), "innermost range around the wait", nullable=True),
        "follows": Column(pl.String(), "category of the work launched next", nullable=True),
        "phase": Column(OPS.columns["phase"].dtype, "phase of the op that ends the gap", nullable=True),
        "layer": Column(pl.Int32(), "layer of the op that ends the gap", nullable=True),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
        "idle_ns": Column(_NS, "nothing runs on the device", "ns"),
        "idle_ratio": Column(_RATIO, "idle / window; null for an empty window", nullable=True),
        "host_late_ns": Column(_NS, "of it, the device waits for the host", "ns"),
        "host_late_ratio": Column(_RATIO, "host late / window; null for an empty window", nullable=True),
        "no_compute_ns": Column(_NS, "no compute or fused kernel runs", "ns"),
        "gap_count": Column(_NS, "idle gaps; one with two causes counts for each"),
        "longest_ns": Column(_NS, "longest idle gap, or part of it with one cause", "ns"),
        "sync_count": Column(_NS, "waits of the host for the device"),
        "sync_wait_ns": Column(_NS, "their durations", "ns"),
        "copy_bytes": Column(
            _NS, "largest copy to the host waited for; null if none", "bytes", nullable=True
        ),
        "busy_ns": _time("something runs"),
        "op_count": _count("ops begun"),
        "launched_count": _count("of them, those with a recorded launch"),
        "delay_median_ns": Column(
            _RATIO,
            "start of a launching call to start of its first work: median; over several windows, "
            f"the median of theirs{_NOT_BY_LABEL}",
            "ns",
            nullable=True,
        ),
        "delay_p95_ns": Column(
            _RATIO, f"95th percentile, in the same way{_NOT_BY_LABEL}", "ns", nullable=True
        ),
        "queue_depth": Column(
            _RATIO, f"ops launched and not finished, mean over time{_NOT_BY_LABEL}", nullable=True
        ),
        "queue_empty_ns": _time("nothing is launched and unfinished"),
        "queue_empty_ratio": _ratio("the same over the time looked at"),
        "graph_launch_count": _count("graph launches"),
        "graph_op_count": _count("ops begun that a graph launch started"),
        "graph_op_ratio": _ratio("the same over ops begun"),
        "graph_busy_ns": _time("work of graphs runs"),
        "graph_busy_ratio": _ratio("the same over busy time"),
        "opaque_count": _count("graph replays recorded as one block, whose inside is not known"),
        "opaque_ns": _time("such blocks run"),
    },
)

PARTIAL = Table(
    "idle",
    "Per window: one row of its figures (`window_ns` is not null), rows of gaps and rows of waits by label.",
    {name: RESULT.columns[name] for name in (*_WINDOW, "cause", *LABELS, *_OP_LABELS)}
    | {
        name: Column(_NS, f"summed into {name}", "ns" if name.endswith("_ns") else None, nullable=True)
        for name in (*_GAP_SUMS, "longest_ns", *_WAIT_SUMS, *_WINDOW_SUMS)
    }
    | {"copy_bytes": RESULT.columns["copy_bytes"]}
    | {name: RESULT.columns[name] for name in _DELAYS},
)


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank.

    Raises:
        AssertionError: The causes do not add up to the idle time, which would be a bug here.
    """
    frames = windows(trace, options)
    work = launched(trace)
    found = occupancy(trace, frames)
    known = with_trains(waits(trace, work), work)
    overheads = trace.tables.get("overheads", OVERHEADS.empty())
    labels = ["cause", *LABELS, *(name for name in _OP_LABELS if name in options.by)]
    computes = work["class"].is_in(COMPUTE)
    by_op = work.select(name for name in _OP_LABELS if name in labels)
    idle = _in_windows(_gaps.idle(work, frames, known, overheads), frames, by_op)
    other = _in_windows(_gaps.busy_without(computes, work, frames, known, overheads), frames, by_op)
    gaps = pl.concat([idle.with_columns(idle_ns="no_compute_ns"), other], how="diagonal")
    _check(trace, gaps, frames, found.measure(found.busy), found.measure(found.compute))
    rows = [
        pl.concat(
            [frames.select(*_WINDOW, window_ns="dur_ns"), figures(trace, work, frames, found)],
            how="horizontal",
        ),
        _gap_rows(gaps, known, frames, labels),
        _wait_rows(known, frames),
    ]
    return PARTIAL.frame(_bounded(pl.concat(rows, how="diagonal_relaxed")))


def _in_windows(found: _gaps.Pieces, frames: pl.DataFrame, by_op: pl.DataFrame) -> pl.DataFrame:
    """Pieces of gaps by window, cause, wait and what labels ops.

    Returns:
        ``window, cause, wait`` (row), the columns of ``by_op``, ``no_compute_ns, gap_count, longest_ns``.
    """
    begin = frames["ts_ns"].to_numpy()
    within = Spans.of(begin, begin + frames["dur_ns"].to_numpy(), key=frames["device"].to_numpy())
    parts, row = split(found.spans, within)
    length = pl.col("no_compute_ns")
    cut = pl.DataFrame(
        {
            "window": parts.key,
            "cause": found.cause[row],
            "wait": found.wait[row],
            "no_compute_ns": parts.durations(),
        }
    )
    op = _rows(found.op[row])
    sums = (
        cut.with_columns(by_op[name].gather(op) for name in by_op.columns)
        .filter(length > 0)
        .group_by("window", "cause", "wait", *by_op.columns, maintain_order=True)
        .agg(length.sum(), gap_count=pl.len(), longest_ns=length.max())
    )
    return sums.with_columns(pl.Series(CAUSES, dtype=pl.Enum(CAUSES)).gather(sums["cause"]).alias("cause"))


def _rows(index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.Series:
    """Row numbers, null for -1."""
    rows = pl.Series("row", index)
    return rows.to_frame().select(pl.when(pl.col("row") >= 0).then("row")).to_series()


def _check(
    trace: Trace,
    gaps: pl.DataFrame,
    frames: pl.DataFrame,
    busy: np.ndarray[tuple[int], np.dtype[np.int64]],
    compute: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> None:
    """Makes sure that the causes add up in every window."""
    for name, taken in (("idle_ns", busy), ("no_compute_ns", compute)):
        sums = np.zeros(len(frames), np.int64)
        np.add.at(sums, gaps["window"].to_numpy(), gaps[name].fill_null(0).to_numpy())
        if (sums != frames["dur_ns"].to_numpy() - taken).any():
            message = f"the causes in {trace.facts.path} do not add up to {name}; this is a bug in traceview"
            raise AssertionError(message)


def _gap_rows(
    gaps: pl.DataFrame, known: pl.DataFrame, frames: pl.DataFrame, labels: list[str]
) -> pl.DataFrame:
    wait = _rows(gaps["wait"].to_numpy())
    named = gaps.with_columns(known[name].gather(wait) for name in LABELS)
    late = pl.col("idle_ns").filter(pl.col("cause").cast(pl.String).is_in(HOST_CAUSES)).sum()
    idle = pl.col("idle_ns").is_not_null()
    sums = named.group_by("window", *labels, maintain_order=True).agg(
        pl.col("idle_ns", "no_compute_ns").sum(),
        host_late_ns=late,
        gap_count=pl.col("gap_count").filter(idle).sum(),
        longest_ns=pl.col("longest_ns").filter(idle).max().fill_null(0),
    )
    return _of_windows(sums, frames)


def _wait_rows(known: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Waits by label, each in the last window begun before it returned, if it overlaps that window."""
    begin = frames["ts_ns"].to_numpy()
    until = begin + frames["dur_ns"].to_numpy()
    within = Spans.of(begin, until, key=frames["device"].to_numpy())
    device = known["device"].fill_null(-1).to_numpy().astype(np.int64)
    rows = np.flatnonzero(np.isin(device, frames["device"].to_numpy()))
    start, end = (known[name].to_numpy()[rows] for name in ("ts_ns", "end_ns"))
    window = innermost(within, device[rows], end)
    # one that returns after the last window has ended belongs to the window in which it began
    window = np.where(window >= 0, window, innermost(within, device[rows], start))
    placed = known[rows].with_columns(pl.Series("window", window)).filter(pl.col("window") >= 0)
    named = placed.with_columns(cause=pl.lit("host_blocked", pl.Enum(CAUSES)))
    sums = named.group_by("window", "cause", *LABELS, maintain_order=True).agg(
        sync_count=pl.len(),
        sync_wait_ns=(pl.col("end_ns") - pl.col("ts_ns")).sum(),
        copy_bytes=pl.col("copy_bytes").max(),
    )
    return _of_windows(sums, frames)


def _of_windows(sums: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    named = frames.select(*_WINDOW).with_row_index("window").with_columns(pl.col("window").cast(pl.Int64))
    return named.join(sums, on="window", how="inner").drop("window")


def _bounded(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with at most `WAITS_KEPT` kinds of waits of this rank, the rest as `OTHERS`."""
    if rows.select(LABELS).n_unique() <= WAITS_KEPT:
        return rows
    cost = rows.drop_nulls("sync").group_by(LABELS).agg(pl.col("idle_ns").sum(), pl.col("sync_wait_ns").sum())
    kept = (
        cost.sort("idle_ns", "sync_wait_ns", *LABELS, descending=True)
        .head(WAITS_KEPT)
        .select(*LABELS, is_kept=True)
    )
    marked = rows.join(kept, on=LABELS, how="left", nulls_equal=True, maintain_order="left")
    other = pl.col("sync").is_not_null() & pl.col("is_kept").is_null()
    first, *rest = LABELS
    return marked.with_columns(
        pl.when(other).then(pl.lit(OTHERS)).otherwise(first).alias(first),
        *(pl.when(~other).then(name).alias(name) for name in rest),
    ).drop("is_kept")


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``; windows without idle time have a row too."""
    keys = options.columns(GRAINS)
    spans = [name for name in keys if name in _WINDOW]
    rows = partials.with_columns(pl.lit(0).alias("all"))  # a group for "by nothing"
    is_window = pl.col("window_ns").is_not_null()
    totals = (
        rows.filter(is_window)
        .group_by("all", *spans)
        .agg(pl.col(_WINDOW_SUMS).sum(), *(pl.col(name).median() for name in _DELAYS), window_count=pl.len())
    )
    sums = (
        rows.filter(~is_window)
        .group_by("all", *keys)
        .agg(pl.col(*_GAP_SUMS, *_WAIT_SUMS).sum(), pl.col("longest_ns", "copy_bytes").max())
    )
    if len(spans) < len(keys):
        shared = totals.select("all", *spans, "window_ns", "window_count")
        joined = sums.join(shared, on=["all", *spans], how="left", nulls_equal=True)
    else:
        joined = _with_figures(totals.join(sums, on=["all", *spans], how="left", nulls_equal=True))
    zero = pl.col(*_GAP_SUMS, *_WAIT_SUMS, "longest_ns").fill_null(0)
    shares = joined.with_columns(zero).with_columns(
        idle_ratio=ratio("idle_ns", "window_ns"), host_late_ratio=ratio("host_late_ns", "window_ns")
    )
    names = [pl.col(name).cast(pl.String) for name in (*LABELS, "phase")]
    cost = (-pl.col("idle_ns"), -pl.col("no_compute_ns"))
    return RESULT.frame(shares).sort("rank", "device", "step", *cost, "cause", "layer", *names)


def _with_figures(totals: pl.DataFrame) -> pl.DataFrame:
    return totals.with_columns(
        queue_depth=ratio("queue_ns", "window_ns"),
        queue_empty_ratio=ratio("queue_empty_ns", "window_ns"),
        graph_op_ratio=ratio("graph_op_count", "op_count"),
        graph_busy_ratio=ratio("graph_busy_ns", "busy_ns"),
    )


ANALYSIS = Analysis(
    name="idle",
    question="Why does the device idle, and how far is the host ahead?",
    needs=("ops", "steps", "launches"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=_OP_LABELS,
)
