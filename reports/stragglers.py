"""The page of ``traceview stragglers``: who makes whom wait, what it costs, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.reports import margins
from traceview.reports.findings import SUSPECTS
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 16
MATRIX_RANKS = 16
"""A matrix of more ranks than this is no longer read; it is in the CSV of ``--by victim``."""

NOBODY = "nobody"
NONE = "No exchange was recorded whole, by all of its ranks, so it cannot be told who waited for whom."
REASONS = {
    "more_tokens": "it received more tokens",
    "slower_kernels": "the same kernels take longer on it",
    "late_launch": "its host launched late",
    "earlier_comm": "an earlier communication kept it",
    None: "for reasons the traces do not tell",
}
_PLACES = ("step", "axis", "collective", "layer", "phase")
_KEYS = ("rank", "victim", *_PLACES)
_HEADS = ("waiting ms", "%", "last in", "of", "lag p50 ms", "p95 ms")


def page(
    about: About,
    rows: pl.DataFrame,
    found: Sequence[Notice],
    *,
    matrix: pl.DataFrame | None = None,
    every_notice: bool = False,
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `stragglers` in the grain asked for.
        matrix: Its `stragglers` by victim; None where it would not be read.
        found: Diagnostics, grouped.
        every_notice: Show all of them.
    """
    blocks: list[Block] = [Facts(tuple(margins.facts(about)))]
    if len(rows):
        blocks += [*_grid(rows), *_matrix(about.ranks, matrix), *_remarks(rows)]
    return [*blocks, *margins.foot(about, found, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember about a `stragglers` result of any grain."""
    if not len(rows):
        return NONE
    total, cost = _total(rows), pl.col("blamed_ns")
    row = rows.sort(cost, descending=True, maintain_order=True).row(0, named=True)
    if not row["blamed_ns"]:
        waiting = f"; {units.duration(total)} of exposed waiting is blamed on nobody" if total else ""
        return f"No rank is later than can be told from the others{waiting}."
    cost_text, share = f"{units.duration(_each(row))}{_per(row)}", units.percent(row["blamed_ns"] / total)
    return (
        f"{_who(row)} wait {cost_text}{_where(row)}: {share} of all exposed waiting, "
        f"{_why(row)}.{_suspicion(row)}"
    )


def _who(row: Mapping[str, Any]) -> str:
    if row["rank"] is None:
        return "Late ranks make others"
    whom = "others" if row["victim"] is None else f"rank {row['victim']}"
    warning = "No straggler is persistent. " if row["kind"] == "wandering" else ""
    return f"{warning}Rank {row['rank']} makes {whom}"


def _where(row: Mapping[str, Any]) -> str:
    return "".join(f", {key} {row[key]}" for key in _PLACES if row[key] is not None)


def _why(row: Mapping[str, Any]) -> str:
    cause = row["cause"]
    if cause is None:
        return f"mostly {REASONS[None]}"
    return f"{units.percent(row[f'{cause}_ns'] / row['blamed_ns'])} of that because {REASONS[cause]}"


def _suspicion(row: Mapping[str, Any]) -> str:
    if not row["suspect"]:
        return ""
    return f" Suspect: its {SUSPECTS.get(row['suspect'], row['suspect'])}; {row['evidence']}."


# --- tables ------------------------------------------------------------------------------------------


def _grid(rows: pl.DataFrame) -> Iterator[Block]:
    by_rank = rows["rank"].count() > 0
    keys = [key for key in _KEYS if rows[key].count()]
    labels = (*keys, "cause", "kind", "suspect") if by_rank else (*keys, "cause")
    total, shown = _total(rows), rows.head(ROWS)
    lines = tuple(
        (*(_label(row, label) for label in labels), *_cells(row, total))
        for row in shown.iter_rows(named=True)
    )
    per = " per step" if rows["step_count"].max() else ""
    title = (
        f"exposed waiting{per}, by who was waited for" if by_rank else f"exposed waiting for late ranks{per}"
    )
    yield Grid(title, (*labels, *_HEADS), lines, label_count=len(labels))
    yield from margins.more_rows(len(rows), len(shown))


def _label(row: Mapping[str, Any], key: str) -> str:
    if key == "rank" and row["rank"] is None:
        return NOBODY
    value = row[key]
    return "" if value is None else str(value).replace("_", " ") if key == "cause" else str(value)


def _cells(row: Mapping[str, Any], total_ns: int) -> tuple[str, ...]:
    waiting = row["blamed_ns"] + row["unblamed_ns"]
    steps = row["step_count"] or 1
    return (
        units.milliseconds(waiting / steps),
        units.percent_value(waiting / total_ns if total_ns else None),
        units.count(row["blamed_count"]),
        units.count(row["complete_count"]),
        units.milliseconds(row["lag_p50_ns"]),
        units.milliseconds(row["lag_p95_ns"]),
    )


def _matrix(ranks: Sequence[int], matrix: pl.DataFrame | None) -> Iterator[Block]:
    """Who waited for whom: a row per late rank, a column per rank that waited."""
    if matrix is None or not _total(matrix):
        return
    waited = {(row["rank"], row["victim"]): row for row in matrix.iter_rows(named=True)}
    late = [rank for rank in (*ranks, None) if any((rank, victim) in waited for victim in ranks)]
    lines = tuple(
        (NOBODY if rank is None else str(rank), *(_cell(waited.get((rank, victim))) for victim in ranks))
        for rank in late
    )
    per = " per step" if matrix["step_count"].max() else ""
    yield Grid(
        f"ms of exposed waiting{per}: for the rank on the left, of the rank above",
        ("rank", *map(str, ranks)),
        lines,
    )


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return units.milliseconds((row["blamed_ns"] + row["unblamed_ns"]) / (row["step_count"] or 1))


def _remarks(rows: pl.DataFrame) -> Iterator[Block]:
    if uncertainty := rows.select(pl.col("uncertainty_ns").max()).item():
        within = units.duration(uncertainty)
        yield Note(f"hosts' clocks agree within {within} (95 %); a smaller lead blames nobody", "info")


# --- figures -----------------------------------------------------------------------------------------


def _total(rows: pl.DataFrame) -> int:
    """All exposed waiting, blamed or not; every grain adds up to it."""
    return int(rows.select(pl.col("blamed_ns").sum() + pl.col("unblamed_ns").sum()).item())


def _each(row: Mapping[str, Any]) -> float:
    """Blame per step, or in all where nothing marks steps."""
    return float(row["blamed_ns"] / (row["step_count"] or 1))


def _per(row: Mapping[str, Any]) -> str:
    return " per step" if row["step_count"] else ""
