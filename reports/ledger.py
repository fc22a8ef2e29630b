"""The page of ``traceview ledger``: every nanosecond of the step on one row, and what waiting costs."""

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
METHOD = (
    "exclusive: a moment stands on one row only, compute first, then communication, copies, idle; "
    "rows add up to the window in whole ns"
)
_KEYS = ("rank", "device", "step", "layer", "phase")
_NAMES = {"several": "several at once", "copy": "copies"}
_SPLIT = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns")


def page(
    about: About, rows: pl.DataFrame, notices: Sequence[Notice], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `ledger` in the grain asked for.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    blocks: list[Block] = [Facts((*margins.facts(about), ("method", METHOD)))]
    if len(rows):
        blocks.append(_grid(rows))
    blocks += margins.more_rows(len(rows), ROWS)
    if uncertainty := int(rows["uncertainty_ns"].sum()):
        within = units.duration(uncertainty)
        blocks.append(Note(f"between waiting and transferring, ± {within} in all: clocks of hosts", "info"))
    return [*blocks, *margins.foot(about, notices, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember about a `ledger` of any grain."""
    total = int(rows["time_ns"].sum())
    if not total:
        return "No device work was recorded, so there is nothing to enter."
    expert = rows.filter((pl.col("part") == "comm") & (pl.col("axis") == "ep"))
    if not len(expert):
        others = rows.filter(pl.col("part").is_in(["comm", "several"]))
        share = units.percent(int(others["time_ns"].sum()) / total)
        return f"No expert-parallel exchange was recorded; exposed communication takes {share} of the time."
    wait, transfer, unsplit = (int(expert[name].sum()) for name in _SPLIT)
    tax = f"Expert parallelism takes {units.percent((wait + transfer + unsplit) / total)} of the time"
    if not wait + transfer:
        return f"{tax}; waiting and moving bytes cannot be told apart without all ranks."
    parts = [
        f"{units.percent(wait / total)} waiting for the last rank",
        f"{units.percent(transfer / total)} moving bytes",
        *([f"{units.percent(unsplit / total)} not to be split without all ranks"] if unsplit else []),
    ]
    return f"{tax}: {', '.join(parts)}."


def _grid(rows: pl.DataFrame) -> Grid:
    keys = [name for name in _KEYS if rows[name].count()]
    if "device" in keys and rows.select("rank", "device").n_unique() == rows["rank"].n_unique():
        keys.remove("device")
    per = "step" if rows["window_count"].max() != 1 or rows["step"].count() else "window"
    heads = (
        *keys,
        "what",
        f"ms per {per}",
        "%",
        "waiting ms",
        "transferring ms",
        "not split ms",
        "hidden ms",
    )
    lines = tuple(_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid("where every nanosecond goes, per rank and window", heads, lines, label_count=len(keys) + 1)


def _cells(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    windows = row["window_count"]
    times = [row["time_ns"], *(row[name] for name in _SPLIT), row["hidden_ns"]]
    spent, *split = (units.milliseconds(None if time is None else time / windows) for time in times)
    share = units.percent_value(row["time_ratio"])
    return (*("" if row[key] is None else str(row[key]) for key in keys), _name(row), spent, share, *split)


def _name(row: Mapping[str, Any]) -> str:
    part = str(row["part"])
    words = (row["axis"], row["role"]) if part == "comm" else (_NAMES.get(part, part),)
    return " ".join(str(word) for word in words if word is not None)
