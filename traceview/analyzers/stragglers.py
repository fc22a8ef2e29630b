"""Who made whom wait, what it cost, and why they were late.

Of each complete instance the last rank to arrive takes the sum of the others' exposed waits as blame: time
in which a rank waits in this exchange, and neither computes nor communicates otherwise. A tie, or a lead
within the clock's residual, blames nobody; that waiting is a row of its own, so that blamed and unblamed
waiting add up to all of it. Instances that miss a rank are not used. Causes are those of
`traceview.analyzers._lateness`, suspects those of `traceview.analyzers._suspects`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import _pace
from traceview.analyzers._arrivals import ARRIVALS, observe
from traceview.analyzers._exchanges import timed
from traceview.analyzers._lateness import CAUSES, causes
from traceview.analyzers._ratios import ratio
from traceview.analyzers._suspects import SUSPECTS, suspects
from traceview.contracts import Analysis, Options
from traceview.schema import COLLECTIVE_OPS, Column, Table

if TYPE_CHECKING:
    from traceview.analyzers._exchanges import Timed

ALL = "all"
KINDS = ("persistent", "wandering")
PERSISTENT = 0.5
"""Share of steps from which a rank that is blamed most counts as a persistent straggler."""

UNKNOWN = "unknown_cause"
_PLACES = ("step", "axis", "collective", "layer", "phase")
_NS, _RATIO = pl.Int64(), pl.Float64()

RESULT = Table(
    "stragglers",
    "Exposed waiting by who caused it. A row without `rank`, in a result by rank, holds the waiting that "
    "is blamed on nobody.",
    {
        "rank": Column(pl.Int32(), "rank that arrived last; null for nobody, or all", nullable=True),
        "victim": Column(pl.Int32(), "rank that waited; null for all", nullable=True),
        **{
            name: Column(COLLECTIVE_OPS.columns[name].dtype, COLLECTIVE_OPS.columns[name].doc, nullable=True)
            for name in _PLACES
        },
        "blamed_count": Column(_NS, "complete instances in which it arrived last"),
        "unblamed_count": Column(_NS, "complete instances that blame nobody: ties, leads in the residual"),
        "complete_count": Column(_NS, "complete instances in which it took part; without `rank`: all"),
        "last_ratio": Column(_RATIO, "blamed_count / complete_count"),
        "blamed_ns": Column(_NS, "exposed waiting of the others for it", "ns"),
        "unblamed_ns": Column(_NS, "exposed waiting that is blamed on nobody", "ns"),
        "wait_ns": Column(_NS, "all waiting in these instances, hidden waiting too", "ns"),
        "step_count": Column(_NS, "steps looked at; 0 where nothing marks steps"),
        "blamed_per_step_ns": Column(_RATIO, "blamed_ns per step; null without steps", "ns", nullable=True),
        "lag_p50_ns": Column(_RATIO, "last arrival − the one before: median", "ns", nullable=True),
        "lag_p95_ns": Column(_RATIO, "last arrival − the one before: 95th percentile", "ns", nullable=True),
        "late_p50_ns": Column(_RATIO, "last arrival − median arrival: median", "ns", nullable=True),
        "uncertainty_ns": Column(
            _NS, "clock residual (p95) where several hosts meet, else 0; null if unknown", "ns", nullable=True
        ),
        "persistent_ratio": Column(
            _RATIO, "share of steps in which it is blamed most; null unless by rank", nullable=True
        ),
        "kind": Column(
            pl.Enum(KINDS),
            "persistent: blamed most in at least half of the steps; null with fewer than two steps",
            nullable=True,
        ),
        "cause": Column(
            pl.Enum(CAUSES), "cause of most of its blame; null if that is unknown", nullable=True
        ),
        **{
            f"{cause}_ns": Column(_NS, f"blame for: {cause.replace('_', ' ')}", "ns")
            for cause in (*CAUSES, UNKNOWN)
        },
        "suspect": Column(
            pl.Enum(SUSPECTS), "what is probably wrong; null unless clear, and by rank", nullable=True
        ),
        "evidence": Column(pl.String(), "what the suspicion rests on", nullable=True),
    },
)
GRAINS = {"rank": ("rank",), "victim": ("rank", "victim")} | {name: (name,) for name in _PLACES}


@dataclass(frozen=True, slots=True)
class Blame:
    """Who is to blame, by instance.

    Attributes:
        instances: One row per complete instance: ``instance, rank`` (blamed, or null), `_PLACES`,
            ``blamed_ns`` (exposed waits of its ranks), ``lag_ns, late_ns, is_wide, cause``.
        waits: One row per instance and member: ``instance, member, exposed_wait_ns, wait_ns``.
    """

    instances: pl.DataFrame
    waits: pl.DataFrame


def blame(found: Timed, pace: pl.DataFrame) -> Blame:
    """`Blame` of a run.

    Args:
        found: Timed `ARRIVALS`.
        pace: `_pace.paces` of the same run.
    """
    complete = found.exchanges.filter("is_complete")
    arrival = pl.col("start_ns")
    instances = complete.group_by("instance").agg(
        pl.col("last_rank").first().alias("rank"),
        # the place in the step may be unknown on one member and known on another
        *(pl.col(name).drop_nulls().first() for name in _PLACES),
        blamed_ns=pl.col("exposed_wait_ns").sum(),
        lag_ns=arrival.max() - arrival.top_k(2).min(),
        late_ns=-(arrival - arrival.max()).median(),
        is_wide=pl.col("host").n_unique() > 1,
    )
    waits = complete.select("instance", "exposed_wait_ns", "wait_ns", member="rank")
    known = instances.join(causes(found, pace), on="instance", how="left")
    return Blame(known.sort("instance"), waits)


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``; blamed and unblamed waiting add up to all of it."""
    found = timed(partials)
    pace = _pace.paces(found.windows)
    who = blame(found, pace)
    keys = options.columns(GRAINS)
    steps = found.windows["step"].drop_nulls().n_unique()
    rows = _measured(who, keys, found.clock.residual_p95_ns)
    if keys == ["rank"]:
        rows = _with_suspects(rows, suspects(found, who.instances.drop_nulls("rank"), pace))
    rows = _with_counts(rows, who, keys).with_columns(step_count=_step_count(keys, steps))
    named = rows.with_columns(blamed_per_step_ns=ratio("blamed_ns", "step_count"), cause=_leading_cause())
    if "rank" in keys and not {"step", "victim"} & set(keys):
        named = _with_persistence(named, who.instances, keys, steps)
    return RESULT.frame(named).sort(*_order(keys), nulls_last=True)


def _measured(who: Blame, keys: list[str], residual_ns: int | None) -> pl.DataFrame:
    """Sums over waits, and quantiles over instances, of each group."""
    is_blamed = pl.col("rank").is_not_null()
    each = who.waits.join(who.instances.drop("blamed_ns"), on="instance")
    each = each.with_columns(pl.lit(ALL).alias(ALL), victim="member").filter(
        (pl.col("member") == pl.col("rank")).ne_missing(other=True)
    )
    cost = pl.col("exposed_wait_ns")
    sums = each.group_by(ALL, *keys).agg(
        pl.col("wait_ns").sum(),
        blamed_ns=cost.filter(is_blamed).sum(),
        unblamed_ns=cost.filter(~is_blamed).sum(),
        **{f"{cause}_ns": cost.filter(pl.col("cause") == cause).sum() for cause in CAUSES},
        unknown_cause_ns=cost.filter(is_blamed & pl.col("cause").is_null()).sum(),
    )
    distinct = each.unique([*keys, "instance"])
    blamed = {name: pl.col(name).filter(is_blamed) for name in ("lag_ns", "late_ns")}
    spread = distinct.group_by(ALL, *keys).agg(
        blamed_count=is_blamed.sum(),
        unblamed_count=(~is_blamed).sum(),
        lag_p50_ns=blamed["lag_ns"].quantile(0.5, "linear"),
        lag_p95_ns=blamed["lag_ns"].quantile(0.95, "linear"),
        late_p50_ns=blamed["late_ns"].quantile(0.5, "linear"),
        uncertainty_ns=pl.when(pl.col("is_wide").any()).then(pl.lit(residual_ns, _NS)).otherwise(0),
    )
    return sums.join(spread, on=[ALL, *keys], nulls_equal=True)


def _with_counts(rows: pl.DataFrame, who: Blame, keys: list[str]) -> pl.DataFrame:
    """``rows`` plus how many complete instances there were to be last in."""
    shared = [key for key in keys if key != "victim"]
    places = who.instances.drop("rank").with_columns(pl.lit(ALL).alias(ALL))
    anyone = places.with_columns(rank=pl.lit(None, pl.Int32))
    member = who.waits.select("instance", rank="member").join(places, on="instance").select(anyone.columns)
    present = pl.concat([anyone, member]) if "rank" in keys else anyone
    counted = present.group_by(ALL, *shared).agg(complete_count=pl.col("instance").n_unique())
    joined = rows.join(counted, on=[ALL, *shared], how="left", nulls_equal=True)
    return joined.with_columns(last_ratio=pl.col("blamed_count") / pl.col("complete_count"))


def _step_count(keys: list[str], steps: int) -> pl.Expr:
    """Steps that each row is about."""
    return pl.col("step").is_not_null().cast(_NS) if "step" in keys else pl.lit(steps, _NS)


def _leading_cause() -> pl.Expr:
    """The cause with most blame, or null where most blame has no known cause."""
    parts = [f"{cause}_ns" for cause in (*CAUSES, UNKNOWN)]
    largest = pl.max_horizontal(parts)
    named = [
        pl.when((pl.col(f"{cause}_ns") == largest) & (largest > 0)).then(pl.lit(cause)) for cause in CAUSES
    ]
    unknown = pl.col(f"{UNKNOWN}_ns") == largest
    return pl.when(~unknown).then(pl.coalesce(named)).cast(pl.Enum(CAUSES))


def _with_persistence(
    rows: pl.DataFrame, instances: pl.DataFrame, keys: list[str], steps: int
) -> pl.DataFrame:
    """``rows`` plus the share of steps in which the rank is blamed most, among those it is compared with."""
    beside = [key for key in keys if key != "rank"]
    per_step = instances.drop_nulls(["rank", "step"]).group_by(*keys, "step").agg(pl.col("blamed_ns").sum())
    most = (pl.col("blamed_ns") > 0) & (
        pl.col("blamed_ns") == pl.col("blamed_ns").max().over(*beside, "step")
    )
    topped = per_step.filter(most).group_by(keys).agg(topped=pl.len())
    share = pl.when(pl.col("rank").is_not_null() & (steps > 0)).then(pl.col("topped").fill_null(0) / steps)
    joined = rows.join(topped, on=keys, how="left", nulls_equal=True).with_columns(persistent_ratio=share)
    persistent, wandering = (pl.lit(kind) for kind in KINDS)
    kind = pl.when(pl.col("persistent_ratio") >= PERSISTENT).then(persistent).otherwise(wandering)
    told = (pl.col("blamed_ns") > 0) & pl.col("persistent_ratio").is_not_null() & pl.lit(steps > 1)
    return joined.with_columns(kind=pl.when(told).then(kind))


def _with_suspects(rows: pl.DataFrame, accused: pl.DataFrame) -> pl.DataFrame:
    """``rows`` by rank plus suspects; one that is never last gets a row without blame."""
    joined = rows.join(accused, on="rank", how="full", coalesce=True, nulls_equal=True)
    return joined.with_columns(pl.col(pl.Int64, pl.UInt32).fill_null(0))


def _order(keys: list[str]) -> list[pl.Expr]:
    """Places in their order; within them the rank with most blame first, or a matrix row by row."""
    place = [pl.col(key) for key in keys if key in _PLACES]
    if "victim" in keys:
        return [*place, pl.col("rank"), pl.col("victim")]
    return [*place, pl.col("rank").is_null(), -pl.col("blamed_ns"), pl.col("rank")]


ANALYSIS = Analysis(
    name="stragglers",
    question="Who made whom wait, what did it cost, and why were they late?",
    needs=("ops", "collectives", "launches", "steps"),
    partial=ARRIVALS,
    result=RESULT,
    map=observe,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
