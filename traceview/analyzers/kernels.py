"""Which kernels the device spends its time on: counts, sums and durations, by any label.

A kernel counts in the step it was launched in, with its whole duration, so that counts and statistics are of
whole kernels. Busy time is another measure: the union of the label's kernels inside the windows, so that two
kernels at once are one busy moment. ``busy_ratio`` compares it with the time in which anything runs, and
``sum_ratio`` the summed durations with those of all kernels; only the latter add up to 1 over the labels.

An opaque graph (category ``graph``) counts as one kernel, since nothing tells what runs inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _distribution
from traceview.analyzers._moe_parts import IS_MOE, PART, with_moe
from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._placed import RANGE, around_launch, window_of
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, total, union
from traceview.schema import OPS, Column, Table

if TYPE_CHECKING:
    from traceview.analyzers._occupancy import Occupancy
    from traceview.intervals import Ints
    from traceview.trace import Trace

_NS = pl.Int64()
LABELS = ("category", "name", "layer", "phase", "module", "range", "moe_part", "is_moe")
GRAINS = {"rank": ("rank", "device"), "step": ("step",)} | {label: (label,) for label in LABELS}
_SPANS, _ALL = ("rank", "device", "step"), "all"

RESULT = Table(
    "kernels",
    "Kernels by label: how many, how long, and which share of busy time.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        **{
            name: Column(OPS.columns[name].dtype, OPS.columns[name].doc, nullable=True)
            for name in ("category", "name", "layer", "phase", "module")
        },
        "range": RANGE,
        "moe_part": PART,
        "is_moe": IS_MOE,
        "kernel_count": Column(_NS, "kernels launched in the steps, or that start in the window"),
        "total_ns": Column(_NS, "their summed durations", "ns"),
        "sum_ratio": Column(
            pl.Float64(), "of the summed durations of all kernels; null if those are 0", nullable=True
        ),
        "busy_ns": Column(_NS, "time inside the windows in which one of them runs (union)", "ns"),
        "busy_ratio": Column(
            pl.Float64(),
            "of the time in which the device does anything; null if it never does",
            nullable=True,
        ),
        "window_ratio": Column(pl.Float64(), "busy / window; null for an empty window", nullable=True),
        "min_ns": Column(_NS, "shortest; null without a kernel", "ns", nullable=True),
        "max_ns": Column(_NS, "longest; null without a kernel", "ns", nullable=True),
        **_distribution.result_columns("ns", what="duration over all ranks"),
        "rank_count": Column(_NS, "ranks with such a kernel"),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
    },
)

_SUMS = ("kernel_count", "total_ns", "busy_ns")
PARTIAL = Table(
    "kernels",
    "Sums and a distribution per device, step if asked for, and label; with `window_ns`, what was looked at.",
    {name: RESULT.columns[name] for name in (*_SPANS, *LABELS, *_SUMS, "min_ns", "max_ns")}
    | _distribution.partial_columns("ns")
    | {
        "window_ns": Column(_NS, "time looked at; null in a row of kernels", "ns", nullable=True),
        "window_count": Column(_NS, "windows looked at; null in a row of kernels", nullable=True),
    },
)


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    asked = {"rank", "device", *options.columns(GRAINS)}
    labels = [name for name in LABELS if name in asked]
    keys = [*(name for name in _SPANS if name in asked), *labels]
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    ops = trace.table("ops")
    if asked & {"moe_part", "is_moe"}:
        ops = with_moe(ops)
    if "range" in labels:
        ops = ops.with_columns(around_launch(trace))
    kernels = ops.with_row_index("op_row").filter(pl.col("kind").is_in(["kernel", "graph"]))
    kernels = kernels.select("op_row", "device", "step", "ts_ns", "dur_ns", *labels)
    starting = _in_windows(kernels, window_of(kernels, frames), frames)
    sums = starting.group_by(keys).agg(
        kernel_count=pl.len(),
        total_ns=pl.col("dur_ns").sum(),
        min_ns=pl.col("dur_ns").min(),
        max_ns=pl.col("dur_ns").max(),
    )
    rows = _joined(_distribution.distributions(starting, keys, ns="dur_ns"), sums, keys)
    rows = rows.join(
        _busy(kernels, found, frames, keys), on=keys, how="full", nulls_equal=True, coalesce=True
    )
    looked_at = (
        frames.with_columns(pl.Series("busy_ns", found.measure(found.busy)))
        .group_by(name for name in keys if name in _SPANS)
        .agg(window_ns=pl.col("dur_ns").sum(), window_count=pl.len(), busy_ns=pl.col("busy_ns").sum())
    )
    whole = pl.concat([looked_at, rows], how="diagonal_relaxed")
    return PARTIAL.frame(whole.with_columns(pl.col(_SUMS).fill_null(0)))


def _in_windows(rows: pl.DataFrame, window: Ints, frames: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with their ``window``'s row, rank, device and step; those of no window (-1) are left out."""
    inside = np.flatnonzero(window >= 0)
    place = pl.Series("window", window[inside])
    return rows.drop("device", "step")[inside].hstack([place, *frames.select(_SPANS)[window[inside]]])


def _busy(kernels: pl.DataFrame, found: Occupancy, frames: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """``busy_ns`` by ``keys``: in each window the union of a label's kernels."""
    at = pl.DataFrame({"op_row": pl.Series(found.row, dtype=pl.UInt32), "window": found.pieces.key})
    parts = at.with_row_index("part").join(kernels, on="op_row", how="inner", maintain_order="left")
    labelled = _in_windows(parts.drop("window"), parts["window"].to_numpy(), frames)
    names = ["window", *keys]
    places = labelled.select(names).unique(maintain_order=True).with_row_index("place")
    place = labelled.join(places, on=names, how="left", nulls_equal=True, maintain_order="left")["place"]
    spans = found.pieces.take(labelled["part"].to_numpy())
    busy = union(Spans(place.cast(pl.Int64).to_numpy(), spans.start, spans.end))
    measured = places.with_columns(pl.Series("busy_ns", total(busy, len(places))))
    return measured.group_by(keys).agg(pl.col("busy_ns").sum())


def _joined(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return left.join(right, on=keys, how="left", nulls_equal=True)


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that has a kernel; the longest sums come first."""
    keys = [name for name in (*_SPANS, *LABELS) if name in options.columns(GRAINS)]
    spans = [name for name in keys if name in _SPANS]
    rows = partials.with_columns(pl.lit(0).alias(_ALL))  # a group for "by nothing"
    is_window = pl.col("window_ns").is_not_null()
    kernels, looked_at = rows.filter(~is_window), rows.filter(is_window)
    sums = kernels.group_by(_ALL, *keys).agg(
        pl.col(_SUMS).sum(),
        pl.col("min_ns").min(),
        pl.col("max_ns").max(),
        rank_count=pl.col("rank").filter(pl.col("kernel_count") > 0).n_unique(),
    )
    whole = looked_at.group_by(_ALL, *spans).agg(
        pl.col("window_ns", "window_count").sum(), all_busy_ns=pl.col("busy_ns").sum()
    )
    every = kernels.group_by(_ALL, *spans).agg(all_total_ns=pl.col("total_ns").sum())
    for other, on in (
        (whole, [_ALL, *spans]),
        (every, [_ALL, *spans]),
        (_distribution.quantiles(kernels, [_ALL, *keys], "ns"), [_ALL, *keys]),
    ):
        sums = _joined(sums, other, on)
    figures = RESULT.frame(
        sums.with_columns(
            sum_ratio=ratio("total_ns", "all_total_ns"),
            busy_ratio=ratio("busy_ns", "all_busy_ns"),
            window_ratio=ratio("busy_ns", "window_ns"),
        )
    )
    texts = [pl.col(name).cast(pl.String) for name in LABELS]
    return figures.sort("rank", "device", "step", -pl.col("total_ns"), *texts)


ANALYSIS = Analysis(
    name="kernels",
    question="Which kernels take the device's time?",
    needs=("ops", "launches", "ranges", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
