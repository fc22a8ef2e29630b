"""Copies and fills of device memory by kind: how many, how many bytes, how long, how fast.

A copy counts in the step it was launched in, with its whole duration and size. The rate is bytes over summed
durations, of those whose size was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _distribution
from traceview.analyzers._placed import window_of
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import OPS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

_N = pl.Int64()
LABELS = ("kind", "copy_kind", "layer", "phase", "module")
GRAINS = {
    "rank": ("rank", "device"),
    "step": ("step",),
    "kind": ("kind", "copy_kind"),
    "layer": ("layer",),
    "phase": ("phase",),
    "module": ("module",),
}
_SPANS, _ALL = ("rank", "device", "step"), "all"

RESULT = Table(
    "copies",
    "Copies and fills by kind: counts, bytes, durations, rates.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        **{name: Column(OPS.columns[name].dtype, OPS.columns[name].doc, nullable=True) for name in LABELS},
        "copy_count": Column(_N, "copies and fills launched in the steps, or that start in the window"),
        "total_ns": Column(_N, "their summed durations", "ns"),
        "bytes": Column(_N, "their bytes; null if none was recorded", "bytes", nullable=True),
        "unsized_count": Column(_N, "of them, those whose size was not recorded"),
        "gb_per_s": Column(pl.Float64(), "bytes over duration, decimal GB/s; null if unknown", nullable=True),
        "min_ns": Column(_N, "shortest", "ns", nullable=True),
        "max_ns": Column(_N, "longest", "ns", nullable=True),
        "min_bytes": Column(_N, "smallest", "bytes", nullable=True),
        "max_bytes": Column(_N, "largest", "bytes", nullable=True),
        **_distribution.result_columns("ns", "bytes", what="over all ranks"),
        "rank_count": Column(_N, "ranks with such a copy"),
    },
)
_SUMS = ("copy_count", "total_ns", "unsized_count", "sized_ns")
_EXTREMES = ("min_ns", "max_ns", "min_bytes", "max_bytes")
PARTIAL = Table(
    "copies",
    "Sums and distributions per device, step if asked for, and kind.",
    {name: RESULT.columns[name] for name in (*_SPANS, *LABELS, *_SUMS[:3], "bytes", *_EXTREMES)}
    | {"sized_ns": Column(_N, "durations of those of known size", "ns")}
    | _distribution.partial_columns("ns", "bytes"),
)


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    asked = {"rank", "device", *options.columns(GRAINS)}
    keys = [name for name in (*_SPANS, *LABELS) if name in asked]
    frames = windows(trace, options)
    ops = trace.table("ops").filter(pl.col("kind").is_in(["memcpy", "memset"]))
    window = window_of(ops, frames)
    inside = np.flatnonzero(window >= 0)
    rows = ops[inside].with_columns(frames["step"].gather(window[inside]))
    is_sized = pl.col("bytes").is_not_null()
    sums = rows.group_by(keys).agg(
        pl.col("bytes").filter(is_sized).sum(),
        copy_count=pl.len(),
        total_ns=pl.col("dur_ns").sum(),
        unsized_count=pl.col("bytes").null_count(),
        sized_ns=pl.col("dur_ns").filter(is_sized).sum(),
        min_ns=pl.col("dur_ns").min(),
        max_ns=pl.col("dur_ns").max(),
        min_bytes=pl.col("bytes").min(),
        max_bytes=pl.col("bytes").max(),
    )
    spread = _distribution.distributions(rows, keys, ns="dur_ns", bytes="bytes")
    return PARTIAL.frame(sums.join(spread, on=keys, how="left", nulls_equal=True))


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that has a copy; the longest sums come first."""
    asked = options.columns(GRAINS)
    keys = [_ALL, *(name for name in (*_SPANS, *LABELS) if name in asked)]
    rows = partials.with_columns(pl.lit(0).alias(_ALL))  # a group for "by nothing"
    sums = rows.group_by(keys).agg(
        pl.col(*_SUMS, "bytes").sum(),
        pl.col("min_ns", "min_bytes").min(),
        pl.col("max_ns", "max_bytes").max(),
        rank_count=pl.col("rank").n_unique(),
    )
    spread = _distribution.quantiles(rows, keys, "ns", "bytes")
    any_sized = pl.col("copy_count") > pl.col("unsized_count")
    figures = RESULT.frame(
        sums.join(spread, on=keys, how="left", nulls_equal=True).with_columns(
            gb_per_s=ratio("bytes", "sized_ns"), bytes=pl.when(any_sized).then("bytes")
        )
    )
    texts = [pl.col(name).cast(pl.String) for name in LABELS]
    return figures.sort("rank", "device", "step", -pl.col("total_ns"), *texts)


ANALYSIS = Analysis(
    name="copies",
    question="What do copies and fills of memory cost?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
