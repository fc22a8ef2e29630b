"""How much of the machine does useful work, as a product of efficiencies, each the fault of one thing.

The tree is that of POP, for devices: ``parallel = load_balance × communication × orchestration``. With
``u`` the compute of a rank over its windows, ``a`` the same for all device work, and ``mean u`` the compute
of all ranks over all their windows:

- ``parallel = mean u``: the share of the device time that is compute;
- ``load_balance = mean u / max u``: ranks with less to compute wait for the busiest one;
- ``communication = max u / max a``: while the busiest one exchanges, nobody computes;
- ``orchestration = max a``: nothing at all runs, because the host is late or has to wait.

Load balance splits by nested sets of ranks: ranks make expert-parallel groups, the groups that pipeline
stages join make a replica, the replicas make the job. With ``best`` the largest ``u`` of any set of a level,
all its ranks and windows pooled: ``dp = mean u / best replica``, ``pp = best replica / best group``, ``ep =
best group / best rank``. Every factor is at most 1, and their product is exact. Where no such set exists,
each rank is one of its own, and the factor is 1.

The additive form states what of the time is lost instead: ``1 − parallel`` is the sum of the losses.

Each rank's times are taken over its own windows, so no clock has to be trusted. Useful work is compute and
fused kernels; copies are not.

Source: POP Centre of Excellence, "POP Standard Metrics"; TALP's device metrics for the order of the factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import breakdown
from traceview.contracts import Analysis, Options
from traceview.schema import GROUPS, Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.trace import Trace

FACTORS = ("dp_balance", "pp_balance", "ep_balance", "communication", "orchestration")
"""The leaves of the tree, from the outermost set of ranks inwards; their product is ``parallel``."""

_NS, _RATIO, _RANKS = pl.Int64(), pl.Float64(), pl.List(pl.Int32())
_UNIT = ("rank", "device")
_SETS = ("ep", "pp")
_ALL = "everything"  # a group for "by nothing"

_DOCS = {
    "dp_balance": "of the load balance: between replicas",
    "pp_balance": "of the load balance: between the expert-parallel groups of a replica, as stages have them",
    "ep_balance": "of the load balance: between the ranks of an expert-parallel group",
    "communication": "compute of the busiest rank / its device time with any work: exposed communication",
    "orchestration": "largest share of a rank's time with any device work: the rest is idle",
}
RESULT = Table(
    "efficiency",
    "Parallel efficiency as a product of factors, and as a sum of losses. Null where nothing computes.",
    {
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        "rank_count": Column(_NS, "ranks looked at"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
        "window_ns": Column(_NS, "time looked at, summed over ranks", "ns"),
        "compute_ns": Column(_NS, "of it, some compute or fused kernel runs", "ns"),
        "busy_ns": Column(_NS, "of it, any device work runs", "ns"),
        "parallel_ratio": Column(_RATIO, "compute / window: the product of the factors", nullable=True),
        "load_balance_ratio": Column(_RATIO, "mean / largest compute share of a rank", nullable=True),
        **{
            f"{name}_ratio": Column(
                _RATIO, doc + ("; null if the groups are unknown" * ("balance" in name)), nullable=True
            )
            for name, doc in _DOCS.items()
        },
        **{
            f"{name}_loss_ratio": Column(
                _RATIO, f"share of the time that `{name}` loses; losses add up to 1 − parallel", nullable=True
            )
            for name in ("load_balance", *FACTORS)
        },
        "busiest_rank": Column(
            pl.Int32(), "rank with the largest compute share; null for a tie", nullable=True
        ),
    },
)
PARTIAL = Table(
    "efficiency_partial",
    "One row per device and window of a rank, with the sets it belongs to.",
    {
        **{name: breakdown.RESULT.columns[name] for name in (*_UNIT, "step", "window_ns", "compute_ns")},
        "busy_ns": Column(_NS, "any device work runs", "ns"),
        **{f"{axis}_ranks": Column(_RANKS, f"members of its {axis} group", nullable=True) for axis in _SETS},
        **{
            f"has_{axis}": Column(pl.Boolean(), f"whether the rank belongs to an {axis} group")
            for axis in _SETS
        },
    },
)
GRAINS = {"step": ("step",)}


# --- map ---------------------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    windows = breakdown.measure(trace, options)
    known = {}
    for axis in _SETS:
        members, exists = _members(trace, axis)
        known[f"{axis}_ranks"] = pl.lit(pl.Series([members], dtype=_RANKS)).first()
        known[f"has_{axis}"] = pl.lit(exists)
    return PARTIAL.frame(windows.with_columns(busy_ns=pl.col("window_ns") - pl.col("idle_ns"), **known))


def _members(trace: Trace, axis: str) -> tuple[list[int] | None, bool]:
    """The members of the rank's group along ``axis``, where they are known, and whether it has such a group.

    Of several groups that of most exchanges; one that nothing is exchanged in only if there is no other.
    """
    is_wanted = (pl.col("axis").cast(pl.String) == axis) & (pl.col("group_size").fill_null(2) > 1)
    used = trace.table("collectives").filter(is_wanted)
    there = trace.tables.get("groups", GROUPS.empty()).filter(is_wanted)
    lists = used["group_ranks"].drop_nulls()
    if not len(lists):
        lists = there["group_ranks"].drop_nulls()
    if not len(lists):
        return None, len(used) + len(there) > 0
    counted = pl.DataFrame({"members": lists}).group_by("members", maintain_order=True).len()
    members: list[int] = counted.sort("len", descending=True, maintain_order=True)["members"][0].to_list()
    return members, True


# --- reduce ------------------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` in one row, or one per step."""
    keys = [_ALL, *options.columns(GRAINS)]
    windows = partials.join(_sets(partials), on="rank", how="left").with_columns(pl.lit(0).alias(_ALL))
    whole = windows.group_by(keys).agg(
        pl.col("window_ns", "compute_ns", "busy_ns").sum(),
        rank_count=pl.col("rank").n_unique(),
        window_count=pl.len(),
    )
    ranks = _shares(windows, keys, _UNIT)
    is_best = pl.col("useful") == pl.col("useful").max()
    tops = ranks.group_by(keys).agg(
        best_rank=pl.col("useful").max(),
        best_busy=pl.col("busy").max(),
        busiest_rank=pl.when(is_best.sum() == 1).then(pl.col("rank").get(pl.col("useful").arg_max())),
    )
    joined = whole.join(tops, on=keys, nulls_equal=True)
    for level in ("group", "replica"):
        best = _shares(windows, keys, [level]).group_by(keys)
        unknown = pl.col(level).is_null().any()
        joined = joined.join(
            best.agg(pl.when(~unknown).then(pl.col("useful").max()).alias(f"best_{level}")),
            on=keys,
            nulls_equal=True,
        )
    return RESULT.frame(joined.with_columns(_share()).with_columns(*_factors(), *_losses())).sort("step")


def _shares(windows: pl.DataFrame, keys: Sequence[str], of: Sequence[str]) -> pl.DataFrame:
    """``useful`` and ``busy`` share of the time of each set ``of`` ranks."""
    summed = windows.group_by(*keys, *of, maintain_order=True).agg(
        pl.col("window_ns", "compute_ns", "busy_ns").sum()
    )
    return summed.filter(pl.col("window_ns") > 0).with_columns(
        useful=pl.col("compute_ns") / pl.col("window_ns"), busy=pl.col("busy_ns") / pl.col("window_ns")
    )


def _share() -> pl.Expr:
    """The useful share of everything; null where nothing computes, for then nothing can be apportioned."""
    return (
        pl.when((pl.col("window_ns") > 0) & (pl.col("compute_ns") > 0))
        .then(pl.col("compute_ns") / pl.col("window_ns"))
        .alias("parallel_ratio")
    )


_CHAIN = ("parallel_ratio", "best_replica", "best_group", "best_rank", "best_busy")
"""Shares that rise from that of the job to that of the busiest rank; factors lie between neighbours."""


def _factors() -> list[pl.Expr]:
    is_known = pl.col("parallel_ratio").is_not_null()
    ends = zip(_CHAIN, (*_CHAIN[1:], None), FACTORS, strict=True)
    leaves = {name: pl.col(low) / (pl.lit(1.0) if high is None else pl.col(high)) for low, high, name in ends}
    tree = {"load_balance": pl.col("parallel_ratio") / pl.col("best_rank"), **leaves}
    return [pl.when(is_known).then(expr).alias(f"{name}_ratio") for name, expr in tree.items()]


def _losses() -> list[pl.Expr]:
    is_known = pl.col("parallel_ratio").is_not_null()
    ends = zip(_CHAIN, (*_CHAIN[1:], None), FACTORS, strict=True)
    leaves = {name: (pl.lit(1.0) if high is None else pl.col(high)) - pl.col(low) for low, high, name in ends}
    tree = {"load_balance": pl.col("best_rank") - pl.col("parallel_ratio"), **leaves}
    return [pl.when(is_known).then(expr).alias(f"{name}_loss_ratio") for name, expr in tree.items()]


def _sets(partials: pl.DataFrame) -> pl.DataFrame:
    """``rank, group, replica``: the least rank of the sets that each rank belongs to; null where unknown."""
    ranks = partials.unique("rank", keep="first", maintain_order=True)
    alone = pl.concat_list("rank")
    known = ranks.select(
        "rank",
        *(
            pl.when(f"has_{axis}").then(f"{axis}_ranks").otherwise(alone).alias(f"{axis}_ranks")
            for axis in _SETS
        ),
    )
    unknown = {axis: known[f"{axis}_ranks"].null_count() > 0 for axis in _SETS}
    group = pl.col("ep_ranks").list.min()
    return (
        known.join(_components(known), on="rank", how="left")
        .select(
            "rank",
            group=pl.when(not unknown["ep"]).then(group),
            replica=pl.when(not any(unknown.values())).then("replica"),
        )
        .sort("rank")
    )


def _components(known: pl.DataFrame) -> pl.DataFrame:
    """``rank, replica``: ranks that a chain of groups joins, by the least of them."""
    edges = pl.concat(
        known.drop_nulls(name).select(
            rank=pl.col(name), set=pl.format("{} {}", pl.lit(name), pl.col(name).list.min())
        )
        for name in ("ep_ranks", "pp_ranks")
    )
    links = edges.explode("rank").unique(maintain_order=True)
    labels = links.select("rank", replica="rank").unique("rank", maintain_order=True)
    while True:  # each round joins neighbouring sets: a grid needs two or three
        spread = links.join(labels, on="rank").with_columns(pl.col("replica").min().over("set"))
        lowered = spread.group_by("rank", maintain_order=True).agg(pl.col("replica").min())
        if lowered.sort("rank").equals(labels.sort("rank")):
            return labels
        labels = lowered


ANALYSIS = Analysis(
    name="efficiency",
    question="How much of the device time is useful work, and what is the rest lost to?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
