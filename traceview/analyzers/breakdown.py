"""Where the step goes: compute, exposed communication, exposed copies, idle; they add up to the window.

Definitions, by interval unions per rank and device: compute = ∪ compute ∪ fused; comm = ∪ communication;
hidden = comm ∩ compute; exposed_comm = comm − compute; exposed_copy = copies − compute − comm;
idle = window − everything. A fused communication+compute kernel counts as compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

_NS = pl.Int64()
MEASURES = (
    "window_ns",
    "compute_ns",
    "comm_ns",
    "hidden_comm_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
    "idle_ns",
)

RESULT = Table(
    "breakdown",
    "Time of each rank and device by what the device was doing; window = compute + exposed_comm + "
    "exposed_copy + idle, exactly.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "compute_ns": Column(_NS, "some compute or fused kernel runs", "ns"),
        "comm_ns": Column(_NS, "some communication runs or waits", "ns"),
        "hidden_comm_ns": Column(_NS, "communication under compute", "ns"),
        "exposed_comm_ns": Column(_NS, "communication without compute", "ns"),
        "exposed_copy_ns": Column(_NS, "copies without compute or communication", "ns"),
        "idle_ns": Column(_NS, "nothing runs on the device", "ns"),
        "overlap_ratio": Column(pl.Float64(), "hidden / comm; null without communication", nullable=True),
        "exposed_comm_ratio": Column(
            pl.Float64(), "exposed / window; null for an empty window", nullable=True
        ),
        "window_count": Column(_NS, "windows (rank × device × step) summed in this row"),
    },
)
PARTIAL = RESULT.only("rank", "device", "step", *MEASURES)

GRAINS = {"rank": ("rank", "device"), "step": ("step",)}


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """One row per device and window of a rank.

    Raises:
        AssertionError: The parts do not add up to the window, which would be a bug here.
    """
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    window = frames["dur_ns"].to_numpy()
    compute, comm, busy = (found.measure(spans) for spans in (found.compute, found.comm, found.busy))
    exposed = found.measure(found.exposed)
    idle = window - busy
    copy = busy - compute - exposed  # what is neither compute nor communication is a copy
    if ((compute + exposed + copy + idle != window) | (copy < 0) | (idle < 0) | (exposed > comm)).any():
        message = f"breakdown of {trace.facts.path} does not add up; this is a bug in traceview"
        raise AssertionError(message)
    values = (window, compute, comm, comm - exposed, exposed, copy, idle)
    return PARTIAL.conform(
        frames.with_columns(pl.Series(name, v) for name, v in zip(MEASURES, values, strict=True))
    )


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``; everything is summed, so rows still add up."""
    keys = options.columns(GRAINS)
    sums = [pl.col(name).sum() for name in MEASURES]
    grouped = (
        partials.group_by(keys).agg(*sums, window_count=pl.len())
        if keys
        else partials.select(*sums, window_count=pl.len())
    )
    ratios = grouped.with_columns(
        overlap_ratio=ratio("hidden_comm_ns", "comm_ns"),
        exposed_comm_ratio=ratio("exposed_comm_ns", "window_ns"),
    )
    return RESULT.frame(ratios).sort("rank", "device", "step")


ANALYSIS = Analysis(
    name="breakdown",
    question="Where does the step go?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
