"""Arrivals: the exchanges of one rank, with what its device had done until each began and ended.

Work is carried as running totals and not as durations since some earlier op: which earlier op the ranks of
an instance have in common is known only when all of them are seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _pace
from traceview.analyzers._exchanges import EXCHANGES, collect
from traceview.analyzers._occupancy import COMPUTE
from traceview.intervals import Spans, covered
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options
    from traceview.trace import Trace

_I64 = pl.Int64()
TOTALS = {
    "compute": "compute",
    "active": "compute or communication",
    "busy": "work of any kind",
    "grouped": "grouped products",
}
"""Running totals of device time, each with what it counts."""

_EDGES = ("start", "end")
_LATEST = np.iinfo(np.int64).max

ARRIVALS = Table(
    "arrivals",
    "`exchanges` with what the device had done until each op (or window) began and ended; rows of windows "
    "also tell the compute time by family.",
    dict(EXCHANGES.columns)
    | {"launched_ns": Column(_I64, "end of the host call that launched the op", "ns", nullable=True)}
    | {
        f"{name}_until_{edge}_ns": Column(
            _I64, f"time of {doc} on the device before the {edge}", "ns", nullable=True
        )
        for name, doc in TOTALS.items()
        for edge in _EDGES
    }
    | {
        f"begun_until_{edge}": Column(
            _I64, f"compute ops of the step that the device had begun at the {edge}", nullable=True
        )
        for edge in _EDGES
    }
    | {"begun_in_step": Column(_I64, "compute ops of the step in all", nullable=True)}
    | _pace.COLUMNS,
)


def observe(trace: Trace, options: Options) -> pl.DataFrame:
    """`ARRIVALS` of one rank, within the windows asked for."""
    rows, ops = collect(trace, options), trace.table("ops")
    done = rows.with_columns(_totals(ops, rows) + _begun(ops, rows))
    is_op = pl.col("op").is_not_null()
    launched = done.filter(is_op).join(_launched(trace), on="op", how="left", maintain_order="left")
    looked_at = _pace.with_families(done.filter(~is_op), ops)
    return ARRIVALS.frame(pl.concat([launched, looked_at], how="diagonal_relaxed"))


def _launched(trace: Trace) -> pl.DataFrame:
    """``op, launched_ns`` of the ops whose launch was recorded."""
    returned = (
        trace.table("launches")
        .group_by("correlation", launch_ts_ns="ts_ns")
        .agg(launched_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max())
    )
    called = trace.table("ops").select("op", "correlation", "launch_ts_ns")
    return called.join(returned, on=["correlation", "launch_ts_ns"]).select("op", "launched_ns")


def _totals(ops: pl.DataFrame, rows: pl.DataFrame) -> list[pl.Series]:
    """Running totals of `TOTALS` at both edges of each row."""
    begin = ops["ts_ns"].to_numpy()
    spans = Spans.of(begin, begin + ops["dur_ns"].to_numpy(), key=ops["device"].to_numpy())
    kind = ops["class"].cast(pl.String)
    counted = {
        "compute": kind.is_in(COMPUTE),
        "active": kind.is_in([*COMPUTE, "comm"]),
        "busy": kind.is_not_null(),
        "grouped": ops["category"].cast(pl.String) == "grouped_gemm",
    }
    start = rows["ts_ns"].to_numpy()
    edges = np.concatenate([start, start + rows["dur_ns"].to_numpy()])
    origin = np.full(len(edges), begin.min() if len(begin) else 0, np.int64)
    until = Spans.of(origin, edges, key=np.tile(rows["device"].to_numpy(), len(_EDGES)))
    return [
        pl.Series(f"{name}_until_{edge}_ns", total)
        for name, mask in counted.items()
        for edge, total in zip(
            _EDGES, np.split(covered(spans.take(mask.to_numpy()), until), len(_EDGES)), strict=True
        )
    ]


def _begun(ops: pl.DataFrame, rows: pl.DataFrame) -> list[pl.Series]:
    """How far the rank was in the kernels of the step, at both edges of each row and in the end."""
    place = ("device", "step")
    no_step = pl.col("step").fill_null(-1)  # an asof join finds nothing for null keys
    compute = ops.filter(pl.col("class").cast(pl.String).is_in(COMPUTE)).with_columns(no_step).sort("ts_ns")
    counted = compute.select(*place, "ts_ns", begun=pl.int_range(1, pl.len() + 1).over(place))
    end = pl.col("ts_ns") + pl.col("dur_ns")
    instants = {"until_start": pl.col("ts_ns"), "until_end": end, "in_step": pl.lit(_LATEST)}
    return [
        rows.select(*place, ts_ns=instant)
        .with_columns(no_step)
        .with_row_index("row")
        .sort("ts_ns")
        .join_asof(counted, on="ts_ns", by=place, check_sortedness=False)
        .sort("row")
        .select(pl.col("begun").fill_null(0).alias(f"begun_{name}"))
        .to_series()
        for name, instant in instants.items()
    ]
