"""Whether communication can be hidden at all: the compute there is for it, against the time it needs.

Traces do not record what waits for what, so both ends of the time an exchange may take are assumed, on the
side that makes it shorter. It could start once it was launched and what ended last on the device before it
had ended: what it sends may come from any stream. It is due when a kernel waits for it: if nothing else
computes or communicates when it ends, and the next of the two to start is compute, that kernel is taken to
have waited. Otherwise nobody is seen to wait, and the slack is a lower bound that stops at its end.

An exchange is *hideable* where compute as long as its transfer runs within its slack, but for gaps between
kernels (`GAPS_SHARE`). It is *not* hideable, at any overlap setting, where all transfers of its kind in its
scope take longer than the compute there: that of the layer and phase for exchanges whose layer needs their
result (`LAYER_AXES`), that of the step for others. With several microbatches, or an unknown number, one may
hide under the backward of another, so the phases of a layer count together. What is neither is unknown: there
is compute, but the trace cannot tell whether it may run beside the exchange. Transfers count as recorded or,
where they are not known, as what `traceview.bandwidth` expects of the hardware for the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from traceview import bandwidth
from traceview.analyzers._exchanges import EXCHANGES, collect, scale_up_size, timed
from traceview.analyzers._occupancy import COMPUTE
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, covered, total, union
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.analyzers._exchanges import Timed
    from traceview.trace import Trace

LAYER_AXES = ("ep", "tp", "etp", "cp")
"""Axes whose exchanges feed the layer that makes them; gradients and parameters may wait for longer."""

GAPS_SHARE = 0.05
"""Share of a transfer that may be without compute and still count as hidden: kernels never touch."""

KIND = ("axis", "collective", "role")
_NS, _RATE, _PER_S = pl.Int64(), pl.Float64(), 1e9
GRAINS = {"rank": ("rank", "device"), "step": ("step",)} | {
    label: (label,) for label in (*KIND, "phase", "layer")
}

PARTIAL = Table(
    "hideability",
    "`EXCHANGES`, and the compute each op may hide under.",
    {
        **EXCHANGES.columns,
        "slack_ns": Column(_NS, "from when it could start to the first waiting kernel", "ns", nullable=True),
        "has_consumer": Column(pl.Boolean(), "a kernel is seen to wait for it", nullable=True),
        "slack_compute_ns": Column(_NS, "compute within the slack", "ns", nullable=True),
        "scope": Column(_NS, "number of its scope within the rank", nullable=True),
        "scope_compute_ns": Column(
            _NS, "compute of its scope; null where its layer or phase is unknown", "ns", nullable=True
        ),
        "expected_bytes_per_s": Column(_RATE, "bandwidth to expect", "bytes/s", nullable=True),
    },
)

RESULT = Table(
    "hideability",
    "Communication by kind: the time it needs, the compute it has, and whether that can hide it.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        **{
            name: Column(EXCHANGES.columns[name].dtype, EXCHANGES.columns[name].doc, nullable=True)
            for name in (*KIND, "phase", "layer")
        },
        "exchange_count": Column(_NS, "communication ops"),
        "hideable_count": Column(_NS, "of them, those with enough compute within their slack"),
        "unhideable_count": Column(_NS, "of them, those with less compute in their scope than they need"),
        "out_of_reach_count": Column(_NS, "of the unhideable, those that are so even at expected bandwidth"),
        "hideable": Column(
            pl.Boolean(), "all are; false: more than half cannot be; null: neither is known", nullable=True
        ),
        "dur_ns": Column(_NS, "durations, waiting included", "ns"),
        "hidden_ns": Column(_NS, "of them under compute", "ns"),
        "timed_count": Column(_NS, "ops whose transfer is known: the whole group was recorded"),
        "transfer_ns": Column(_NS, "transfers of those; null if there is none", "ns", nullable=True),
        "slack_ns": Column(_NS, "from when they could start to the first waiting kernel", "ns"),
        "open_count": Column(_NS, "ops nobody is seen to wait for: their slack is a lower bound"),
        "slack_compute_ns": Column(_NS, "compute within the slack; exchanges may share it", "ns"),
        "scope_compute_ns": Column(
            _NS, "compute of the scopes; null where a scope is unknown", "ns", nullable=True
        ),
        "moved_bytes": Column(_NS, "bytes across a rank's links; null if unknown", "bytes", nullable=True),
        "required_bytes_per_s": Column(
            _RATE, "moved / compute within the slack: would hide them; null without", "bytes/s", nullable=True
        ),
        "achieved_bytes_per_s": Column(_RATE, "moved / transfer; null without", "bytes/s", nullable=True),
        "expected_bytes_per_s": Column(
            _RATE, "published or link bandwidth for them; null if unknown", "bytes/s", nullable=True
        ),
        "uncertainty_ns": Column(_NS, "clock residual of a transfer between hosts, else 0", "ns"),
    },
)  # fmt: skip


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    exchanges = collect(trace, options)
    comm = exchanges.filter(pl.col("op").is_not_null())
    ops = trace.table("ops")
    found = _slack(comm, ops).join(_scopes(comm, ops), on="op").join(_expected(comm, trace), on="op")
    return PARTIAL.frame(exchanges.join(found, on="op", how="left", maintain_order="left"))


def _slack(comm: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """``op, slack_ns, has_consumer, slack_compute_ns``."""
    start, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
    computing, talking = _computing(ops), ops.filter(pl.col("class") == "comm")
    found = comm.join(ops.select("op", "launch_ts_ns"), on="op", how="left").with_columns(end_ns=end)
    found = _nearest(found, "ts_ns", ops.select("device", done_ns=end), "done_ns", "backward")
    found = _nearest(found, "end_ns", computing.select("device", next_ns=start), "next_ns", "forward")
    found = _nearest(found, "end_ns", talking.select("device", talk_ns=start), "talk_ns", "forward")
    busy, device, ends = _union(computing, "device"), found["device"].to_numpy(), found["end_ns"].to_numpy()
    computes_on = covered(busy, Spans.of(ends - 1, ends + 1, device)) == 2  # before the end and after it
    talks_on = covered(_union(talking, "device"), Spans.of(ends, ends + 1, device)) > 0
    ready = pl.min_horizontal(start, pl.max_horizontal("launch_ts_ns", "done_ns"))
    compute_is_next = (pl.col("next_ns") < pl.col("talk_ns")).fill_null(pl.col("next_ns").is_not_null())
    slack = found.with_columns(
        # without a launch it could have started at any time, so no time before its start is claimed
        ready_ns=pl.when(pl.col("launch_ts_ns").is_not_null()).then(ready).otherwise(start),
        has_consumer=compute_is_next & ~pl.Series(computes_on | talks_on),
    ).with_columns(due_ns=pl.when("has_consumer").then("next_ns").otherwise("end_ns"))
    spans = Spans.of(slack["ready_ns"].to_numpy(), slack["due_ns"].to_numpy(), device)
    return slack.select(
        "op",
        "has_consumer",
        pl.Series("slack_compute_ns", covered(busy, spans)),
        slack_ns=pl.col("due_ns") - pl.col("ready_ns"),
    )


def _nearest(
    left: pl.DataFrame, on: str, right: pl.DataFrame, to: str, strategy: Literal["backward", "forward"]
) -> pl.DataFrame:
    """``left`` with the row of ``right`` on its device that is nearest to time ``on``, itself included."""
    return left.sort(on).join_asof(
        right.sort(to),
        left_on=on,
        right_on=to,
        by="device",
        strategy=strategy,
        coalesce=False,
        check_sortedness=False,  # polars cannot check it within devices; both sides were just sorted
    )


def _scopes(comm: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """``op, scope, scope_compute_ns``: of the layer (and phase) or of the step."""
    in_layers = ops.filter(pl.col("layer").is_not_null())["microbatch"]
    is_alone = in_layers.null_count() == 0 and in_layers.n_unique() == 1
    within = ("device", "step", "layer", *(("phase",) if is_alone else ()))
    of_layer = pl.col("axis").cast(pl.String).is_in(LAYER_AXES)
    known = pl.all_horizontal(pl.col(*within[2:]).is_not_null())
    computing = _computing(ops)
    scoped = pl.concat(
        [
            _with_compute(comm.filter(of_layer & known), computing.filter(known), within),
            _with_compute(comm.filter(~of_layer), computing, ("device", "step")),
            comm.filter(of_layer & ~known),
        ],
        how="diagonal",
    )
    place = pl.struct("device", "step", of_layer, *(pl.when(of_layer).then(name) for name in within[2:]))
    return scoped.select("op", "scope_compute_ns", scope=place.rank("dense").cast(pl.Int64))


def _expected(comm: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """``op, expected_bytes_per_s``."""
    domain = scale_up_size(trace)
    is_near = pl.element() // domain == (trace.facts.rank or 0) // domain
    members = trace.table("collectives").select(
        "op", near_count=pl.col("group_ranks").list.eval(is_near).list.sum().cast(pl.Int64)
    )
    names = trace.table("ops").select("op", pl.col("name").cast(pl.String))
    kernel, leaves = pl.col("name"), pl.col("near_count") < pl.col("group_size")
    asked = comm.join(members, on="op").join(names, on="op")
    described = asked.select(
        "op",
        pl.col("collective", "role").cast(pl.String),
        "group_size",
        "near_count",
        device_name=pl.lit(trace.facts.device_name, pl.String),
        transport=bandwidth.transport(kernel),
        crosses=pl.coalesce(leaves, bandwidth.crosses(kernel)),
        far_ratio=bandwidth.far_ratio(),
    )
    return bandwidth.with_expected(described).select("op", "expected_bytes_per_s")


def _with_compute(comm: pl.DataFrame, computing: pl.DataFrame, within: tuple[str, ...]) -> pl.DataFrame:
    """``comm`` plus ``scope_compute_ns``: busy time of the compute that has the same ``within``."""
    groups = computing.select(within).unique(maintain_order=True).with_row_index("group")
    coded = computing.join(groups, on=within, how="left", nulls_equal=True, maintain_order="left")
    busy = total(_union(coded, "group"), len(groups))
    known = groups.with_columns(pl.Series("scope_compute_ns", busy)).drop("group")
    joined = comm.join(known, on=within, how="left", nulls_equal=True)
    return joined.with_columns(pl.col("scope_compute_ns").fill_null(0))


def _computing(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.filter(pl.col("class").is_in(COMPUTE))


def _union(ops: pl.DataFrame, key: str) -> Spans:
    """When any of ``ops`` runs, for each value of column ``key``."""
    start = ops["ts_ns"].to_numpy()
    return union(Spans.of(start, start + ops["dur_ns"].to_numpy(), ops[key].cast(pl.Int64).to_numpy()))


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``, the kind that needs most time first."""
    keys = options.columns(GRAINS)
    rows = _judged(timed(partials)).with_columns(pl.lit(0).alias("all"))  # a group for "by nothing"
    figures = rows.group_by("all", *keys).agg(_figures())
    spans = [name for name in ("rank", "device", "step") if name in keys]
    labels = [pl.col(name) for name in keys if name not in spans]
    return RESULT.frame(figures).sort(*spans, -pl.coalesce("transfer_ns", "dur_ns"), *labels)


def _judged(found: Timed) -> pl.DataFrame:
    """Exchanges plus ``moved_bytes``, ``expected_ns``, ``uncertainty_ns`` and what is known of each.

    The clock residual is given away on either side: what is claimed holds for every transfer within it.
    """
    residual = pl.lit(found.clock.residual_p95_ns or 0, _NS)
    several = pl.col("host").n_unique().over("instance") > 1
    rows = found.exchanges.with_columns(
        uncertainty_ns=pl.when(pl.col("is_complete") & several).then(residual).otherwise(0),
        moved_bytes=_moved_bytes(),
    )
    transfer, uncertainty = pl.col("transfer_ns"), pl.col("uncertainty_ns")
    most = pl.min_horizontal("dur_ns", transfer + uncertainty)
    expected = pl.col("moved_bytes") / pl.col("expected_bytes_per_s") * _PER_S
    least = pl.coalesce((transfer - uncertainty).clip(lower_bound=0), expected)
    fits = pl.col("slack_compute_ns") >= (1 - GAPS_SHARE) * most

    def outlasts(needed: pl.Expr) -> pl.Expr:
        # what is not known of some only makes the sum smaller
        whole = needed.sum().over("rank", "scope", *KIND)
        return needed.is_not_null() & (whole > pl.col("scope_compute_ns")).fill_null(value=False)

    return rows.with_columns(
        expected_ns=expected,
        is_hideable=fits,
        is_unhideable=~fits & outlasts(least),
        is_out_of_reach=~fits & outlasts(least) & outlasts(expected),
    )


def _moved_bytes() -> pl.Expr:
    """Bytes that cross the links of the busier direction; null for a barrier, or if nothing was recorded.

    Source: the bus bandwidth of nccl-tests; of an all-to-all, what its own split sizes say.
    """
    kind, others, size = pl.col("collective"), pl.col("group_size") - 1, pl.col("group_size")
    largest = pl.max_horizontal("in_bytes", "out_bytes")
    return (
        pl.when(kind == "all_to_all")
        .then(pl.max_horizontal("sent_bytes", "received_bytes"))
        .when(kind.is_in(("all_gather", "reduce_scatter")))
        .then(largest * others // size)
        .when(kind == "all_reduce")
        .then(largest * 2 * others // size)
        .when(kind.is_in(("broadcast", "reduce", "send_recv")))
        .then(largest)
    )


def _figures() -> list[pl.Expr]:
    count, timed_count = pl.len().cast(_NS), pl.col("transfer_ns").count().cast(_NS)
    hideable, unhideable, out_of_reach = (
        pl.col(f"is_{name}").sum().cast(_NS) for name in ("hideable", "unhideable", "out_of_reach")
    )
    moved, transfer, compute = pl.col("moved_bytes"), pl.col("transfer_ns"), pl.col("slack_compute_ns")
    scopes = pl.col("scope_compute_ns").filter(pl.struct("rank", "scope").is_first_distinct())
    known = moved.is_not_null()
    under, taken = compute.filter(known).sum(), transfer.filter(known).sum()
    carried = moved.filter(transfer.is_not_null()).sum()
    rated = pl.col("expected_ns").sum()
    return [
        count.alias("exchange_count"),
        hideable.alias("hideable_count"),
        unhideable.alias("unhideable_count"),
        out_of_reach.alias("out_of_reach_count"),
        pl.when(hideable == count)
        .then(statement=True)
        .when(2 * unhideable > count)
        .then(statement=False)
        .alias("hideable"),
        pl.col("dur_ns", "hidden_ns", "slack_ns", "slack_compute_ns").sum(),
        timed_count.alias("timed_count"),
        pl.when(timed_count > 0).then(transfer.sum()).alias("transfer_ns"),
        (~pl.col("has_consumer")).sum().alias("open_count"),
        pl.when(scopes.null_count() == 0).then(scopes.sum()).alias("scope_compute_ns"),
        pl.when(moved.count() > 0).then(moved.sum()).alias("moved_bytes"),
        pl.when(under > 0).then(moved.sum() / under * _PER_S).alias("required_bytes_per_s"),
        pl.when(taken > 0).then(carried / taken * _PER_S).alias("achieved_bytes_per_s"),
        pl.when(rated > 0)
        .then(moved.filter(pl.col("expected_ns").is_not_null()).sum() / rated * _PER_S)
        .alias("expected_bytes_per_s"),
        pl.col("uncertainty_ns").max(),
    ]


ANALYSIS = Analysis(
    name="hideability",
    question="Which communication cannot be hidden at all?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
