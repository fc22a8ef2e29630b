"""The page of ``traceview hideability``: which communication overlap could hide, and which it never can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 24
NAMED = 4
"""Kinds that the verdict names."""

METHOD = (
    "yes: compute as long as the transfer runs beside it; no: all transfers of its kind take longer than the "
    "compute of their layer and phase (of the step for gradients and parameters); else unknown"
)
_KEYS = ("rank", "device", "step", "axis", "collective", "role", "phase", "layer")
_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def page(about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, every_notice: bool) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `hideability` in the grain asked for.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    blocks: list[Block] = [Facts((*margins.facts(about), ("hideable", METHOD)))]
    if len(rows):
        blocks.append(_grid(rows))
    blocks += margins.more_rows(len(rows), ROWS)
    return [*blocks, *margins.foot(about, notices, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember about a `hideability` result of any grain."""
    count, hideable = int(rows["exchange_count"].sum()), int(rows["hideable_count"].sum())
    never = rows.filter(pl.col("unhideable_count") > 0).sort("unhideable_count", descending=True)
    if not count:
        return "No communication was recorded."
    if len(never):
        shown = [_never(row) for row in never.head(NAMED).iter_rows(named=True)]
        more = f" and {units.plural(len(never) - NAMED, 'more kind')}" if len(never) > NAMED else ""
        return f"No overlap setting can hide {', '.join(shown)}{more}: the transfers outlast the compute."
    if hideable == count:
        return "All communication has enough compute beside it to be hidden."
    return (
        f"No communication is shown to be beyond hiding; {units.count(hideable)} of "
        f"{units.plural(count, 'exchange')} have enough compute beside them, of the others it is unknown."
    )


def _grid(rows: pl.DataFrame) -> Grid:
    keys = [name for name in _KEYS if rows[name].count()]
    heads = (
        *keys,
        "ops",
        "ms per op",
        "transfer ms",
        "compute beside it ms",
        "transfer / compute in scope %",
        "needs GB/s",
        "reaches GB/s",
        "expected GB/s",
        "hideable",
    )
    lines = tuple(_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid("communication, and the compute that could hide it", heads, lines, label_count=len(keys))


def _cells(row: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    count, timed, transfer = row["exchange_count"], row["timed_count"], row["transfer_ns"]
    scope = row["scope_compute_ns"]
    rates = (row[f"{kind}_bytes_per_s"] for kind in ("required", "achieved", "expected"))
    return (
        *("" if row[key] is None else str(row[key]) for key in keys),
        units.count(count),
        units.milliseconds(row["dur_ns"] / count),
        units.milliseconds(transfer / timed if timed else None),
        units.milliseconds(row["slack_compute_ns"] / count),
        units.percent_value(transfer / scope if timed and scope else None),
        *(units.MISSING if rate is None else units.significant(rate / 1e9) for rate in rates),
        _ANSWERS[row["hideable"]],
    )


def _never(row: Mapping[str, Any]) -> str:
    counts = f"{units.count(row['unhideable_count'])} of {units.count(row['exchange_count'])}"
    if row["out_of_reach_count"]:
        counts += f", {units.count(row['out_of_reach_count'])} even at the expected bandwidth"
    return f"{_name(row)} ({counts})"


def _name(row: Mapping[str, Any]) -> str:
    parts = [str(row[key]) for key in ("axis", "collective", "role", "phase") if row[key] is not None]
    numbers = [f"{key} {row[key]}" for key in ("layer", "step", "rank") if row[key] is not None]
    return " ".join((*parts, *numbers)) or "all exchanges"
