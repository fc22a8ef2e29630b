"""What of each kind of communication is hidden, what is exposed, and what is exposed because of it alone.

Exposed time is attributed exclusively: a moment in which communication of only one axis (or collective,
layer ...) runs belongs to it, a moment in which several do is a row of its own, "several". So
``exclusive_ns`` adds up to the exposed communication of `breakdown`, while ``exposed_ns`` of overlapping
kinds does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Ints, Spans, covered, exclusive, union
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

SEVERAL, NONE, ALL = "several", "none", "all"
MEASURES = ("comm_ns", "hidden_ns", "exposed_ns", "exclusive_ns")
_NS = pl.Int64()

RESULT = Table(
    "overlap",
    "Communication by kind: busy, hidden, exposed, and exclusively exposed time.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        "axis": Column(pl.String(), "parallelism axis", nullable=True),
        "collective": Column(pl.String(), "kind of exchange", nullable=True),
        "role": Column(pl.String(), "dispatch, combine, or none", nullable=True),
        "category": Column(pl.String(), "taxonomy category", nullable=True),
        "layer": Column(pl.String(), "layer", nullable=True),
        "phase": Column(pl.String(), "phase", nullable=True),
        "op_count": Column(_NS, "communication ops that run in the windows"),
        "comm_ns": Column(_NS, "time in which ops of this kind run (union)", "ns"),
        "hidden_ns": Column(_NS, "of it under compute", "ns"),
        "exposed_ns": Column(_NS, "of it without compute", "ns"),
        "exclusive_ns": Column(_NS, "exposed time in which only this kind runs", "ns"),
        "overlap_ratio": Column(pl.Float64(), "hidden / comm; null without communication", nullable=True),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
    },
)
LABELS = ("axis", "collective", "role", "category", "layer", "phase")
GRAINS = {"rank": ("rank", "device"), "step": ("step",)} | {label: (label,) for label in LABELS}
PARTIAL = RESULT.only("rank", "device", "step", *LABELS, "op_count", *MEASURES, "window_ns")


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """One row per device, window and label that occurs in the rank, "several" included."""
    labels = [label for label in LABELS if label in options.by]
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    names, code = _labels(trace, labels)
    piece_code = code[found.row]
    comm, label = found.pieces.take(piece_code >= 0), piece_code[piece_code >= 0]
    width = len(names)  # labels, and "several" as the last one
    cells = len(frames) * width

    def in_cells(window: Ints, label: Ints, values: Ints) -> Ints:
        sums = np.zeros(cells, np.int64)
        np.add.at(sums, window * width + label, values)
        return sums

    running = union(Spans(comm.key * width + label, comm.start, comm.end))
    window, running_label = np.divmod(running.key, width)
    running = Spans(window, running.start, running.end)
    alone, alone_label = exclusive(comm, label, width - 1)
    measures = {
        "op_count": in_cells(comm.key, label, np.ones(len(comm), np.int64)),
        "comm_ns": in_cells(running.key, running_label, running.durations()),
        "hidden_ns": in_cells(running.key, running_label, covered(found.compute, running)),
        "exclusive_ns": in_cells(alone.key, alone_label, alone.durations() - covered(found.compute, alone)),
    }
    grid = frames.select("rank", "device", "step", window_ns="dur_ns").join(
        names, how="cross", maintain_order="left_right"
    )
    rows = grid.with_columns(pl.Series(name, values) for name, values in measures.items())
    return PARTIAL.frame(rows.with_columns(exposed_ns=pl.col("comm_ns") - pl.col("hidden_ns")))


def _labels(trace: Trace, labels: list[str]) -> tuple[pl.DataFrame, Ints]:
    """The label rows that occur, "several" last; and for each device op its row (-1: no communication)."""
    category = trace.table("ops").select("op", "category")
    comm = trace.table("collectives").join(category, on="op", how="left", maintain_order="left")
    texts = [pl.col(label).cast(pl.String).fill_null(NONE) for label in labels]
    keyed = comm.select("op", *(texts or [pl.lit(ALL).alias("label")]))
    columns = keyed.columns[1:]
    names = keyed.select(columns).unique().sort(columns)
    code = keyed.join(names.with_row_index("code"), on=columns, how="left", maintain_order="left")["code"]
    of_op = np.full(len(category), -1, np.int64)
    of_op[keyed["op"].to_numpy()] = code.to_numpy()
    several = pl.DataFrame({column: [SEVERAL] for column in columns})
    return pl.concat([names, several]).select(labels or pl.all()), of_op


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``, the rows of "several" included where it occurs."""
    keys = options.columns(GRAINS)
    spans = [column for column in keys if column not in LABELS]
    rows = partials.with_columns(pl.lit(ALL).alias(ALL))  # a group for "by nothing"
    looked_at = rows.select("rank", "device", "step", "window_ns", ALL).unique()
    totals = looked_at.group_by(ALL, *spans).agg(pl.col("window_ns").sum(), window_count=pl.len())
    sums = [pl.col(name).sum() for name in ("op_count", *MEASURES)]
    joined = rows.group_by(ALL, *keys).agg(sums).join(totals, on=[ALL, *spans], how="left", nulls_equal=True)
    kept = joined.filter((pl.col("op_count") > 0) | (pl.col("exclusive_ns") > 0))
    return RESULT.frame(kept.with_columns(overlap_ratio=ratio("hidden_ns", "comm_ns"))).sort(
        "rank", "device", "step", *LABELS
    )


ANALYSIS = Analysis(
    name="overlap",
    question="Which communication is hidden, and which is exposed?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
