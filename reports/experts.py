"""The page of ``traceview experts``: how even the loads are, and what evenness would be worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 40
SOURCES = {
    "splits": "rows received, from the split lists of the dispatch",
    "bytes": "bytes received by the dispatch",
    "shapes": "rows of the grouped GEMMs, from recorded shapes (padding included)",
    "grouped_gemm": "duration of the grouped GEMMs: a stand-in, since no rows were recorded",
}
NONE = "No grouped GEMM and no dispatch was recorded, so there are no experts to balance."
_KEYS = ("group_key", "step", "layer", "rank")


def page(
    about: About, rows: pl.DataFrame, notices: Sequence[Notice], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `experts` in the grain asked for.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    blocks: list[Block] = [Facts((*margins.facts(about), *_about_loads(rows)))]
    if len(rows):
        blocks.append(_grid(rows))
    blocks += margins.more_rows(len(rows), ROWS)
    blocks += [Note(reason, "missing") for reason in rows["reason"].drop_nulls().unique().sort()]
    return [*blocks, *margins.foot(about, notices, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember about an `experts` result of any grain."""
    if not len(rows):
        return NONE
    known = rows.drop_nulls("exchange_max_over_mean")
    if not len(known):
        reasons = rows["reason"].drop_nulls().to_list()
        return f"Balance cannot be told: {reasons[0]}."
    if known["is_forced"].all():
        return "Loads are equal: balance looks forced or synthetic, which says nothing about real routing."
    worst = known.sort("exchange_max_over_mean", descending=True).row(0, named=True)
    where = " ".join(f"{key} {worst[key]}" for key in ("step", "layer") if worst[key] is not None)
    factor = units.significant(worst["exchange_max_over_mean"])
    of = f" of {where}, the least even" if where else ""
    return (
        f"In the median exchange{of}, the most loaded rank has {factor} times the mean load; {_price(known)}."
    )


def _price(known: pl.DataFrame) -> str:
    """What the rows would save together: summed over layers, the mean over everything else."""
    line = known.row(0, named=True)
    if line["saving_ns"] is None:
        return "what that costs is not clear from these exchanges"
    of_layers = known.group_by("layer").agg(pl.col("saving_ns").mean())
    saving = units.duration(float(of_layers["saving_ns"].sum()))
    fit = units.significant(line["price_r_squared"])
    return (
        f"perfect balance would save at most {saving}/step "
        f"(R² {fit} over {units.plural(line['price_point_count'], 'exchange')})"
    )


def _about_loads(rows: pl.DataFrame) -> list[tuple[str, str]]:
    if not len(rows):
        return []
    evidence = str(rows["evidence"][0])
    return [
        ("load of a rank", SOURCES[evidence]),
        ("counts per expert", "not recorded; figures are per rank"),
    ]


def _grid(rows: pl.DataFrame) -> Grid:
    keys = [name for name in _KEYS if rows[name].count()]
    own = ("load", "load / mean") if "rank" in keys else ()
    heads = (
        *keys,
        *own,
        "ranks",
        "exchanges",
        "max/mean",
        "max/mean per exchange",
        "CV %",
        "Gini",
        "entropy",
        "zero %",
        "hottest rank",
        "forced",
        "saving ms/step",
    )
    lines = tuple(_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid("balance of the ranks' loads", heads, lines, label_count=len(keys))


def _cells(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    own = (_figure(row["load"]), _figure(row["load_over_mean"])) if "rank" in keys else ()
    forced = {True: "yes", False: "no", None: units.MISSING}[row["is_forced"]]
    return (
        *("" if row[key] is None else str(row[key]) for key in keys),
        *own,
        units.count(row["rank_count"]),
        units.count(row["exchange_count"]),
        _figure(row["max_over_mean"]),
        _figure(row["exchange_max_over_mean"]),
        units.percent_value(row["cv"]),
        _figure(row["gini"]),
        _figure(row["entropy_ratio"]),
        units.percent_value(row["zero_ratio"]),
        units.MISSING if row["hottest_rank"] is None else str(row["hottest_rank"]),
        forced,
        units.milliseconds(row["saving_ns"]),
    )


def _figure(value: float | None) -> str:
    return units.MISSING if value is None else units.significant(value)
