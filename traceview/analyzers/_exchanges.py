"""Exchanges: every communication op of every rank, matched over ranks and put on one clock.

`collect` is the map: one rank's communication ops, small enough that those of 1,024 ranks fit in memory.
`timed` is the common part of every reduce: instances, clocks, who arrived last, who waited how long.

Of an instance, ``wait = last arrival − own start`` and ``transfer = end − last arrival``: whoever arrives
last has the shortest kernel. Exposed time is attributed exclusively: the stretches in which this op alone
communicates and nothing computes; what several ops share is a figure of the window.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview import hardware, matching
from traceview.analyzers._clock_domains import clock_domains
from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._windows import windows
from traceview.intervals import Ints, Spans, covered, exclusive, gaps, split
from traceview.schema import COLLECTIVE_OPS, Column, Table

if TYPE_CHECKING:
    from traceview import clocks
    from traceview.analyzers._occupancy import Occupancy
    from traceview.contracts import Options
    from traceview.trace import Trace

_I64, _TIMES = pl.Int64(), pl.List(pl.Int64())
_CARRIED = (
    "op",
    "rank",
    "device",
    "step",
    "microbatch",
    "layer",
    "phase",
    "axis",
    "collective",
    "role",
    "subrole",
    "group_size",
    "seq",
    "ts_ns",
    "dur_ns",
    "in_bytes",
    "out_bytes",
    "resolved_by",
    "confidence",
)
_LARGEST_HOST = 8  # a domain larger than this spans hosts, whatever one host lists
BYTES_METHODS = ("exact", "even")
"""How off-rank bytes were found: from whole split lists, or by assuming that every peer gets the same."""

EXCHANGES = Table(
    "exchanges",
    "One row per communication op of a rank; and, with `op` null, one row per device and window.",
    {name: COLLECTIVE_OPS.columns[name] for name in _CARRIED}
    | {
        "op": Column(_I64, "row of the op in the rank's `ops`; null in the row of a window", nullable=True),
        "ts_ns": Column(_I64, "start of the op, or of the window", "ns"),
        "dur_ns": Column(_I64, "duration of the op, or of the window", "ns"),
        "host": Column(pl.String(), "host as recorded, else the node that the rank's number puts it on"),
        "is_host_known": Column(pl.Boolean(), "whether the host was recorded"),
        "node": Column(pl.Int32(), "scale-up domain (NVLink) by rank number"),
        "world_size": Column(pl.Int32(), "ranks of the job as recorded", nullable=True),
        "group_key": Column(pl.String(), "identity of the group over ranks", nullable=True),
        "sent_bytes": Column(_I64, "sent to other ranks: the own slice left out", "bytes", nullable=True),
        "received_bytes": Column(_I64, "received from other ranks", "bytes", nullable=True),
        "scale_out_bytes": Column(
            _I64, "of the sent ones, to other scale-up domains", "bytes", nullable=True
        ),
        "bytes_method": Column(pl.Enum(BYTES_METHODS), "how off-rank bytes were found", nullable=True),
        "hidden_ns": Column(_I64, "of the op, under compute", "ns", nullable=True),
        "alone_start_ns": Column(
            _TIMES, "starts of the stretches in which this op alone is exposed", "ns", nullable=True
        ),
        "alone_end_ns": Column(_TIMES, "their ends", "ns", nullable=True),
        "several_ns": Column(
            _I64,
            "exposed time of a window shared by ops, or of an op launched in a step not looked at",
            "ns",
            nullable=True,
        ),
    },
)


# --- map: one rank -----------------------------------------------------------------------------------


def collect(trace: Trace, options: Options) -> pl.DataFrame:
    """`EXCHANGES` of one rank, within the windows asked for."""
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    everything = trace.table("collectives")
    comm = everything
    if frames["step"].null_count() == 0:
        comm = comm.filter(pl.col("step").is_in(frames["step"].implode()))
    # alone means alone among all communication, also that of steps not looked at
    exposed = exposed_stretches(found, everything["op"])
    measured = comm.join(per_op(found, comm["op"], exposed), on="op", how="left", maintain_order="left")
    placed = _with_bytes(measured, trace)
    looked_at = frames.with_columns(pl.Series("several_ns", shared(found, comm["op"], exposed)))
    rows = pl.concat([placed, looked_at], how="diagonal_relaxed")
    return EXCHANGES.frame(
        rows.with_columns(
            host=pl.lit(trace.facts.host or f"node {_node(trace)}"),
            is_host_known=pl.lit(trace.facts.host is not None),
            node=pl.lit(_node(trace)),
            world_size=pl.lit(trace.facts.world_size, pl.Int32),
        )
    )


def exposed_stretches(found: Occupancy, ops: pl.Series) -> tuple[Spans, Ints]:
    """Exposed stretches of each window, and for each the op that alone is active (-1: several are)."""
    is_comm = np.isin(found.row, ops.to_numpy())
    pieces, op = found.pieces.take(is_comm), found.row[is_comm]
    names, label = np.unique(op, return_inverse=True)
    # labels are dense per window so that window × label stays small
    alone, code = exclusive(pieces, label.astype(np.int64), len(names)) if len(op) else (pieces, op)
    free = gaps(found.compute, found.windows)
    parts, origin = split(alone, free)
    window = alone.key[origin]
    return Spans(window, parts.start, parts.end), np.append(names, -1)[code[origin]]


def per_op(found: Occupancy, ops: pl.Series, exposed: tuple[Spans, Ints]) -> pl.DataFrame:
    """``op, hidden_ns, alone_start_ns, alone_end_ns``."""
    is_comm = np.isin(found.row, ops.to_numpy())
    hidden = covered(found.compute, found.pieces.take(is_comm))
    of_pieces = pl.DataFrame({"op": found.row[is_comm], "hidden_ns": hidden})
    parts, op = exposed
    alone = pl.DataFrame({"op": op, "alone_start_ns": parts.start, "alone_end_ns": parts.end})
    listed = alone.filter(pl.col("op") >= 0).group_by("op").agg("alone_start_ns", "alone_end_ns")
    return of_pieces.group_by("op").agg(pl.col("hidden_ns").sum()).join(listed, on="op", how="left")


def shared(found: Occupancy, ops: pl.Series, exposed: tuple[Spans, Ints]) -> Ints:
    """Exposed time of each window that is none of the ``ops``' own, ns."""
    parts, op = exposed
    return found.measure(parts.take(~np.isin(op, ops.to_numpy())))


def _node(trace: Trace) -> int:
    """Scale-up domain of the rank, by its number and the devices its host listed."""
    return (trace.facts.rank or 0) // scale_up_size(trace)


def scale_up_size(trace: Trace) -> int:
    """Ranks in one scale-up (NVLink) domain.

    Rack-scale systems by their name; else the devices the host listed; a rank that sees only its own device
    (one visible GPU per process is usual) is taken to sit in the reference system of that device.
    """
    device = hardware.of(trace.facts.device_name)
    by_name = device.link.scale_up_ranks if device and device.link else None
    listed = len(trace.table("devices")) if "devices" in trace.tables else 0
    if by_name is not None and (by_name > _LARGEST_HOST or listed <= 1):
        return by_name
    return max(listed, 1)


def _with_bytes(comm: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """``comm`` with the identity of its group, and off-rank bytes of its all-to-alls."""
    known = _groups(comm, trace.facts.rank or 0, scale_up_size(trace))
    keys = ("group_name", "group_desc", "comm_id", "group_size", "group_ranks")
    joined = comm.join(known, on=keys, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.coalesce("group_rank", "position").alias("position")
    )
    listed = {side: pl.col(f"{side}_splits") for side in ("in", "out")}
    whole = pl.col("position").is_not_null() & (listed["in"].list.len() == pl.col("group_size"))
    exchange = pl.col("collective") == "all_to_all"

    def off_rank(side: str) -> pl.Expr:
        total = pl.col(f"{side}_bytes")
        rows = listed[side].list.sum()
        mine = listed[side].list.get(pl.col("position"), null_on_oob=True)
        exact = total - total * mine // pl.when(rows > 0).then(rows).otherwise(1)
        even = total - total // pl.col("group_size")
        return pl.when(exchange & whole).then(exact).when(exchange).then(even)

    near = listed["in"].list.gather(pl.col("near"), null_on_oob=True).list.sum()
    rows = pl.when(listed["in"].list.sum() > 0).then(listed["in"].list.sum()).otherwise(1)
    far = pl.col("in_bytes") - pl.col("in_bytes") * near // rows
    even_far = pl.col("in_bytes") - pl.col("in_bytes") * pl.col("near").list.len() // pl.col("group_size")
    method = (
        pl.when(exchange & whole).then(pl.lit("exact")).when(exchange & (pl.col("in_bytes").is_not_null()))
    )
    # outside of all steps of a trace that has steps, occurrences cannot be counted
    lost = pl.col("step").is_null() & pl.col("seq").is_null() & pl.lit(len(trace.table("steps")) > 0)
    # a copy-engine exchange is a copy per peer; single copies have no counterpart on other ranks
    copies = trace.table("ops").filter(pl.col("kind") == "memcpy")["op"]
    lost |= pl.col("op").is_in(copies.implode())
    return joined.with_columns(
        group_key=pl.when(~lost).then("group_key"),
        sent_bytes=off_rank("in"),
        received_bytes=off_rank("out"),
        scale_out_bytes=pl.when(exchange & whole).then(far).when(exchange).then(even_far),
        bytes_method=method.then(pl.lit("even")),
    )


def _groups(comm: pl.DataFrame, rank: int, domain: int) -> pl.DataFrame:
    """The distinct groups of ``comm`` with ``group_key``, own ``position``, and who is ``near``."""
    keys = ("group_name", "group_desc", "comm_id", "group_size", "group_ranks")
    distinct = comm.select(keys).unique(maintain_order=True)
    found = [_identity(row, rank, domain) for row in distinct.iter_rows(named=True)]
    schema = pl.Schema({"group_key": pl.String(), "position": pl.Int64(), "near": pl.List(pl.Int64())})
    return distinct.hstack(pl.DataFrame(found, schema=schema, orient="row"))


def _identity(
    group: dict[str, object], rank: int, domain: int
) -> tuple[str | None, int | None, list[int] | None]:
    """Key, own position and positions within the own scale-up domain, of one group."""
    members = group["group_ranks"]
    label = "/".join(str(group[name]) for name in ("group_name", "group_desc") if group[name] is not None)
    if isinstance(members, list):
        digest = hashlib.sha256(repr(sorted(members)).encode()).hexdigest()[:12]
        near = [place for place, member in enumerate(members) if member // domain == rank // domain]
        return f"{label}:{digest}", members.index(rank) if rank in members else None, near
    if group["comm_id"] is not None:
        return f"comm:{group['comm_id']}", None, None
    # nothing but a name: taken as one group over all ranks, which the instance count then has to bear out
    return (f"{label}:?{group['group_size']}", None, None)


# --- reduce: all ranks -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    """All ranks' exchanges on one clock.

    Attributes:
        exchanges: Rows of ops, plus ``instance`` (null: unmatched), ``is_complete`` (all members present),
            ``start_ns, end_ns`` (common clock), ``last_arrival_ns, last_rank`` (null for a tie within the
            residual), ``wait_ns, transfer_ns``, ``exposed_ns, exposed_wait_ns, exposed_transfer_ns``.
        windows: The rows of windows.
        clock: The fit.
    """

    exchanges: pl.DataFrame
    windows: pl.DataFrame
    clock: clocks.ClockFit


def timed(partials: pl.DataFrame) -> Timed:
    """Matches, aligns and times the exchanges of all ranks."""
    is_window = pl.col("op").is_null()
    matched = matching.with_instance(partials.filter(~is_window))
    domains, clock = clock_domains(partials, matched)
    placed, windows = (
        frame.drop("host").join(domains, on="rank", how="left", maintain_order="left")
        for frame in (matched, partials.filter(is_window))
    )
    aligned = placed.join(clock.corrections, on="host", how="left", maintain_order="left").with_columns(
        start_ns=clock.aligned("ts_ns")
    )
    aligned = aligned.with_columns(
        shift_ns=pl.col("start_ns") - pl.col("ts_ns"), end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    return Timed(_with_waits(_with_arrivals(aligned, clock)), windows, clock)


def _with_arrivals(aligned: pl.DataFrame, clock: clocks.ClockFit) -> pl.DataFrame:
    """Who of each complete instance arrived last, and when it ended."""
    within = "instance"
    members = pl.len().over(within)
    # a group of unknown size may have any rank of the job in it: it is whole only when all are here
    expected = pl.coalesce("group_size", "world_size", members).max().over(within)
    one_clock = pl.col("component").n_unique().over(within) == 1
    complete = pl.col("instance").is_not_null() & (members == expected) & one_clock & (members > 1)
    ranked = aligned.with_columns(is_complete=complete)
    last = pl.col("start_ns").max().over(within)
    runner_up = pl.col("start_ns").top_k(2).min().over(within)
    # on one host the clocks are one: a lead of any size is real; across hosts it must exceed the residual
    uncertainty = (
        pl.when(pl.col("host").n_unique().over(within) > 1).then(clock.residual_p95_ns or 0).otherwise(0)
    )
    tie = last - runner_up <= uncertainty
    last_rank = pl.col("rank").sort_by("start_ns").last().over(within)
    return ranked.with_columns(
        last_arrival_ns=pl.when("is_complete").then(last),
        last_rank=pl.when(pl.col("is_complete") & ~tie).then(last_rank),
        # the median of differences: a float64 median of epoch stamps would be rounded to 256 ns
        instance_end_ns=pl.when("is_complete").then(
            last + (pl.col("end_ns") - last).median().over(within).round().cast(pl.Int64)
        ),
    )


def _with_waits(ranked: pl.DataFrame) -> pl.DataFrame:
    """Waiting and transferring apart, whole and exposed."""
    # a rank whose op ended before the last arrival (a misjudged clock, a torn exchange) waited all along
    ahead = pl.min_horizontal(pl.col("last_arrival_ns") - pl.col("start_ns"), "dur_ns")
    wait = pl.when(pl.col("last_arrival_ns").is_not_null()).then(ahead)
    turn = pl.col("last_arrival_ns") - pl.col("shift_ns")  # the last arrival on the rank's own clock
    with_turn = ranked.with_row_index("row").with_columns(
        wait_ns=wait, transfer_ns=pl.col("dur_ns") - wait, turn_ns=turn
    )
    stretches = (
        with_turn.select("row", "turn_ns", "alone_start_ns", "alone_end_ns")
        .drop_nulls("alone_start_ns")
        .explode("alone_start_ns", "alone_end_ns")
    )
    length = pl.col("alone_end_ns") - pl.col("alone_start_ns")
    before = (pl.min_horizontal("alone_end_ns", "turn_ns") - pl.col("alone_start_ns")).clip(lower_bound=0)
    exposed = stretches.group_by("row").agg(
        exposed_ns=length.sum(),
        exposed_wait_ns=pl.when(pl.col("turn_ns").is_not_null()).then(before).sum(),
    )
    joined = with_turn.join(exposed, on="row", how="left", maintain_order="left").with_columns(
        pl.col("exposed_ns", "exposed_wait_ns").fill_null(0)
    )
    unknown = pl.col("turn_ns").is_null()
    return joined.with_columns(
        exposed_wait_ns=pl.when(~unknown).then("exposed_wait_ns"),
        exposed_transfer_ns=pl.when(~unknown).then(pl.col("exposed_ns") - pl.col("exposed_wait_ns")),
    ).drop("row", "turn_ns", "alone_start_ns", "alone_end_ns")
