"""What is probably wrong with a rank, where the evidence is clear: its GPU, its host, its data or its link.

- ``gpu``: most of its blame is for slower kernels, and every comparable family of fixed work runs slower.
- ``data``: most of its blame is for late launches, nearly all of them at the first exchange of a step.
- ``host``: most of its blame is for late launches, elsewhere too.
- ``link``: every group it is in moves bytes slower than the other groups of that kind, and no other rank is
  in all of these groups. Such a rank need not be blamed: the exchange ends late on all of its members.

Blame that is small, or not there in most of the steps, accuses nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from traceview.analyzers._exchanges import Timed

SUSPECTS = ("gpu", "link", "host", "data")

SLOW_PACE = 1.05
"""Every family has to take at least this many times as long as on the other ranks."""

SLOW_LINK = 1.5
"""Every group has to need at least this many times the median of its kind."""

ENOUGH_STEPS, ENOUGH_FAMILIES, ENOUGH_GROUPS, ENOUGH_SETS = 2, 2, 3, 2
MOST, NEARLY_ALL = 0.5, 0.8
CLEAR_SHARE = 0.1
"""Share of a step's blamed waiting below which a rank is not worth accusing."""


def suspects(found: Timed, blamed: pl.DataFrame, pace: pl.DataFrame) -> pl.DataFrame:
    """``rank, suspect, evidence``, at most one row per rank.

    Args:
        found: Timed exchanges.
        blamed: One row per blamed instance: ``instance, rank, step, cause, blamed_ns``.
        pace: `_pace.paces` of the run.
    """
    clear = _clear(found, blamed)
    rows = pl.concat([_slow_gpus(clear, pace), _late_hosts(clear), _slow_links(found.exchanges)])
    # a rank that is late for a reason of its own has that reason first, whatever its link does
    return rows.unique("rank", keep="first", maintain_order=True)


def _clear(found: Timed, blamed: pl.DataFrame) -> pl.DataFrame:
    """Blame of the ranks with clear blame: all of it, and that for slower kernels and for late launches."""
    arrival = pl.col("last_arrival_ns")
    complete = found.exchanges.filter("is_complete")
    begins = complete.filter(arrival == arrival.min().over("step"))["instance"].unique()
    cost, late = pl.col("blamed_ns"), pl.col("cause") == "late_launch"
    per_step = blamed.group_by("rank", "step").agg(
        cost.sum(),
        slower_ns=cost.filter(pl.col("cause") == "slower_kernels").sum(),
        late_ns=cost.filter(late).sum(),
        first_ns=cost.filter(late & pl.col("instance").is_in(begins.implode())).sum(),
    )
    is_clear = (cost > 0) & (cost >= CLEAR_SHARE * cost.sum().over("step")) & pl.col("step").is_not_null()
    enough = max(ENOUGH_STEPS, MOST * blamed["step"].drop_nulls().n_unique())
    totals = (
        per_step.with_columns(clear_count=is_clear)
        .group_by("rank")
        .agg(pl.col("blamed_ns", "slower_ns", "late_ns", "first_ns", "clear_count").sum())
    )
    return totals.filter(pl.col("clear_count") >= enough)


def _slow_gpus(clear: pl.DataFrame, pace: pl.DataFrame) -> pl.DataFrame:
    families = pace.group_by("rank").agg(
        low=pl.col("pace").min(), high=pl.col("pace").max(), names=pl.col("family").sort().str.join(", "),
        count=pl.len(),
    )  # fmt: skip
    is_slow = (pl.col("low") >= SLOW_PACE) & (pl.col("count") >= ENOUGH_FAMILIES)
    mostly = pl.col("slower_ns") >= MOST * pl.col("blamed_ns")
    text = "fixed work ({}) takes {} to {} times as long as on the median rank"
    evidence = pl.format(text, "names", pl.col("low").round(2), pl.col("high").round(2))
    return _rows(clear.join(families, on="rank").filter(is_slow & mostly), pl.lit("gpu"), evidence)


def _late_hosts(clear: pl.DataFrame) -> pl.DataFrame:
    mostly = clear.filter(pl.col("late_ns") >= MOST * pl.col("blamed_ns"))
    begins = pl.col("first_ns") / pl.col("late_ns")
    suspect = pl.when(begins >= NEARLY_ALL).then(pl.lit("data")).otherwise(pl.lit("host"))
    evidence = pl.format(
        "{} % of its blame is for late launches, {} % of that at the first exchange of a step",
        (100 * pl.col("late_ns") / pl.col("blamed_ns")).round().cast(pl.Int64),
        (100 * begins).round().cast(pl.Int64),
    )
    return _rows(mostly, suspect, evidence)


def _slow_links(exchanges: pl.DataFrame) -> pl.DataFrame:
    kind = ("axis", "collective", "role", "group_size", "is_wide")
    complete = exchanges.filter("is_complete").with_columns(
        is_wide=pl.col("node").n_unique().over("instance") > 1
    )
    moved = pl.max_horizontal("sent_bytes", "received_bytes").max()
    instances = complete.group_by(*kind, "group_key", "instance").agg(
        pl.col("transfer_ns").min(), moved=moved
    )
    # where bytes are known, groups that move more are given more time
    cost = pl.col("transfer_ns") / pl.when(pl.col("moved") > 0).then("moved").otherwise(1)
    groups = instances.group_by(*kind, "group_key").agg(cost=cost.median())
    compared = groups.filter(pl.len().over(kind) >= ENOUGH_GROUPS).with_columns(
        excess=pl.col("cost") / pl.col("cost").median().over(kind)
    )
    members = complete.group_by("group_key").agg(
        pl.col("rank").unique(), members=pl.col("rank").unique().sort().cast(pl.String).str.join(",")
    )
    per_rank = (
        compared.join(members, on="group_key")
        .explode("rank")
        .group_by("rank")
        .agg(low=pl.col("excess").min(), sets=pl.col("members").unique().sort())
    )
    slow = per_rank.filter((pl.col("low") >= SLOW_LINK) & (pl.col("sets").list.len() >= ENOUGH_SETS))
    told_apart = slow.with_columns(sets=pl.col("sets").list.join(";")).filter(pl.len().over("sets") == 1)
    evidence = pl.format(
        "all its groups need at least {} times the median of their kind", pl.col("low").round(2)
    )
    return _rows(told_apart, pl.lit("link"), evidence)


def _rows(found: pl.DataFrame, suspect: pl.Expr, evidence: pl.Expr) -> pl.DataFrame:
    return found.select("rank", suspect=suspect.cast(pl.Enum(SUSPECTS)), evidence=evidence)
