"""Who sends how many bytes to whom: all-to-alls by their split lists, transfers by their peer.

The own slice of an all-to-all is left out. Where the profiler cut the split lists short, every peer is taken
to get the same, and the row says so ("even"). Other collectives are left out: which ranks exchange bytes in
them is up to the library. Ops whose peers or bytes were not recorded are counted in rows without a peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._exchanges import scale_up_size
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis
from traceview.schema import AXES, ROLES, Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options
    from traceview.trace import Trace

DEFAULT_GRAIN = ("pair",)
METHODS = ("exact", "even", "mixed")
_I64, _I32 = pl.Int64(), pl.Int32()
_KEYS = ("rank", "peer", "node", "peer_node", "step", "axis", "role")

RESULT = Table(
    "traffic",
    "Bytes sent from rank to rank.",
    {
        "rank": Column(_I32, "rank that sends; null when summed over", nullable=True),
        "peer": Column(_I32, "rank that receives; null when summed over, or not recorded", nullable=True),
        "node": Column(_I32, "scale-up (NVLink) domain of the sender, by rank number", nullable=True),
        "peer_node": Column(_I32, "the same of the receiver; null likewise", nullable=True),
        "step": Column(_I64, "step; null when summed over, or not known", nullable=True),
        "axis": Column(pl.Enum(AXES), "parallelism axis; null when summed over", nullable=True),
        "role": Column(pl.Enum(ROLES), "dispatch, combine; null for neither, or summed over", nullable=True),
        "op_count": Column(_I64, "ops that send; one may send to several peers, and counts for each"),
        "sent_bytes": Column(_I64, "sent; null where it was not recorded", "bytes", nullable=True),
        "scale_up_bytes": Column(_I64, "of it within the scale-up domain", "bytes", nullable=True),
        "bytes_method": Column(
            pl.Enum(METHODS),
            "exact (recorded), even (every peer gets the same), mixed",
            nullable=True,
        ),
    },
)
PARTIAL = RESULT
GRAINS = {
    "pair": ("rank", "peer"),
    "rank": ("rank",),
    "peer": ("peer",),
    "node": ("node", "peer_node"),
    "step": ("step",),
    "axis": ("axis",),
    "role": ("role",),
}


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`RESULT` of one rank, in its finest grain."""
    frames, domain = windows(trace, options), scale_up_size(trace)
    comm = trace.table("collectives")
    if frames["step"].null_count() == 0:
        comm = comm.filter(pl.col("step").is_in(frames["step"].implode()))
    sends = pl.concat([_exchanged(comm), _sent(comm)])
    near = pl.col("node") == pl.col("peer_node")
    placed = sends.filter((pl.col("peer") != pl.col("rank")).fill_null(value=True)).with_columns(
        node=pl.col("rank") // domain, peer_node=pl.col("peer") // domain
    )
    sums = placed.group_by(_KEYS).agg(
        op_count=pl.len().cast(_I64),
        sent_bytes=_known_sum(pl.col("sent_bytes")),
        scale_up_bytes=_known_sum(pl.when(near).then("sent_bytes").otherwise(0)),
        bytes_method=_method(),
    )
    return PARTIAL.conform(_without_unknown(sums)).sort(_KEYS)


def _exchanged(comm: pl.DataFrame) -> pl.DataFrame:
    """A row per all-to-all and peer; without a peer where that is not known."""
    size, members, splits = pl.col("group_size"), pl.col("group_ranks"), pl.col("in_splits")
    rows = splits.list.sum()
    is_whole = (splits.list.len() == size) & pl.col("splits_complete").fill_null(value=True) & (rows > 0)
    is_listed = (members.list.len() == size) & pl.col("in_bytes").is_not_null()
    known = comm.filter(pl.col("collective") == "all_to_all").with_columns(
        is_whole=is_whole.fill_null(value=False), is_listed=is_listed.fill_null(value=False)
    )
    shares = (
        known.filter("is_listed")
        .with_columns(
            rows=pl.when("is_whole").then(splits).otherwise(members.list.eval(pl.lit(1, pl.Int64))),
            method=pl.when("is_whole").then(pl.lit("exact")).otherwise(pl.lit("even")),
        )
        .with_columns(total=pl.col("rows").list.sum())
        .explode("group_ranks", "rows")
    )
    listed = shares.select(
        "rank",
        pl.col("group_ranks").cast(_I32).alias("peer"),
        "step",
        "axis",
        "role",
        (pl.col("in_bytes") * pl.col("rows") // pl.col("total")).alias("sent_bytes"),
        "method",
    )
    return pl.concat([listed, _unknown(known.filter(~pl.col("is_listed")))])


def _sent(comm: pl.DataFrame) -> pl.DataFrame:
    """A row per transfer to a peer; those that only receive have none."""
    sends = comm.filter((pl.col("collective") == "send_recv") & pl.col("src_rank").is_null())
    is_known = pl.col("dst_rank").is_not_null() & pl.col("in_bytes").is_not_null()
    listed = sends.filter(is_known).select(
        "rank",
        pl.col("dst_rank").alias("peer"),
        "step",
        "axis",
        "role",
        sent_bytes="in_bytes",
        method=pl.lit("exact"),
    )
    return pl.concat([listed, _unknown(sends.filter(~is_known))])


def _unknown(ops: pl.DataFrame) -> pl.DataFrame:
    """Rows without peer and bytes."""
    nothing = {
        "peer": pl.lit(None, _I32),
        "sent_bytes": pl.lit(None, _I64),
        "method": pl.lit(None, pl.String),
    }
    return ops.with_columns(**nothing).select("rank", "peer", "step", "axis", "role", "sent_bytes", "method")


def _without_unknown(sums: pl.DataFrame) -> pl.DataFrame:
    """``sums`` with null instead of bytes where no peer is known."""
    known = pl.col("peer").is_not_null()
    names = ("sent_bytes", "scale_up_bytes", "bytes_method")
    return sums.with_columns(pl.when(known).then(name).alias(name) for name in names)


def _known_sum(values: pl.Expr) -> pl.Expr:
    return pl.when(values.count() > 0).then(values.sum())


def _method(column: str = "method") -> pl.Expr:
    found = pl.col(column).cast(pl.String).drop_nulls()
    return pl.when(found.n_unique() > 1).then(pl.lit("mixed")).otherwise(found.first()).cast(pl.Enum(METHODS))


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``; ops without a known peer have rows of their own."""
    keys = options.columns(GRAINS)
    recorded = pl.col("peer").is_not_null().alias("recorded")
    rows = (
        partials.group_by(recorded, *keys)
        .agg(
            pl.col("op_count").sum(),
            *(_known_sum(pl.col(name)).alias(name) for name in ("sent_bytes", "scale_up_bytes")),
            bytes_method=_method("bytes_method"),
        )
        .sort(*keys, "recorded", nulls_last=True)
    )
    return RESULT.frame(rows)


ANALYSIS = Analysis(
    name="traffic",
    question="Who sends how many bytes to whom?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
