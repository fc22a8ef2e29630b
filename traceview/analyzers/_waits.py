"""Where the host waits for the device: which call, what for, in which operator and range, and what follows.

A *wait* is a call that returns only once device work is done: a stream, event, context or device
synchronisation, a blocking copy, or a copy to the host whose call lasted until the copy was done (pageable
memory, as in ``tensor.item()``). Of nested ones the outermost counts. A wait *stalls* if its process launches
nothing while it lasts: if another thread does, the device need not run dry.

What a wait is for is told by the last work its thread launched before it: a copy to the host of at most
`SCALAR_BYTES` is a ``scalar``; one of at most `COUNTS_BYTES` inside a MoE range, or followed by work that
exchanges or permutes tokens, carries ``token_counts``; any other copy to the host is a ``copy``; else the
host drains the queue (``drain``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from traceview.enclosure import enclosing
from traceview.schema import RANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.trace import Trace

SCALAR_BYTES = 8
"""A copy of no more than one number."""

COUNTS_BYTES = 16_384
"""A copy that can hold the rows per expert or per rank: 2,048 integers of 8 bytes."""

REASONS = ("token_counts", "scalar", "copy", "drain")
LABELS = ("sync", "reason", "operator", "range", "follows")
"""What tells waits apart in results."""

_BLOCKING = (
    r"^(?:cuda|hip)(?:Stream|Device|Event|Thread)Synchronize"
    r"|^cu(?:Stream|Event|Ctx)Synchronize"
    r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|WithStream)?(?:_ptsz|_ptds)?$"
    r"|^cuMemcpy(?:DtoH|HtoD|2D|3D)?(?:_v\d)?$"
)
_MOE_PARTS = ("moe", "router", "permute", "pre_dispatch", "dispatch", "expert", "combine")
_TOKEN_WORK = ("dispatch", "combine", "ep_sync", "all_to_all", "p2p_or_a2a", "route_permute", "grouped_gemm")
_THREAD = ("pid", "tid")


def waits(trace: Trace, work: pl.DataFrame) -> pl.DataFrame:
    """One row per wait of the host, by start.

    Args:
        trace: One rank.
        work: Its `launched` device work.

    Returns:
        ``pid, tid, ts_ns, end_ns, device`` (of the work launched next, else before), ``stalls``,
        ``copy_bytes`` (of the copy waited for) and `LABELS`.
    """
    calls = _outermost(_calls(trace.table("launches"), work))
    launches = work.drop_nulls("launch_ts_ns").sort("launch_ts_ns", maintain_order=True)
    placed = calls.with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    placed = _with_stall(placed, launches)
    placed = _with_neighbours(placed, launches)
    return _with_places(trace, placed).with_columns(reason=_reason()).drop("dur_ns")


def _calls(launches: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    copies = work.filter("is_blocking_copy").select("correlation").unique().with_columns(waits=True)
    named = pl.col("name").cast(pl.String).str.contains(_BLOCKING)
    marked = launches.join(copies, on="correlation", how="left", maintain_order="left")
    blocking = marked.filter(named | pl.col("waits").fill_null(value=False))
    return blocking.select(*_THREAD, "ts_ns", "dur_ns", sync="name").sort("ts_ns", -pl.col("dur_ns"))


def _outermost(calls: pl.DataFrame) -> pl.DataFrame:
    reach = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift(1).over(_THREAD)
    return calls.filter((pl.col("ts_ns") >= reach).fill_null(value=True))


def _asof(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: str,
    by: Sequence[str],
    strategy: Literal["backward", "forward"] = "backward",
) -> pl.DataFrame:
    """``left`` with the row of ``right`` launched last up to (or first from) the instant ``on``."""
    keys = [pl.col(name).fill_null(-1) for name in by]
    return (
        left.with_columns(keys)
        .sort(on, maintain_order=True)
        .join_asof(
            right.with_columns(keys),
            left_on=on,
            right_on="launch_ts_ns",
            by=list(by),
            strategy=strategy,
            check_sortedness=False,  # it cannot be checked within groups
        )
    )


def _with_stall(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Whether the last launch of the process before the return came before the wait, or is the wait."""
    starts = launches.select("launch_ts_ns", pid="launch_pid").with_columns(latest_ns="launch_ts_ns")
    last = calls.with_columns(last_ns=pl.col("end_ns") - 1)  # what is launched at the return is not within
    found = _asof(last, starts, "last_ns", ("pid",))
    stalls = (pl.col("latest_ns") <= pl.col("ts_ns")).fill_null(value=True)
    return found.with_columns(stalls=stalls).select(*calls.columns, "stalls")


def _with_neighbours(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    before = launches.select(
        "launch_ts_ns", "bytes", "copy_kind", pid="launch_pid", tid="launch_tid", device_before="device"
    )
    after = launches.select(
        "launch_ts_ns",
        pid="launch_pid",
        device_after="device",
        follows=pl.col("category").cast(pl.String),
        moves_tokens=pl.col("category").cast(pl.String).is_in(_TOKEN_WORK) | pl.col("role").is_not_null(),
    )
    found = _asof(calls, before, "ts_ns", _THREAD)
    found = _asof(found, after, "end_ns", ("pid",), "forward")
    to_host = pl.col("copy_kind").cast(pl.String) == "DtoH"
    return found.with_columns(
        copy_bytes=pl.when(to_host).then("bytes"), device=pl.coalesce("device_after", "device_before")
    ).select(*calls.columns, "device", "follows", "moves_tokens", "copy_bytes", to_host=to_host)


def _with_places(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The operator around each wait, the range around it, and the part of the model that range marks."""
    operators = trace.table("host_ops") if "host_ops" in trace.tables else None
    ranges = trace.table("ranges") if "ranges" in trace.tables else RANGES.empty()
    near = calls.with_columns(pl.col(_THREAD).cast(pl.Int64))
    named = ranges.filter(pl.col("kind") != "step")
    knowing = named.filter(pl.col("part").is_not_null())
    return calls.with_columns(
        operator=_operator(operators, near) if operators is not None else pl.lit(None, pl.String),
        range=_around(named, near, "name"),
        part=_around(knowing, near, "part"),
    )


def _operator(operators: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    waiting = operators.filter(pl.col("name").cast(pl.String).str.contains(r"^aten::(?:item|nonzero)\b"))
    inner = operators.filter(pl.col("name").cast(pl.String).str.starts_with("aten::_local_scalar_dense"))
    found = [
        frame["name"].gather(enclosing(frame, calls, on=_THREAD)).cast(pl.String).str.replace(", .*", "")
        for frame in (waiting, inner)
    ]
    return pl.select(pl.coalesce(*found)).to_series()


def _around(ranges: pl.DataFrame, calls: pl.DataFrame, column: str) -> pl.Series:
    """``column`` of the innermost range around each wait: on its thread, else on any of its process."""
    found = [
        ranges[column].gather(enclosing(ranges, calls, on=on)).cast(pl.String) for on in (_THREAD, ("pid",))
    ]
    return pl.select(pl.coalesce(*found)).to_series()


def _reason() -> pl.Expr:
    near_tokens = pl.col("part").is_in(_MOE_PARTS).fill_null(value=False) | pl.col("moves_tokens")
    size = pl.col("copy_bytes")
    return (
        pl.when(~pl.col("to_host").fill_null(value=False))
        .then(pl.lit("drain"))
        .when(size <= SCALAR_BYTES)
        .then(pl.lit("scalar"))
        .when((size <= COUNTS_BYTES) & near_tokens.fill_null(value=False))
        .then(pl.lit("token_counts"))
        .otherwise(pl.lit("copy"))
    )
