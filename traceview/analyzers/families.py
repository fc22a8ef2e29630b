"""What device work there is, in words that two runs share: how much of each family, and for whom.

A family is a kernel's category, or, for communication, the collective, whatever library carries it: so the
dispatch of one transport meets that of another. Durations are summed, not united: two kernels at once count
twice, and nothing here adds up to the step. An op counts in the step that launched it, or, where there are no
steps, in the window it starts in; copies and opaque graphs are ops like kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import AXES, COLLECTIVE_OPS, OPS, ROLES, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

_NS = pl.Int64()
_SPANS = ("rank", "device", "step")
GRAINS = {
    "rank": ("rank", "device"),
    "step": ("step",),
    "family": ("family", "axis", "role"),
    "phase": ("phase",),
    "layer": ("layer",),
    "kernel": ("family", "name"),
    "group": ("axis", "role", "group_size", "dtype"),
}
LABELS = ("family", "axis", "role", "phase", "layer", "name", "group_size", "dtype")

RESULT = Table(
    "families",
    "Device work by family: how many ops, and their summed durations.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(_NS, "step; null for the whole window or when steps are summed", nullable=True),
        "family": Column(
            pl.String(), "category of a kernel or copy, collective of a communication op", nullable=True
        ),
        "axis": Column(pl.Enum(AXES), "parallelism axis of a communication op", nullable=True),
        "role": Column(pl.Enum(ROLES), "dispatch or combine", nullable=True),
        "phase": Column(OPS.columns["phase"].dtype, "phase of the step", nullable=True),
        "layer": Column(pl.Int32(), "layer", nullable=True),
        "name": Column(pl.String(), "name as the profiler wrote it", nullable=True),
        "group_size": Column(pl.Int32(), COLLECTIVE_OPS.columns["group_size"].doc, nullable=True),
        "dtype": Column(pl.String(), COLLECTIVE_OPS.columns["dtype"].doc, nullable=True),
        "op_count": Column(_NS, "pieces of device work"),
        "busy_ns": Column(_NS, "their summed durations", "ns"),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
    },
)
PARTIAL = Table(
    "families_partial",
    "Sums per device, window if asked for, and label; with `window_count`, what was looked at.",
    {name: RESULT.columns[name] for name in (*_SPANS, *LABELS, "op_count", "busy_ns")}
    | {
        name: Column(_NS, RESULT.columns[name].doc, RESULT.columns[name].unit, nullable=True)
        for name in ("window_ns", "window_count")
    },
)


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    keys = _keys(options)
    frames = windows(trace, options)
    ops = _labelled(trace)
    if frames["step"].null_count() == 0:  # also where there is no window at all
        placed = ops.join(frames.select("device", "step"), on=["device", "step"], how="semi")
    else:
        placed = ops.with_columns(step=pl.lit(None, _NS))
    sums = placed.group_by(keys).agg(op_count=pl.len(), busy_ns=pl.col("dur_ns").sum())
    spans = [name for name in keys if name in _SPANS]
    looked_at = frames.group_by(spans).agg(
        window_ns=pl.col("dur_ns").sum(), window_count=pl.len(), op_count=pl.lit(0), busy_ns=pl.lit(0)
    )
    return PARTIAL.frame(pl.concat([looked_at, sums], how="diagonal_relaxed"))


def _keys(options: Options) -> list[str]:
    """Grain of the partial: ranks and devices always, steps and labels if asked for."""
    return list(dict.fromkeys(["rank", "device", *options.columns(GRAINS)]))


def _labelled(trace: Trace) -> pl.DataFrame:
    """Every device op with its labels; what only communication has is null elsewhere."""
    known = trace.table("collectives").select("op", "collective", "axis", "role", "group_size", "dtype")
    ops = trace.table("ops").select(
        "op", "rank", "device", "step", "dur_ns", "category", "phase", "layer", "name"
    )
    category, collective = (pl.col(name).cast(pl.String) for name in ("category", "collective"))
    named = pl.when(collective == "unknown").then(pl.lit("comm_unknown")).otherwise(collective)
    joined = ops.join(known, on="op", how="left", maintain_order="left")
    return joined.with_columns(family=named.fill_null(category))


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that has device work."""
    keys = options.columns(GRAINS)
    spans = [name for name in keys if name in _SPANS]
    rows = partials.with_columns(pl.lit(0).alias("all"))  # a group for "by nothing"
    is_window = pl.col("window_count").is_not_null()
    totals = rows.filter(is_window).group_by("all", *spans).agg(pl.col("window_ns", "window_count").sum())
    sums = rows.filter(~is_window).group_by("all", *keys).agg(pl.col("op_count", "busy_ns").sum())
    joined = sums.join(totals, on=["all", *spans], how="left", nulls_equal=True)
    return RESULT.frame(joined).sort(*_SPANS, *LABELS, nulls_last=True)


ANALYSIS = Analysis(
    name="families",
    question="How much work of each kind does the device do?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
