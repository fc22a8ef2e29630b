"""What NCCL's own NVTX payloads say: which communicator, how many bytes, which peer.

NCCL pushes a range per call, with a payload laid out by a schema that the report describes; exports hold the
payloads only when blobs were asked for. Schema numbers moved between NCCL releases, so fields are found by
their names. Source: NCCL's nvtx.h, and the payload chapter of NVIDIA's NVTX documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import schema
from traceview.enclosure import enclosing
from traceview.parsers._nsys_ids import matches
from traceview.parsers._nsys_ranges import NCCL_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traceview.parsers._nsys_export import Export

_HEADER_BYTES = 32  # domain, schema, payload size, payload offset: 64 bits each
_INT32, _UINT64, _SIZE = 5, 18, 22
_TYPES: Mapping[int, tuple[int, pl.DataType]] = {
    _INT32: (4, pl.Int32()),
    _UINT64: (8, pl.Int64()),
    _SIZE: (8, pl.Int64()),
}
_FIELDS = {
    "comm": "NCCL communicator ID",
    "bytes": "Message size [bytes]",
    "ranks": "No. of ranks",
    "rank": "Rank",
    "peer": "Peer rank",
}
_KEYS = ("pid", "tid")
_OPENS, _CLOSES = "GroupStart", "GroupEnd"
_SPARSEST = 16  # ranks per transfer: the lists stay in proportion to what a report really holds

_SHARES: Mapping[str, tuple[bool, bool]] = {
    "AllReduce": (False, False),
    "AllGather": (False, True),
    "ReduceScatter": (True, False),
    "Broadcast": (False, False),
    "Reduce": (False, False),
    "AlltoAll": (True, True),
}
"""By call: whether what a rank puts in, and what it gets out, is the message size once per rank."""


def calls(export: Export, ranges: pl.DataFrame) -> pl.DataFrame:
    """NCCL's ranges with the fields of their payloads, null where there is none.

    Returns:
        Rows of ``ranges`` in NCCL's domain, in order, with ``call`` (the name without ``nccl``) and int64
        ``comm, bytes, ranks, rank, peer``.
    """
    own = ranges.filter(pl.col("domain").cast(pl.String).str.to_uppercase() == NCCL_DOMAIN)
    header = pl.col("payload").bin
    told = own.with_columns(
        call=pl.col("name").cast(pl.String).str.strip_prefix("nccl"),
        schema_id=header.slice(8, 8).bin.reinterpret(dtype=pl.Int64, endianness="little"),
    )
    return told.with_columns(_field(field, _places(export, name)) for field, name in _FIELDS.items())


def _places(export: Export, name: str) -> list[tuple[int, int, int]]:
    """Schema, offset and type of the payload field ``name``; ids of NCCL's schemas agree in all processes."""
    entries = export.table("NVTX_PAYLOAD_SCHEMA_ENTRIES").filter(
        pl.col("name") == name, pl.col("type").is_in(list(_TYPES)), pl.col("schemaId").is_not_null()
    )
    # the first field of a schema is exported without its offset, which is 0
    found = entries.select("schemaId", pl.col("offset").fill_null(0), "type").unique("schemaId", keep="first")
    return found.rows()


def _field(field: str, places: list[tuple[int, int, int]]) -> pl.Expr:
    readings = [
        pl.when(pl.col("schema_id") == schema_id).then(_value(offset, *_TYPES[kind]))
        for schema_id, offset, kind in places
    ]
    return pl.coalesce(*readings, pl.lit(None, pl.Int64)).alias(field)


def _value(offset: int, width: int, dtype: pl.DataType) -> pl.Expr:
    raw = pl.col("payload").bin.slice(_HEADER_BYTES + offset, width)
    return raw.bin.reinterpret(dtype=dtype, endianness="little").cast(pl.Int64)


def communicators(found: pl.DataFrame) -> pl.DataFrame:
    """Communicators whose creation was recorded: ``comm, ranks, rank``, of one process."""
    created = found.drop_nulls(["comm", "ranks", "rank"])
    return created.select("comm", "ranks", "rank").unique("comm", keep="last", maintain_order=True)


def comm_calls(ops: pl.DataFrame, launches: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """`COMM_CALLS` of one process: NCCL kernels with what the call that launched them says.

    Sizes are bytes, so the element type is given as ``byte``, and what goes to each peer is counted in bytes.
    A kernel is left out when its call, or the group of calls around it, launched several.

    Args:
        ops: Device ops with ``op, kind, name, correlation``.
        launches: Host calls with ``pid, tid, ts_ns, correlation``.
        found: The result of `calls`, with ``ts_ns, dur_ns``.
    """
    exchanges = _exchanges(_grouped(found)).join(communicators(found), on="comm", how="left")
    nccl = ops.filter((pl.col("kind") == "kernel") & matches(ops["name"], "(?i)nccl")).drop_nulls(
        "correlation"
    )
    near = launches.filter(pl.col("correlation").is_in(nccl["correlation"].unique().implode()))
    first = near.sort("ts_ns").unique("correlation", keep="first")
    launched = nccl.select("op", "correlation").join(
        first.select("correlation", *_KEYS, "ts_ns"), on="correlation", how="inner"
    )
    row = enclosing(exchanges, launched, on=_KEYS)
    linked = launched.select("op", exchange=row).drop_nulls().filter(pl.len().over("exchange") == 1)
    told = linked.join(exchanges.with_row_index("exchange").cast({"exchange": pl.Int64}), on="exchange")
    return schema.COMM_CALLS.admit(_as_recorded(told).sort("op"))


def _grouped(found: pl.DataFrame) -> pl.DataFrame:
    """``found`` with ``group``: the same for calls that one ncclGroupEnd launches, and for that itself."""
    closes = pl.col("call") == _CLOSES
    step = (pl.col("call") == _OPENS).cast(pl.Int64) - closes.cast(pl.Int64)
    balance = step.cum_sum()
    # the report may begin inside of a group, whose end then opens nothing
    depth = balance - balance.cum_min().clip(upper_bound=0)
    ended = (closes & (depth == 0)).cast(pl.Int64)
    number = ended.cum_sum() - ended
    # a call outside of groups launches by itself
    alone = -1 - pl.int_range(pl.len())
    ordered = found.sort("ts_ns", maintain_order=True)
    return ordered.with_columns(group=pl.when((depth > 0) | closes).then(number).otherwise(alone).over(_KEYS))


def _exchanges(found: pl.DataFrame) -> pl.DataFrame:
    """One row per group of calls with sizes, in one communicator and of one kind.

    ``pid, tid, ts_ns, dur_ns`` is where it launches, ``kind`` the call, or null for sends and receives.
    """
    sized = pl.col("bytes").is_not_null()
    sends, receives = sized & (pl.col("call") == "Send"), sized & (pl.col("call") == "Recv")
    kind = pl.when(sized & ~sends & ~receives).then("call")
    per_group = found.group_by(*_KEYS, "group", maintain_order=True).agg(
        pl.col("ts_ns", "dur_ns").last(),
        comm=pl.col("comm").filter(sized).first(),
        comms=pl.col("comm").filter(sized).n_unique(),
        kind=kind.drop_nulls().first(),
        kinds=kind.fill_null("Send").filter(sized).n_unique(),
        message=pl.col("bytes").filter(sized & ~sends & ~receives).sum(),
        sent=pl.col("bytes").filter(sends),
        received=pl.col("bytes").filter(receives),
        sent_to=pl.col("peer").filter(sends),
        received_from=pl.col("peer").filter(receives),
    )
    return per_group.filter((pl.col("comms") == 1) & (pl.col("kinds") == 1))


def _as_recorded(told: pl.DataFrame) -> pl.DataFrame:
    """Exchanges with the columns of `COMM_CALLS`."""
    each_in, each_out = (
        pl.col("kind").replace_strict({kind: share[side] for kind, share in _SHARES.items()}, default=None)
        for side in (0, 1)
    )
    peers = pl.col("sent_to").list.n_unique().cast(pl.Int64)
    everyone = (peers == pl.col("ranks")) | ((peers == pl.col("ranks") - 1) & (pl.col("ranks") > 2))
    point_to_point = pl.col("kind").is_null()
    exchange = pl.when(everyone).then(pl.lit("all_to_all"))  # else any pattern of sends: left undecided
    sent, received = _per_peer(told, "sent_to", "sent"), _per_peer(told, "received_from", "received")
    listed = told.join(sent, on="exchange", how="left").join(received, on="exchange", how="left")
    return listed.with_columns(
        collective_name=pl.coalesce("kind", exchange),
        dtype=pl.lit("byte"),
        in_elements=pl.when(point_to_point).then(pl.col("sent").list.sum()).otherwise(_share(each_in)),
        out_elements=pl.when(point_to_point).then(pl.col("received").list.sum()).otherwise(_share(each_out)),
        in_splits="sent_per_peer",
        out_splits="received_per_peer",
        splits_complete=pl.when(pl.col("sent_per_peer").is_not_null()).then(pl.lit(value=True)),
        group_size="ranks",
        group_rank="rank",
        comm_id=pl.format("{}", pl.col("comm").reinterpret(signed=False)),
        source=pl.lit("host_op"),
    )


def _per_peer(told: pl.DataFrame, peers: str, sizes: str) -> pl.DataFrame:
    """``exchange, {sizes}_per_peer``: bytes by rank of the communicator, 0 where nothing was sent.

    Only exchanges with several peers, all of them in a known communicator. PyTorch leaves out the
    transfers of nothing, so a peer that is not named got nothing.
    """
    ends = (pl.col("sent_to"), pl.col("received_from"))
    inside = [pl.col("ranks") > pl.max_horizontal(pl.lit(-1), end.list.max()) for end in ends] + [
        pl.min_horizontal(pl.lit(0), end.list.min()) == 0 for end in ends
    ]
    named = [end.list.drop_nulls().list.len() == end.list.len() for end in ends]
    several = pl.max_horizontal(end.list.n_unique() for end in ends) > 1
    bounded = pl.col("ranks") <= _SPARSEST * pl.sum_horizontal(end.list.len().cast(pl.Int64) for end in ends)
    known = told.filter(pl.col("kind").is_null(), several, bounded, *inside, *named)
    moved = known.select("exchange", peer=peers, bytes=sizes).explode("peer", "bytes").drop_nulls("peer")
    sums = moved.group_by("exchange", "peer").agg(pl.col("bytes").sum())
    everyone = known.select("exchange", peer=pl.int_ranges("ranks", dtype=pl.Int64)).explode("peer")
    dense = everyone.join(sums, on=["exchange", "peer"], how="left", maintain_order="left")
    filled = dense.with_columns(pl.col("bytes").fill_null(0)).group_by("exchange", maintain_order=True)
    return filled.agg(pl.col("bytes").alias(f"{sizes}_per_peer"))


def _share(per_rank: pl.Expr) -> pl.Expr:
    return pl.when(per_rank).then(pl.col("message") * pl.col("ranks")).when(~per_rank).then("message")
