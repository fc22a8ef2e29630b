"""How many SMs communication takes: blocks of its kernels over the SMs of the device.

A communication kernel polls and copies for as long as it runs, so each of its blocks keeps an SM, or a part
of one, from the compute it hides under. The share is that of blocks with an SM each, at most 1: an upper
bound where several blocks share one. Medians are weighted by time, over all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _distribution
from traceview.analyzers._placed import window_of
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import COLLECTIVE_OPS, OPS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

_N = pl.Int64()
LABELS = ("axis", "category", "role", "name")
GRAINS = {"rank": ("rank", "device")} | {label: (label,) for label in LABELS}
_SPANS, _ALL = ("rank", "device"), "all"

RESULT = Table(
    "sm_share",
    "Communication kernels by label: how many blocks they run, and which share of the SMs that is.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "axis": Column(COLLECTIVE_OPS.columns["axis"].dtype, "parallelism axis", nullable=True),
        **{
            name: Column(OPS.columns[name].dtype, OPS.columns[name].doc, nullable=True) for name in LABELS[1:]
        },
        "kernel_count": Column(_N, "communication kernels launched in the steps, or starting in the window"),
        "total_ns": Column(_N, "their summed durations", "ns"),
        "unknown_ns": Column(_N, "durations of those whose launch grid was not recorded", "ns"),
        "min_blocks": Column(_N, "fewest blocks; null if unknown", nullable=True),
        "median_blocks": Column(pl.Float64(), "median of blocks, weighted by time", nullable=True),
        "max_blocks": Column(_N, "most blocks; null if unknown", nullable=True),
        "sm_count": Column(_N, "SMs of the device; null if unknown, or if devices differ", nullable=True),
        "sm_ratio": Column(
            pl.Float64(), "median blocks over SMs, at most 1; null if either is unknown", nullable=True
        ),
    },
)
_SUMS = ("kernel_count", "total_ns", "unknown_ns")
PARTIAL = Table(
    "sm_share",
    "Sums per device and label, and how long which number of blocks ran.",
    {
        name: RESULT.columns[name]
        for name in (*_SPANS, *LABELS, *_SUMS, "min_blocks", "max_blocks", "sm_count")
    }
    | _distribution.partial_columns("blocks"),
)


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    asked = {"rank", "device", *options.columns(GRAINS)}
    keys = [name for name in (*_SPANS, *LABELS) if name in asked]
    ops = trace.table("ops").filter((pl.col("class") == "comm") & (pl.col("kind") == "kernel"))
    kernels = ops[np.flatnonzero(window_of(ops, windows(trace, options)) >= 0)]
    axes = trace.table("collectives").select("op", "axis").unique("op", keep="first")
    rows = kernels.join(axes, on="op", how="left", maintain_order="left")
    is_known = pl.col("grid_blocks") > 0
    sums = rows.group_by(keys).agg(
        kernel_count=pl.len(),
        total_ns=pl.col("dur_ns").sum(),
        unknown_ns=pl.col("dur_ns").filter(~is_known.fill_null(value=False)).sum(),
        min_blocks=pl.col("grid_blocks").filter(is_known).min(),
        max_blocks=pl.col("grid_blocks").filter(is_known).max(),
    )
    weights = (
        rows.filter(is_known)
        .group_by(*keys, "grid_blocks")
        .agg(pl.col("dur_ns").sum())
        .sort("grid_blocks")
        .group_by(keys, maintain_order=True)
        .agg(blocks_values="grid_blocks", blocks_counts="dur_ns", blocks_rounded=pl.lit(value=False))
    )
    joined = sums.join(weights, on=keys, how="left", nulls_equal=True)
    return PARTIAL.frame(joined.join(_sm_counts(trace), on="device", how="left"))


def _sm_counts(trace: Trace) -> pl.DataFrame:
    devices = trace.tables.get("devices")
    if devices is None:
        return pl.DataFrame(schema={"device": pl.Int32, "sm_count": pl.Int64})
    return devices.select("device", pl.col("sm_count").cast(_N)).unique("device", keep="first")


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that communicates; the longest sums come first."""
    asked = options.columns(GRAINS)
    keys = [_ALL, *(name for name in (*_SPANS, *LABELS) if name in asked)]
    rows = partials.with_columns(pl.lit(0).alias(_ALL))  # a group for "by nothing"
    one_count = (pl.col("sm_count").n_unique() == 1) & (pl.col("sm_count").first() > 0)
    sums = rows.group_by(keys).agg(
        pl.col(_SUMS).sum(),
        pl.col("min_blocks").min(),
        pl.col("max_blocks").max(),
        sm_count=pl.when(one_count).then(pl.col("sm_count").first()),
    )
    spread = _distribution.quantiles(rows, keys, "blocks")
    share = (pl.col("median_blocks") / pl.col("sm_count")).clip(upper_bound=1.0)
    joined = sums.join(spread, on=keys, how="left", nulls_equal=True).with_columns(sm_ratio=share)
    texts = [pl.col(name).cast(pl.String) for name in LABELS]
    return RESULT.frame(joined).sort("rank", "device", -pl.col("total_ns"), *texts)


ANALYSIS = Analysis(
    name="sm_share",
    question="How many SMs does communication take?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
