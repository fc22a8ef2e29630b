"""How long exchanges take, as whole distributions: what a median and a p99 leave out.

Parts, waiting and transfer are those of `traceview.analyzers._latency`; quantiles are interpolated linearly.
Only payload ops count: barriers and notifications move nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._exchanges import timed
from traceview.analyzers._latency import PARTIAL, collect, with_parts
from traceview.analyzers._latency_table import NONE
from traceview.contracts import Analysis
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options

QUANTILES = (*(percent / 100 for percent in range(100)), 0.995, 0.999, 1.0)
DEFAULT_GRAIN = ("collective", "role", "phase")
GRAINS = {name: (name,) for name in ("rank", "step", "layer", "phase", "role", "axis", "collective")}
_TEXTS = ("phase", "role", "axis", "collective")
_ALL = "all"
_MEASURES = ("dur_ns", "wait_ns", "transfer_ns")
_F64 = pl.Float64()

RESULT = Table(
    "latencies",
    "Quantiles of the durations of payload ops; one row per quantile.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are merged", nullable=True),
        "step": Column(pl.Int64(), "step; null when steps are merged, or not known", nullable=True),
        "layer": Column(pl.Int32(), "layer; null when layers are merged, or not known", nullable=True),
        "phase": Column(pl.String(), f"phase; {NONE} where there is none; null when merged", nullable=True),
        "role": Column(pl.String(), f"role; {NONE} where there is none; null when merged", nullable=True),
        "axis": Column(pl.String(), "parallelism axis; null when merged", nullable=True),
        "collective": Column(pl.String(), "kind of exchange; null when merged", nullable=True),
        "quantile": Column(_F64, "share of ops that take no longer, 0 to 1"),
        "op_count": Column(pl.Int64(), "payload ops behind the durations"),
        "split_count": Column(pl.Int64(), "of them, those of exchanges that every member recorded"),
        "dur_ns": Column(_F64, "duration, waiting included", "ns", nullable=True),
        "wait_ns": Column(_F64, "of `split_count` ops: waiting for the last rank", "ns", nullable=True),
        "transfer_ns": Column(_F64, "of the same ops: the rest, moving bytes", "ns", nullable=True),
    },
)


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT`: `QUANTILES` of each value of ``options.by``."""
    found = timed(partials)
    texts = pl.col(_TEXTS).cast(pl.String).fill_null(NONE)
    ops = with_parts(found.exchanges, found.clock.residual_p95_ns or 0).filter(pl.col("part") == "payload")
    keys = [_ALL, *options.columns(GRAINS)]
    curves = (
        ops.with_columns(texts, pl.lit(_ALL).alias(_ALL))
        .group_by(keys)
        .agg(
            *map(_quantiles, _MEASURES),
            op_count=pl.len().cast(pl.Int64),
            split_count=pl.col("wait_ns").count().cast(pl.Int64),
            quantile=pl.lit(list(QUANTILES), pl.List(_F64)).first(),
        )
    )
    rows = curves.explode("quantile", *_MEASURES)
    return RESULT.frame(rows).sort(*GRAINS, "quantile")


def _quantiles(measure: str) -> pl.Expr:
    """All `QUANTILES` of ``measure`` as one list."""
    return pl.concat_list(pl.col(measure).quantile(quantile, "linear") for quantile in QUANTILES).alias(
        measure
    )


ANALYSIS = Analysis(
    name="latencies",
    question="How are the durations of exchanges spread?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=collect,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
