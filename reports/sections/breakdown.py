"""Where the step goes, rank by rank."""

from __future__ import annotations

import polars as pl

from traceview import units
from traceview.reports.figures import _bars
from traceview.reports.figures import breakdown as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View

NONE = "no device work was recorded. Record ProfilerActivity.CUDA."


def build(answers: Answers) -> SectionData:
    """Stacked bars per rank."""
    rows = answers.of("breakdown", "rank")
    if not rows["window_ns"].sum():
        return SectionData(reason=NONE)
    table = figures.parts(rows)
    views = (
        View("by rank", lambda: figures.by_rank(rows)),
        View("slowest first", lambda: _bars.upright(_bars.longest_first(table), figures.PARTS)),
    )
    figure = Figure(
        "breakdown-ranks",
        f"ms per rank and {answers.window}",
        _caption(rows, answers.window),
        table,
        views if len(rows) > 1 else views[:1],
        _bars.used(table, figures.PARTS),
        "Parts add up to the window exactly.",
    )
    return SectionData(figures=(figure,))


def _caption(rows: pl.DataFrame, window: str) -> str:
    whole = int(rows["window_ns"].sum())
    parts = {"compute": "compute_ns", "exposed communication": "exposed_comm_ns", "idle": "idle_ns"}
    shares = ", ".join(
        f"{units.percent(int(rows[column].sum()) / whole)} {name}" for name, column in parts.items()
    )
    each = rows.select("rank", ns=pl.col("window_ns") / pl.col("window_count")).sort("ns", "rank")
    (fast, shortest), (slow, longest) = each.row(0), each.row(-1)
    if len(rows) == 1:
        return f"Of a {window} of {units.duration(longest)}: {shares}."
    if units.duration(shortest) == units.duration(longest):
        return f"Over all ranks: {shares}; a {window} takes {units.duration(longest)} on every rank."
    return (
        f"Over all ranks: {shares}; a {window} takes {units.duration(shortest)} on rank {fast} and "
        f"{units.duration(longest)} on rank {slow}."
    )


SECTION = Section(
    "breakdown", "Where the step goes", 30, (("breakdown", ("rank",)),), build, command="summary"
)
