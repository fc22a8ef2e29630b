"""What `alltoall` and `collectives` share: how long exchanges take, and how fast the bytes move.

Three kinds of kernel are kept apart. *Payload* moves bytes between ranks. *Sync* (barriers, DeepEP's
notify) moves none: its time is waiting, and it never enters a bandwidth. *Local* parts of a transport copy
within the rank.

Of a complete instance, ``transfer = end − last arrival``, where ``end`` is the median end over its ranks.
Bandwidth is that of the transfer alone, since whatever lies before it is waiting:
``algbw = buffer / transfer``, ``busbw = busiest / transfer``. ``buffer`` is the largest buffer of a rank.
``busiest`` is what the busiest rank of an all-to-all sends to or receives from others; of other
collectives it is the buffer times the factor below. Rows give the median over their instances.

Source: nccl-tests, PERFORMANCE.md, for buffer sizes and factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import bandwidth
from traceview.analyzers import _exchanges
from traceview.analyzers._exchanges import EXCHANGES, scale_up_size, timed
from traceview.analyzers._latency_table import GRAINS, KEYS, NONE
from traceview.analyzers._ratios import ratio
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.contracts import Options
    from traceview.trace import Trace

ALL = "all"
_SPANS = ("rank", "step")
_TEXTS = ("phase", "role", "axis", "collective")
_NS_PER_S = 1e9

PARTIAL = Table(
    "exchanges",
    EXCHANGES.doc,
    dict(EXCHANGES.columns)
    | {
        "device_name": Column(pl.String(), "device as the profiler names it", nullable=True),
        "transport": Column(pl.String(), "expert-parallel transport, by the kernel's name", nullable=True),
        "near_count": Column(pl.Int64(), "members of the group in the own scale-up domain", nullable=True),
        "crosses": Column(pl.Boolean(), "whether the group leaves its scale-up domain", nullable=True),
    },
)


# --- map: one rank -----------------------------------------------------------------------------------


def collect(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank: its exchanges, and what their expected speed depends on."""
    domain = scale_up_size(trace)
    is_near = pl.element() // domain == (trace.facts.rank or 0) // domain
    name = pl.col("name").cast(pl.String)
    facts = (
        trace.table("collectives")
        .select("op", "group_ranks")
        .join(trace.table("ops").select("op", "name"), on="op", how="left")
        .select(
            "op",
            near_count=pl.col("group_ranks").list.eval(is_near.cast(pl.Int64)).list.sum(),
            transport=bandwidth.transport(name),
            name_crosses=bandwidth.crosses(name),
        )
    )
    rows = _exchanges.collect(trace, options).join(facts, on="op", how="left", maintain_order="left")
    known = pl.coalesce(pl.col("near_count") < pl.col("group_size"), "name_crosses")
    return PARTIAL.conform(
        rows.with_columns(device_name=pl.lit(trace.facts.device_name, pl.String), crosses=known)
    )


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(
    partials: pl.DataFrame, options: Options, *, table: Table, chosen: pl.Expr | None = None
) -> pl.DataFrame:
    """``table`` with one row per value of ``options.by``, of the exchanges ``chosen``."""
    keys = options.columns(GRAINS)
    found = timed(partials)
    kept = found.exchanges if chosen is None else found.exchanges.filter(chosen)
    ops = _with_bytes(with_parts(kept, found.clock.residual_p95_ns or 0))
    ops = bandwidth.with_expected(ops).with_columns(
        pl.lit(ALL).alias(ALL), pl.col(_TEXTS).cast(pl.String).fill_null(NONE)
    )
    by = [ALL, *keys]
    joined = ops.group_by(by).agg(**_op_measures())
    for more, on in (
        (_of_instances(ops, by), by),
        (_looked_at(found.windows, keys), [ALL, *(key for key in keys if key in _SPANS)]),
    ):
        joined = joined.join(more, on=on, how="left", nulls_equal=True)
    rows = joined.with_columns(
        pl.col("complete_count").fill_null(0),
        wait_ratio=ratio("wait_ns", pl.col("wait_ns") + pl.col("transfer_ns")),
        scale_up_bytes=pl.col("sent_bytes") - pl.col("scale_out_bytes"),
    )
    return table.frame(rows).sort(KEYS)


def with_parts(exchanges: pl.DataFrame, residual_ns: int) -> pl.DataFrame:
    """``exchanges`` with ``part``, times that only complete exchanges have, and their uncertainty."""
    subrole, complete = pl.col("subrole").cast(pl.String), pl.col("is_complete")
    is_sync = (subrole == "barrier").fill_null(value=False) | (pl.col("collective") == "barrier")
    part = (
        pl.when(is_sync)
        .then(pl.lit("sync"))
        .when(subrole == "local_epilogue")
        .then(pl.lit("local"))
        .otherwise(pl.lit("payload"))
    )
    is_spread = pl.col("host").n_unique().over("instance") > 1
    # the median of differences, since that of stamps would be rounded: float64 holds no epoch in ns
    after_last = (pl.col("end_ns") - pl.col("last_arrival_ns")).median().over("instance")
    transfer = after_last.clip(lower_bound=0).round().cast(pl.Int64)
    split = ("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns")
    return exchanges.with_columns(
        *(pl.when(complete).then(name).alias(name) for name in split),
        pl.col(_TEXTS).cast(pl.String),
        part=part,
        instance_transfer_ns=pl.when(complete).then(transfer),
        instance_uncertainty_ns=pl.when(complete).then(
            pl.when(is_spread).then(pl.lit(residual_ns, pl.Int64)).otherwise(0)
        ),
    )


def _with_bytes(ops: pl.DataFrame) -> pl.DataFrame:
    """``ops`` with sizes in the terms of nccl-tests: ``buffer_bytes, busiest_bytes, size_bytes``."""
    exchange, size = pl.col("collective") == "all_to_all", pl.col("group_size")
    buffer = pl.max_horizontal("in_bytes", "out_bytes")
    least = (buffer * _factor()).round().cast(pl.Int64)
    with_buffer = ops.with_columns(
        buffer_bytes=buffer,
        busiest_bytes=pl.when(exchange)
        .then(pl.max_horizontal("sent_bytes", "received_bytes"))
        .otherwise(least),
        far_ratio=bandwidth.far_ratio(),
        near_count=pl.when(size <= 1).then(size.cast(pl.Int64)).otherwise("near_count"),
    )
    known = ~exchange & pl.col("collective").is_in(_ALL_SEND) & pl.col("busiest_bytes").is_not_null()
    largest = pl.col("buffer_bytes").max().over("instance")
    return with_buffer.with_columns(
        sent_bytes=pl.when(known).then("busiest_bytes").otherwise("sent_bytes"),
        scale_out_bytes=pl.when(known & ~pl.col("crosses")).then(0).otherwise("scale_out_bytes"),
        bytes_method=pl.when(known).then(pl.lit("least")).otherwise(pl.col("bytes_method").cast(pl.String)),
        size_bytes=_power_of_two(
            pl.when(pl.col("instance").is_null()).then("buffer_bytes").otherwise(largest)
        ),
    )


_ALL_SEND = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives in which every rank sends the same, whatever the algorithm."""


def _factor() -> pl.Expr:
    """Bus over algorithm bandwidth: what a link must carry of each byte of the buffer."""
    n, kind = pl.col("group_size"), pl.col("collective")
    part = pl.when(n > 0).then((n - 1) / n)
    return (
        pl.when(kind == "all_reduce")
        .then(2 * part)
        .when(kind.is_in(["all_gather", "reduce_scatter", "gather", "scatter"]))
        .then(part)
        .when(kind.is_in(["broadcast", "reduce", "send_recv"]))
        .then(1.0)
    )


def _power_of_two(number: pl.Expr) -> pl.Expr:
    """The smallest power of two that is no less; 0 for 0."""
    bits = 64 - (number - 1).bitwise_leading_zeros().cast(pl.Int64)
    return pl.when(number > 0).then(pl.lit(2, pl.Int64).pow(bits)).when(number == 0).then(0)


def _op_measures() -> dict[str, pl.Expr]:
    """The measures that are sums or quantiles over ops."""
    part = pl.col("part")
    payload, sync = part == "payload", part == "sync"

    def known_sum(name: str) -> pl.Expr:
        values = pl.col(name).filter(payload)
        return pl.when(values.count() > 0).then(values.sum())

    def total(name: str) -> pl.Expr:
        values = pl.col(name).filter(payload)
        return pl.when((values.len() > 0) & (values.null_count() == 0)).then(values.sum())

    dur = pl.col("dur_ns").filter(payload)
    quantiles = {
        f"dur_p{percent}_ns": dur.quantile(percent / 100, "linear").round().cast(pl.Int64)
        for percent in (50, 90, 99)
    }
    method = pl.col("bytes_method").filter(payload)
    source = pl.col("expected_source").filter(payload).drop_nulls().unique().sort()
    rate = pl.col("buffer_bytes") / pl.col("dur_ns") * _NS_PER_S
    split = ("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns")
    return {
        "op_count": payload.sum().cast(pl.Int64),
        "instance_count": pl.col("instance").filter(payload).drop_nulls().n_unique().cast(pl.Int64),
        "dur_ns": dur.sum(),
        **quantiles,
        "dur_max_ns": dur.max(),
        **{name: known_sum(name) for name in split},
        "exposed_ns": pl.col("exposed_ns").filter(payload).sum(),
        "hidden_ns": pl.col("hidden_ns").filter(payload).sum(),
        "sync_count": sync.sum().cast(pl.Int64),
        "sync_ns": pl.col("dur_ns").filter(sync).sum(),
        "sync_exposed_ns": pl.col("exposed_ns").filter(sync).sum(),
        "local_ns": pl.col("dur_ns").filter(part == "local").sum(),
        "sent_bytes": total("sent_bytes"),
        "scale_out_bytes": total("scale_out_bytes"),
        "bytes_method": pl.when(method.null_count() == 0).then(
            pl.when(method.n_unique() > 1).then(pl.lit("mixed")).otherwise(method.first())
        ),
        "algbw_floor_bytes_per_s": rate.filter(payload & (pl.col("dur_ns") > 0)).median(),
        "expected_bytes_per_s": pl.col("expected_bytes_per_s").filter(payload).median(),
        "expected_source": pl.when(source.len() > 0).then(source.str.join("; ")),
    }


def _of_instances(ops: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The measures that are taken once per complete exchange, whatever its number of ranks."""
    complete = ops.filter((pl.col("part") == "payload") & pl.col("is_complete"))
    moved = pl.col("sent_bytes") + pl.col("received_bytes")
    exchanged = (pl.col("collective") == "all_to_all").all() & (moved.null_count() == 0) & (moved.mean() > 0)

    def largest(name: str) -> pl.Expr:
        return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).max())

    once = complete.group_by("instance").agg(
        pl.col("instance_transfer_ns", "instance_uncertainty_ns").first(),
        pl.col("expected_bytes_per_s").median(),
        shortest=pl.col("dur_ns").min(),
        buffer=largest("buffer_bytes"),
        busiest=largest("busiest_bytes"),
        imbalance=pl.when(exchanged).then(moved.max() / moved.mean()),
    )
    transfer = pl.col("instance_transfer_ns")
    resolved = pl.when(transfer > pl.col("instance_uncertainty_ns"))
    rated = once.with_columns(
        algbw=resolved.then(pl.col("buffer") / transfer * _NS_PER_S),
        busbw=resolved.then(pl.col("busiest") / transfer * _NS_PER_S),
    )
    # an exchange has a row per member here, and must count once
    members = complete.select(*by, "instance").unique()
    return (
        members.join(rated, on="instance")
        .group_by(by)
        .agg(
            complete_count=pl.len().cast(pl.Int64),
            transfer_p50_ns=transfer.median().round().cast(pl.Int64),
            transfer_max_ns=transfer.max(),
            shortest_ns=pl.col("shortest").sum(),
            bytes_imbalance=pl.col("imbalance").median(),
            algbw_bytes_per_s=pl.col("algbw").median(),
            busbw_bytes_per_s=pl.col("busbw").median(),
            expected_ratio=(pl.col("busbw") / pl.col("expected_bytes_per_s")).median(),
            uncertainty_ns=pl.col("instance_uncertainty_ns").max(),
        )
    )


def _looked_at(windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Number and length of the windows, by those keys that windows have."""
    spans = [key for key in keys if key in _SPANS]
    return (
        windows.with_columns(pl.lit(ALL).alias(ALL))
        .group_by(ALL, *spans)
        .agg(window_count=pl.len().cast(pl.Int64), window_ns=pl.col("dur_ns").sum())
    )
