"""Why a rank arrives late: its time since the last meeting of all ranks concerned, against theirs.

The ranks of an instance last stood at one point when an earlier exchange ended that all of them took part
in. From there on each rank's time is split, exactly: ``start = end of that exchange + compute + other
communication + copies + idle``. What the blamed rank has more of than the median of the others is its
excess, and the largest excess names the cause. The first exchange of all is compared from the beginning of
each rank's first window; that some began later than others is then one more part, of unknown cause.

- compute: ``more_tokens`` if the rows it received since then, at the others' pace, explain at least half of
  the excess, else ``slower_kernels``. Where all-to-alls tell no bytes, its pace on fixed work decides:
  a rank that is as fast as the others there, and has its excess in grouped products, received more rows.
  Ranks that run different programs (pipeline stages) are slower only if their pace on fixed work says so.
  A rank that runs the program of the others and is further in it when it arrives is not late because of
  its kernels: it could have communicated earlier, and ``late_launch`` or something unknown kept it from it.
- idle: ``late_launch`` if the launch came late as well; work that was launched in time and still did not
  start waits for something unseen, and the cause stays unknown.
- communication, or a later end of the common exchange: ``earlier_comm``, not the rank's own fault; unless
  the rank was the last to arrive at what it communicated before, whose cause then holds here too.
- copies: unknown.

Where compute overlaps communication, a rank may come out of an exchange behind with its kernels; the split
then goes back to one out of which it came level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import _pace
from traceview.analyzers._arrivals import TOTALS

if TYPE_CHECKING:
    from traceview.analyzers._exchanges import Timed

CAUSES = ("more_tokens", "slower_kernels", "late_launch", "earlier_comm")

EXPLAINED = 0.5
"""A reason has to explain this share of an excess to be named."""

ALIKE = 0.01
"""Ranks run the same program if the numbers of their kernels in the step differ by no more than this."""

_PARTS = ("compute", "grouped", "comm", "copy", "idle")


def causes(found: Timed, pace: pl.DataFrame) -> pl.DataFrame:
    """``instance, cause`` of every instance that blames a rank; null where no cause is known.

    Args:
        found: Timed `ARRIVALS`.
        pace: `_pace.paces` of the same run.
    """
    complete = found.exchanges.filter("is_complete")
    excess = _excess(_since(_with_received(complete), _beginnings(found)))
    named = excess.join(_pace.on_fixed_work(pace), on="rank", how="left").with_columns(cause=_cause())
    inherited = named.join(_own_delay(complete, named), on="instance", how="left")
    is_earlier = (pl.col("cause") == "earlier_comm") & pl.col("instance_then").is_not_null()
    return inherited.select("instance", cause=pl.when(is_earlier).then("cause_then").otherwise("cause"))


def _own_delay(complete: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """``instance, instance_then, cause_then``: the exchange before, if the blamed rank delayed that too."""
    place = ["rank", "device"]
    delayed = (
        complete.filter(pl.col("dur_ns") > 0)
        .select(
            *place,
            instance_then="instance",
            delayed_by="last_rank",
            ended_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        )
        .join(named.select(instance_then="instance", cause_then="cause"), on="instance_then", how="left")
        .sort("ended_ns")
    )
    before = (
        named.select(*place, "instance", "instance_before", "ts_ns")
        .sort("ts_ns")
        .join_asof(delayed, left_on="ts_ns", right_on="ended_ns", by=place, check_sortedness=False)
    )
    own = (pl.col("delayed_by") == pl.col("rank")) & (pl.col("instance_then") != pl.col("instance_before"))
    return before.filter(own).select("instance", "instance_then", "cause_then")


def _with_received(complete: pl.DataFrame) -> pl.DataFrame:
    """``complete`` plus running totals over the rank's earlier exchanges of rows that came to its experts.

    What a combine brings back is left out: it is as much as the rank sent, whatever the others chose.
    """
    brings_rows = (pl.col("collective") == "all_to_all") & (pl.col("role") == "combine").ne_missing(
        other=True
    )
    place = ("rank", "device")
    bytes_in = pl.when(brings_rows).then("out_bytes").otherwise(0)
    # the op's own rows count from its end on, so that the stretch after it includes them
    before = bytes_in.fill_null(0).cum_sum().over(place) - bytes_in.fill_null(0)
    untold = bytes_in.is_null().cast(pl.Int64)
    return complete.sort("ts_ns", maintain_order=True).with_columns(
        received_before_bytes=before, untold_before=untold.cum_sum().over(place) - untold
    )


def _beginnings(found: Timed) -> pl.DataFrame:
    """The first window of each device, as if an exchange had ended when it began."""
    first = pl.col("ts_ns") == pl.col("ts_ns").min().over("rank", "device")
    corrected = found.windows.filter(first).join(found.clock.corrections, on="host")
    return corrected.select(
        "rank",
        "device",
        "step",
        *(pl.col(f"{name}_until_start_ns").alias(f"{name}_until_end_ns_then") for name in TOTALS),
        received_before_bytes_then=pl.lit(0, pl.Int64),
        untold_before_then=pl.lit(0, pl.Int64),
        ended_ns="ts_ns",
        common_end=found.clock.aligned("ts_ns"),
    )


def _since(complete: pl.DataFrame, beginnings: pl.DataFrame) -> pl.DataFrame:
    """``complete`` plus the `_PARTS` of the time since the last common exchange, and when that ended."""
    earlier = complete.select(
        "rank",
        "device",
        *(pl.col(f"{name}_until_end_ns").alias(f"{name}_until_end_ns_then") for name in TOTALS),
        instance_before="instance",
        received_before_bytes_then="received_before_bytes",
        untold_before_then="untold_before",
        ended_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        common_end="end_ns",
    )
    common = _common_exchange(complete)
    pairs = complete.join(common, on="instance").join(earlier, on=["instance_before", "rank", "device"])
    first = complete.join(common, on="instance", how="anti").join(
        beginnings, on=["rank", "device", "step"], nulls_equal=True
    )
    compared = pl.concat([pairs, first], how="diagonal").with_columns(is_first=pl.col("is_nearest").is_null())
    passed = {name: pl.col(f"{name}_until_start_ns") - pl.col(f"{name}_until_end_ns_then") for name in TOTALS}
    return compared.with_columns(
        compute=passed["compute"],
        grouped=passed["grouped"],
        comm=passed["active"] - passed["compute"],
        copy=passed["busy"] - passed["active"],
        idle=pl.col("ts_ns") - pl.col("ended_ns") - passed["busy"],
        received=pl.when(pl.col("untold_before") == pl.col("untold_before_then")).then(
            pl.col("received_before_bytes") - pl.col("received_before_bytes_then")
        ),
        # relative to one instant of the instance: medians are floats, and too coarse for an epoch in ns
        late=pl.col("start_ns") - pl.col("last_arrival_ns"),
        common_end=pl.col("common_end") - pl.col("last_arrival_ns"),
        queued=pl.col("ts_ns") - pl.col("launched_ns"),
    )


def _common_exchange(complete: pl.DataFrame) -> pl.DataFrame:
    """``instance, instance_before``: the exchange from which on the ranks of each instance are compared.

    It is the last one that all of them had, unless the blamed rank came out of that one behind; then it is
    an earlier one, and ``is_nearest`` is false.
    """
    covering = _covering(complete)
    # an op of no duration would end when it starts, and precede itself
    ended = complete.filter(pl.col("dur_ns") > 0).select(
        "rank",
        "device",
        covering_key="group_key",
        instance_before="instance",
        ended_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        common_end_ns=pl.col("instance_end_ns"),
        is_level=pl.col("begun_until_end") >= pl.col("begun_until_end").median().over("instance"),
    )
    asked = complete.select("instance", "rank", "device", "group_key", "last_rank", "ts_ns").join(
        covering, on="group_key"
    )
    latest = _latest(asked, ended, left_on="ts_ns", right_on="ended_ns")
    # of all ranks the first of their last ones, which has ended on every one of them
    order = pl.col("instance_before").sort_by("common_end_ns", nulls_last=False)
    nearest = latest.group_by("instance").agg(order.first(), pl.col("common_end_ns").min())
    known = nearest.drop_nulls("instance_before")
    blamed = asked.filter(pl.col("rank") == pl.col("last_rank")).join(
        known.select("instance", "common_end_ns"), on="instance"
    )
    level = _latest(blamed, ended.filter("is_level"), left_on="common_end_ns", right_on="common_end_ns")
    chosen = known.join(level.select("instance", level="instance_before"), on="instance", how="left")
    before = pl.coalesce("level", "instance_before")
    return chosen.select("instance", instance_before=before, is_nearest=before == pl.col("instance_before"))


def _latest(asked: pl.DataFrame, ended: pl.DataFrame, *, left_on: str, right_on: str) -> pl.DataFrame:
    """``instance, rank, instance_before, common_end_ns``: the last of ``ended`` by the time asked for."""
    found = (
        asked.select("instance", "rank", "device", "covering_key", at=left_on)
        .sort("at")
        .join_asof(
            ended.with_columns(by=pl.col(right_on)).sort("by"),
            left_on="at",
            right_on="by",
            by=["rank", "device", "covering_key"],
            check_sortedness=False,  # sorted above
        )
    )
    last = pl.col("instance_before").sort_by("common_end_ns", nulls_last=False).last()
    return found.group_by("instance", "rank").agg(last, pl.col("common_end_ns").max())


def _covering(complete: pl.DataFrame) -> pl.DataFrame:
    """``group_key, covering_key``: every group with those that have all its ranks, itself included."""
    members = complete.select("group_key", "rank").unique()
    size = members.group_by("group_key").agg(size=pl.len())
    shared = members.join(members.rename({"group_key": "covering_key"}), on="rank")
    common = shared.group_by("group_key", "covering_key").agg(common=pl.len()).join(size, on="group_key")
    return common.filter(pl.col("common") == pl.col("size")).select("group_key", "covering_key")


def _excess(since: pl.DataFrame) -> pl.DataFrame:
    """Per blamed instance the blamed rank's values, and ``*_excess`` over the median of the others."""
    compared = (*_PARTS, "common_end", "late", "queued", "received", "begun_until_start", "begun_in_step")
    is_blamed = pl.col("rank") == pl.col("last_rank")
    others = (
        since.filter(~is_blamed).group_by("instance").agg(pl.col(compared).median().name.suffix("_others"))
    )
    blamed = since.filter(is_blamed).join(others, on="instance")
    return blamed.with_columns(
        (pl.col(name) - pl.col(f"{name}_others")).alias(f"{name}_excess") for name in compared
    )


def _cause() -> pl.Expr:
    """The cause behind the largest excess."""
    idle, copy = pl.col("idle_excess"), pl.col("copy_excess")
    # all ranks left the nearest exchange together: what they communicated before it explains nothing
    between = pl.when(pl.col("is_nearest") | pl.col("is_first")).then("comm_excess").otherwise(0)
    comm = between + pl.col("common_end_excess")
    is_ahead = _is_alike() & (pl.col("begun_until_start_excess") > 0)
    compute = pl.when(~is_ahead).then("compute_excess")
    largest = pl.max_horizontal(compute, idle, comm, copy)
    is_launched_late = pl.col("queued_excess") <= EXPLAINED * pl.col("late_excess")
    return (
        pl.when(is_ahead & (pl.col("compute_excess") > largest))
        .then(pl.when(is_launched_late).then(pl.lit("late_launch")))
        .when(largest <= 0)
        .then(None)
        .when(compute == largest)
        .then(_compute_cause())
        .when(idle == largest)
        .then(pl.when(is_launched_late).then(pl.lit("late_launch")))
        .when((comm == largest) & ~pl.col("is_first"))
        .then(pl.lit("earlier_comm"))
        .cast(pl.Enum(CAUSES))
    )


def _compute_cause() -> pl.Expr:
    """More rows, or slower on the same."""
    needed, usual = EXPLAINED * pl.col("compute_excess"), pl.col("compute_others")
    by_rows = usual * pl.col("received_excess") / pl.col("received_others")
    is_slow = (pl.col("pace") - 1) * usual >= needed
    is_grouped = pl.col("grouped_excess") >= needed
    return (
        pl.when((pl.col("received_excess") > 0) & (by_rows >= needed))
        .then(pl.lit("more_tokens"))
        .when((_is_alike() & pl.col("received_excess").is_not_null()) | is_slow)
        .then(pl.lit("slower_kernels"))
        .when(~is_slow & is_grouped)
        .then(pl.lit("more_tokens"))
    )


def _is_alike() -> pl.Expr:
    """Whether the blamed rank runs the program of the others."""
    return pl.col("begun_in_step_excess").abs() <= ALIKE * pl.col("begun_in_step_others")
