"""NCCL and compute overlap as Nsight Systems' recipe counts it, beside the union of the same kernels.

The recipe ``nccl_gpu_overlap_trace`` sorts kernels by the prefix ``nccl`` of their name, everything else
being compute, and sums for each kernel its overlap with every single kernel of the other kind: two partners
at once count twice, and a percentage may exceed 100 %. Copies do not count. It knows no other transport than
NCCL.

The union beside it is the time in which some kernel of the one kind and some of the other run; traceview's
own figures (``overlap``) use unions and recognise communication of any library.

Source: NVIDIA Nsight Systems user guide, recipe nccl_gpu_overlap_trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers._placed import window_of
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Ints, Spans, covered, total, union
from traceview.schema import OPS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

KINDS = ("nccl", "compute")
_N, _KIND = pl.Int64(), pl.Enum(KINDS)
GRAINS = {"rank": ("rank", "device"), "name": ("name",)}
_KEYS, _ALL = ("rank", "device", "name"), "all"

RESULT = Table(
    "nsys_overlap",
    "Kernels of one kind under kernels of another, pair by pair and as unions.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "name": Column(OPS.columns["name"].dtype, OPS.columns["name"].doc, nullable=True),
        "kind": Column(_KIND, "these kernels: nccl (by name) or compute (all others)"),
        "other_kind": Column(_KIND, "the kernels they run beside"),
        "kernel_count": Column(_N, "kernels of the kind, launched in the steps or that start in the window"),
        "total_ns": Column(_N, "their summed durations", "ns"),
        "pair_ns": Column(
            _N, "overlap summed over pairs with kernels of the other kind, as the recipe does", "ns"
        ),
        "pair_share": Column(
            pl.Float64(),
            "pairs / total: the recipe's percentage, may exceed 1; null without time",
            nullable=True,
        ),
        "union_ns": Column(_N, "time in which some of these kernels run", "ns"),
        "union_overlap_ns": Column(
            _N,
            "of it, with some kernel of the other kind; null for one kind beside itself",
            "ns",
            nullable=True,
        ),
        "union_ratio": Column(
            pl.Float64(), "overlap / union of these kernels; null if unknown", nullable=True
        ),
    },
)
_SUMS = ("kernel_count", "total_ns", "pair_ns", "union_ns", "union_overlap_ns")
PARTIAL = RESULT.only(*_KEYS, "kind", "other_kind", *_SUMS)


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank: one row per device, kind, other kind and, if asked for, name."""
    asked = {"rank", "device", *options.columns(GRAINS)}
    keys = [*(name for name in _KEYS if name in asked), "kind"]
    ops = trace.table("ops").filter(pl.col("kind") == "kernel").drop("kind")
    is_nccl = pl.col("name").cast(pl.String).str.starts_with("nccl")
    kernels = ops.with_columns(
        kind=pl.when(is_nccl).then(pl.lit("nccl")).otherwise(pl.lit("compute")).cast(_KIND)
    )
    start = kernels["ts_ns"].to_numpy()
    spans = Spans.of(start, start + kernels["dur_ns"].to_numpy(), key=kernels["device"].to_numpy())
    rows = np.flatnonzero(window_of(kernels, windows(trace, options)) >= 0)
    own, own_spans = kernels[rows], spans.take(rows)
    labels = own.select(keys).unique(maintain_order=True).with_row_index("label")
    joined = own.select(keys).join(labels, on=keys, how="left", nulls_equal=True, maintain_order="left")
    running = union(Spans(joined["label"].cast(pl.Int64).to_numpy(), own_spans.start, own_spans.end))
    device = labels["device"].cast(pl.Int64).to_numpy()
    placed = Spans(device[running.key], running.start, running.end)
    parts = []
    for kind in KINDS:
        others = spans.take((kernels["kind"] == kind).to_numpy())
        pairs = _pairs(others, own_spans) - np.where(own["kind"] == kind, own_spans.durations(), 0)
        beside = Spans(running.key, np.zeros(len(running), np.int64), covered(others, placed))
        unions = labels.with_columns(
            pl.Series("union_ns", total(running, len(labels))),
            pl.Series("union_overlap_ns", total(beside, len(labels))),
        )
        sums = (
            own.with_columns(pl.Series("pair_ns", pairs))
            .group_by(keys)
            .agg(pl.col("pair_ns").sum(), kernel_count=pl.len(), total_ns=pl.col("dur_ns").sum())
        )
        found = sums.join(unions, on=keys, how="left", nulls_equal=True)
        parts.append(found.with_columns(other_kind=pl.lit(kind, _KIND)))
    told = pl.col("kind") != pl.col("other_kind")  # every kernel runs beside itself
    return PARTIAL.frame(pl.concat(parts).with_columns(pl.when(told).then("union_overlap_ns")))


def _pairs(others: Spans, query: Spans) -> Ints:
    """Summed overlap of each query span with every one of ``others`` on its device; itself included."""
    sums = np.zeros(len(query), np.int64)
    for device in np.unique(query.key):
        mine = np.flatnonzero(query.key == device)
        theirs = others.take(others.key == device)
        started, ended = _elapsed(theirs.start), _elapsed(theirs.end)

        def before(time: Ints, started: _Elapsed = started, ended: _Elapsed = ended) -> Ints:
            return _since(started, time) - _since(ended, time)

        sums[mine] = before(query.end[mine]) - before(query.start[mine])
    return sums


_Elapsed = tuple[Ints, Ints]  # instants, ascending, and their running sum


def _elapsed(instants: Ints) -> _Elapsed:
    ordered = np.sort(instants)
    return ordered, np.concatenate(([0], np.cumsum(ordered)))


def _since(elapsed: _Elapsed, time: Ints) -> Ints:
    """Time since all the instants before ``time``, summed; sums that wrap cancel out in a difference."""
    ordered, running = elapsed
    count = np.searchsorted(ordered, time)
    return count * time - running[count]


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``, kind and other kind."""
    asked = options.columns(GRAINS)
    keys = [*(name for name in _KEYS if name in asked), "kind", "other_kind"]
    told = pl.col("kind") != pl.col("other_kind")
    sums = (
        partials.group_by(keys).agg(pl.col(_SUMS).sum()).with_columns(pl.when(told).then("union_overlap_ns"))
    )
    rows = sums.with_columns(
        pair_share=ratio("pair_ns", "total_ns"), union_ratio=ratio("union_overlap_ns", "union_ns")
    )
    name = pl.col("name").cast(pl.String)
    return RESULT.frame(rows).sort("rank", "device", "kind", "other_kind", -pl.col("total_ns"), name)


ANALYSIS = Analysis(
    name="nsys_overlap",
    question="How much do NCCL and compute kernels overlap, as Nsight Systems' recipe counts it?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
