"""Which axes communicate at once, in the exposed time that several ops share and that so belongs to none.

The ledger has one row for that time. Here it is told apart by the set of axes with an op in progress, at
every moment; a set of one axis means that several of its ops run at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers._exchanges import exposed_stretches
from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import difference, intersection, union
from traceview.schema import AXES, Column, Table

if TYPE_CHECKING:
    from traceview.analyzers._occupancy import Occupancy
    from traceview.intervals import Spans
    from traceview.trace import Trace

JOINED = "+"
_NS = pl.Int64()
_WINDOW = ("rank", "device", "step")

RESULT = Table(
    "several",
    "Exposed time in which several ops communicate, by the set of axes that do.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(_NS, "step; null for the whole window or when steps are summed", nullable=True),
        "axes": Column(pl.String(), f"axes with an op in progress, joined by '{JOINED}'"),
        "time_ns": Column(_NS, "time in which exactly these are, and nothing computes", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
    },
)
PARTIAL = Table(
    "several_partial",
    "One row per window and set of axes; and, with `axes` null, one row per window.",
    {
        **{name: RESULT.columns[name] for name in _WINDOW},
        "axes": Column(
            pl.String(), "axes with an op in progress; null in the row of a window", nullable=True
        ),
        "time_ns": RESULT.columns["time_ns"],
    },
)
GRAINS = {"rank": ("rank", "device"), "step": ("step",)}


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    comm = trace.table("collectives").select("op", "axis")
    parts, op = exposed_stretches(found, comm["op"])
    looked_at = frames.select(_WINDOW).with_columns(time_ns=pl.lit(0, _NS))
    shared = [
        frames.select(_WINDOW).with_columns(
            pl.Series("time_ns", found.measure(spans)), axes=pl.lit(JOINED.join(axes))
        )
        for axes, spans in _by_axes(parts.take(op == -1), found, comm).items()
    ]
    rows = [frame.filter(pl.col("time_ns") > 0) for frame in shared]
    return PARTIAL.frame(pl.concat([looked_at, *rows], how="diagonal"))


def _by_axes(shared: Spans, found: Occupancy, comm: pl.DataFrame) -> dict[tuple[str, ...], Spans]:
    """``shared`` time by the set of axes with an op in progress."""
    sets: dict[tuple[str, ...], Spans] = {(): shared}
    present = set(comm["axis"].cast(pl.String))
    for axis in (name for name in AXES if name in present):
        ops = comm.filter(pl.col("axis").cast(pl.String) == axis)["op"].to_numpy()
        active = union(found.pieces.take(np.isin(found.row, ops)))
        sets = {
            key: spans
            for axes, before in sets.items()
            for key, spans in (
                (axes, difference(before, active)),
                ((*axes, axis), intersection(before, active)),
            )
            if len(spans)
        }
    return sets


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` by ``options.by``; no row where nothing is shared."""
    keys = ["everything", *options.columns(GRAINS)]
    entries = partials.with_columns(everything=pl.lit(0))
    looked_at = entries.filter(pl.col("axes").is_null()).group_by(keys).agg(window_count=pl.len())
    sums = entries.drop_nulls("axes").group_by(*keys, "axes").agg(pl.col("time_ns").sum())
    rows = sums.join(looked_at, on=keys, how="left", nulls_equal=True)
    return RESULT.frame(rows).sort(*_WINDOW, "axes", nulls_last=True)


ANALYSIS = Analysis(
    name="several",
    question="Which axes communicate at once, where nothing hides them?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
