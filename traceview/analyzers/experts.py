"""How evenly the tokens spread over the ranks that hold the experts, and what the unevenness costs.

The load of a rank is what its experts receive in one exchange of one layer and microbatch, forward. Nothing
records it as such, so it is read from the best evidence that every rank of a group has: rows in the split
lists of the dispatch, its received bytes, rows of the grouped GEMMs, or, as a stand-in, their duration.
Counts per expert are not recorded; all figures are per rank, which is what sets the time.

The price is a straight line through the exchanges: time of the slowest rank against max/mean load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import balance
from traceview.analyzers._exchanges import EXCHANGES, timed
from traceview.analyzers._loads import EVIDENCE, PARTIAL, measure
from traceview.contracts import Analysis
from traceview.schema import PHASES, Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options

FORCED_CV, FORCED_VALUES = 0.005, 8
"""Below this variation over at least so many loads the balance looks forced, as benchmarks do."""

PRICE_POINTS, PRICE_R_SQUARED = 8, 0.5
"""A line through fewer exchanges, or one that explains less, prices nothing."""

_I64, _F64 = pl.Int64(), pl.Float64()
_EXCHANGE = ("group_key", "step", "microbatch", "layer")
_ALL = "everything"  # a group for "by nothing"


def _number(doc: str) -> Column:
    return Column(_F64, doc, nullable=True)


RESULT = Table(
    "experts",
    "Balance of expert loads over ranks. Loads of several exchanges in a row are summed per rank first.",
    {
        "group_key": Column(
            pl.String(), "expert-parallel group; null when groups are merged or unknown", nullable=True
        ),
        "step": Column(_I64, "step; null when steps are summed", nullable=True),
        "layer": Column(pl.Int32(), "layer; null when summed or unknown", nullable=True),
        "rank": Column(pl.Int32(), "global rank, by rank; then `load` is its own", nullable=True),
        "phase": Column(pl.Enum(PHASES), "phase looked at; null where no phase is known", nullable=True),
        "level": Column(pl.Enum(("expert", "rank")), "what a load belongs to: rank, for no trace has more"),
        "evidence": Column(pl.Enum(EVIDENCE), "where the loads were read, and so their unit"),
        "rank_count": Column(_I64, "ranks with a load"),
        "exchange_count": Column(
            _I64, "exchanges (group, step, microbatch, layer) with a load of every rank"
        ),
        "load": _number("load of the rank in `rank`, in the unit of the evidence; null when not by rank"),
        "load_over_mean": _number("the same over the mean load"),
        "load_mean": _number("mean load of a rank"),
        "load_max": _number("largest load of a rank"),
        "max_over_mean": _number("largest load over the mean: 1 is balanced; waiting multiplies by this"),
        "exchange_max_over_mean": _number("median over exchanges of max/mean within the exchange"),
        "cv": _number("coefficient of variation of the loads: 0 is balanced"),
        "gini": _number("Gini coefficient of the loads: 0 is balanced"),
        "entropy_ratio": _number("entropy of the loads over that of equal ones: 1 is balanced"),
        "zero_ratio": _number("share of ranks without any load"),
        "hottest_rank": Column(
            pl.Int32(), "rank with the largest load; null when several have it", nullable=True
        ),
        "is_forced": Column(
            pl.Boolean(),
            f"every exchange has a cv below {FORCED_CV}, over {FORCED_VALUES} or more loads: as if by force",
            nullable=True,
        ),
        "reason": Column(pl.String(), "why the measures are null", nullable=True),
        "price_slope_ns": Column(
            _F64,
            "of the run: time of the slowest rank (grouped GEMMs of all phases and transfers of the layer's "
            "exchanges) per unit of max/mean; null for loads that were themselves read from durations",
            "ns",
            nullable=True,
        ),
        "price_r_squared": _number("of the run: how much of that time the line explains, 0..1"),
        "price_point_count": Column(_I64, "of the run: exchanges on the line"),
        "saving_ns": Column(
            _F64,
            "ceiling of what perfect balance saves per step of a group, summed over layers in the row; null "
            f"with fewer than {PRICE_POINTS} points, R² below {PRICE_R_SQUARED}, or no positive slope",
            "ns",
            nullable=True,
        ),
    },
)
GRAINS = {"layer": ("layer",), "step": ("step",), "group": ("group_key",), "rank": ("rank",)}


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` by ``options.by``; no row where no rank shows any expert."""
    keys = options.columns(GRAINS)
    loads = partials.filter(pl.col("evidence").is_not_null()).with_columns(pl.lit(0).alias(_ALL))
    vectors = _best_vectors(loads)
    scopes = [_ALL, *(name for name in keys if name != "rank")]
    exchanges = _exchanges(vectors)
    line = _line(exchanges.filter(pl.col("evidence") != "grouped_gemm"), _slowest(partials, loads))
    whole = vectors.filter("is_complete")
    rows = (
        _present(vectors, scopes)
        .join(_measures(whole, scopes), on=scopes, how="left", nulls_equal=True)
        .join(_of_exchanges(exchanges, scopes), on=scopes, how="left", nulls_equal=True)
        .join(line, how="cross")
    )
    if "rank" in keys:
        own = vectors.group_by(*scopes, "rank").agg(pl.col("load").sum().cast(_F64))
        rows = rows.join(own, on=scopes, how="left", nulls_equal=True).with_columns(
            load_over_mean=pl.col("load") / pl.col("load_mean")
        )
    priced = rows.with_columns(pl.col("exchange_count").fill_null(0), saving_ns=_saving())
    return RESULT.frame(priced.with_columns(level=pl.lit("rank"))).sort(
        "group_key", "step", "layer", "rank", nulls_last=True
    )


def _best_vectors(loads: pl.DataFrame) -> pl.DataFrame:
    """Forward loads of the best evidence that some exchange has of all its ranks; else of the best there is.

    Where there are complete exchanges, the others are left out. Where no phase is known, all of it counts.
    """
    forward = pl.col("phase").cast(pl.String) == "forward"
    wanted = pl.when(forward.any().over("evidence")).then(forward).otherwise(pl.col("phase").is_null())
    scope = (_ALL, *_EXCHANGE, "evidence", "rank", "phase", "group_size")
    summed = loads.filter(wanted.fill_null(value=False)).group_by(scope).agg(pl.col("load").sum())
    counted = summed.with_columns(members=pl.len().over(*_EXCHANGE, "evidence"))
    complete = (pl.col("members") == pl.col("group_size")) & pl.col("group_key").is_not_null()
    vectors = counted.with_columns(is_complete=(complete & (pl.col("group_size") > 1)).fill_null(value=False))
    ranking = vectors.group_by("evidence").agg(any_complete=pl.col("is_complete").any())
    best = ranking.sort("any_complete", "evidence", descending=[True, False]).head(1)
    chosen = vectors.join(best, on="evidence", how="inner")
    return chosen.filter(pl.col("is_complete") | ~pl.col("any_complete")).sort(*_EXCHANGE, "rank")


def _present(vectors: pl.DataFrame, scopes: list[str]) -> pl.DataFrame:
    """What there is in each row of the result, and why it may not be enough."""
    few = pl.format(
        "{} of {} ranks of a group show a load", pl.col("members").max(), pl.col("group_size").max()
    )
    unknown = pl.lit("the expert-parallel group is not known")
    why = pl.when(pl.col("group_size").max().is_null()).then(unknown).otherwise(few)
    return vectors.group_by(scopes).agg(
        pl.col("phase").first(),
        pl.col("evidence").first(),
        rank_count=pl.col("rank").n_unique(),
        reason=pl.when(~pl.col("is_complete").any()).then(why),
    )


def _measures(whole: pl.DataFrame, scopes: list[str]) -> pl.DataFrame:
    """Measures of the load vectors, one rank a component."""
    load = pl.col("load")
    is_hottest = load == load.max()
    # in order, so that the last digit of a sum is the same each time
    per_rank = whole.group_by(*scopes, "rank", maintain_order=True).agg(load.sum())
    return per_rank.group_by(scopes).agg(
        load_mean=load.mean(),
        load_max=load.max().cast(_F64),
        max_over_mean=balance.max_over_mean(load),
        cv=balance.coefficient_of_variation(load),
        gini=balance.gini(load),
        entropy_ratio=balance.normalized_entropy(load),
        zero_ratio=balance.zero_ratio(load),
        hottest_rank=pl.when(is_hottest.sum() == 1).then(pl.col("rank").get(load.arg_max())),
    )


def _exchanges(vectors: pl.DataFrame) -> pl.DataFrame:
    """One row per complete exchange: ``x`` is max/mean, ``cv`` the variation, ``values`` how many loads."""
    load = pl.col("load")
    complete = vectors.filter("is_complete").group_by(_ALL, *_EXCHANGE, "evidence", maintain_order=True)
    return complete.agg(
        x=balance.max_over_mean(load), cv=balance.coefficient_of_variation(load), values=pl.len()
    )


def _of_exchanges(exchanges: pl.DataFrame, scopes: list[str]) -> pl.DataFrame:
    forced = (pl.col("cv").max() < FORCED_CV) & (pl.col("values").sum() >= FORCED_VALUES)
    return exchanges.group_by(scopes).agg(
        exchange_count=pl.len(),
        exchange_max_over_mean=pl.col("x").median(),
        is_forced=forced,
        excess=(pl.col("x") - 1).sum() / pl.struct("group_key", "step").n_unique(),
    )


def _slowest(partials: pl.DataFrame, loads: pl.DataFrame) -> pl.DataFrame:
    """``y`` of each exchange: time of the rank with the most, ns; null where a transfer is not known."""
    found = timed(partials.filter(pl.col("evidence").is_null()).select(list(EXCHANGES.columns)))
    scope = ["rank", *(name for name in _EXCHANGE if name != "group_key")]
    exchanged = found.exchanges.drop_nulls("role").group_by(scope)
    transfer = exchanged.agg(pl.col("transfer_ns").sum(), unknown=pl.col("transfer_ns").null_count())
    gemms = loads.filter(pl.col("evidence") == "grouped_gemm").group_by("group_key", *scope)
    cost = gemms.agg(gemm_ns=pl.col("load").sum()).join(transfer, on=scope, how="left", nulls_equal=True)
    total = pl.col("gemm_ns") + pl.col("transfer_ns").fill_null(0)
    priced = cost.with_columns(y=pl.when(pl.col("unknown").fill_null(0) == 0).then(total))
    worst = pl.when(pl.col("y").null_count() == 0).then(pl.col("y").max())
    return priced.group_by(_EXCHANGE).agg(worst, cost_ranks=pl.len())


def _line(exchanges: pl.DataFrame, slowest: pl.DataFrame) -> pl.DataFrame:
    """Least squares of ``y`` on ``x`` over all exchanges of the run, in one row."""
    beside = exchanges.join(slowest, on=list(_EXCHANGE), how="left", nulls_equal=True, maintain_order="left")
    points = beside.filter(pl.col("cost_ranks") == pl.col("values")).drop_nulls(["x", "y"])
    x, y = pl.col("x"), pl.col("y").cast(_F64)
    slope = pl.when(x.var(ddof=0) > 0).then(pl.cov(x, y, ddof=0) / x.var(ddof=0))
    r_squared = pl.when((x.var(ddof=0) > 0) & (y.var(ddof=0) > 0)).then(pl.corr(x, y) ** 2)
    return points.select(
        price_slope_ns=slope, price_r_squared=r_squared, price_point_count=pl.len().cast(_I64)
    )


def _saving() -> pl.Expr:
    """What a row would save per step if its max/mean were 1; null where the line is no good."""
    holds = (
        (pl.col("price_point_count") >= PRICE_POINTS)
        & (pl.col("price_r_squared") >= PRICE_R_SQUARED)
        & (pl.col("price_slope_ns") > 0)
    )
    return pl.when(holds).then(pl.col("price_slope_ns") * pl.col("excess"))


ANALYSIS = Analysis(
    name="experts",
    question="Are the experts balanced, and what does it cost that they are not?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
