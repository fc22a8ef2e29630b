"""How the clocks of the hosts differ: the correction of each rank, fitted to the ends of its collectives.

What the correction leaves over is the ± of every figure that compares ranks; see `traceview.clocks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import _exchanges
from traceview.analyzers._exchanges import EXCHANGES, collect
from traceview.contracts import Analysis
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options

_I64, _F64 = pl.Int64(), pl.Float64()

RESULT = Table(
    "clocks",
    "Correction of each rank's clock: a stamp t becomes t + offset + drift × (t − origin). Ranks of "
    "different components share no collective, and nothing can be said between them.",
    {
        "rank": Column(pl.Int32(), "global rank"),
        "offset_ns": Column(_F64, "to add, at the origin", "ns"),
        "drift_ppm": Column(_F64, "to add per million of time since the origin"),
        "origin_ns": Column(_I64, "stamp from which drift counts", "ns"),
        "component": Column(_I64, "hosts that share collectives, directly or not, have one number"),
        "residual_p50_ns": Column(_I64, "left after the fit, over the run: median", "ns", nullable=True),
        "residual_p95_ns": Column(_I64, "left after the fit, over the run: 95 %", "ns", nullable=True),
        "instance_count": Column(_I64, "collectives that were fitted, over the run"),
    },
)
GRAINS = {"rank": ("rank",)}


def summarize(partials: pl.DataFrame, _options: Options) -> pl.DataFrame:
    """`RESULT`, one row per rank, ordered by rank."""
    found = _exchanges.timed(partials)
    clock, hosts = found.clock, found.windows.select("rank", "host").unique()
    # a host without any collective was not fitted, and keeps its own clock
    alone = pl.col("component").max() + 1 + pl.col("rank")
    joined = hosts.join(clock.corrections, on="host", how="left").with_columns(
        pl.col("offset_ns", "drift_ppm").fill_null(0.0),
        component=pl.col("component").fill_null(alone.fill_null(pl.col("rank"))),
        origin_ns=pl.lit(clock.origin_ns, pl.Int64),
        residual_p50_ns=pl.lit(clock.residual_p50_ns, pl.Int64),
        residual_p95_ns=pl.lit(clock.residual_p95_ns, pl.Int64),
        instance_count=pl.lit(clock.instance_count, pl.Int64),
    )
    return RESULT.conform(joined).sort("rank")


ANALYSIS = Analysis(
    name="clocks",
    question="Are the hosts on one clock, and how exactly?",
    needs=("ops", "collectives", "steps"),
    partial=EXCHANGES,
    result=RESULT,
    map=collect,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
