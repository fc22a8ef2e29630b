"""Where the step goes, rank by rank."""

from __future__ import annotations

import polars as pl

from traceview import units
from traceview.reports.figures import breakdown as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View


def build(answers: Answers) -> SectionData:
    """Stacked bars per rank."""
    rows = answers.of("breakdown", "rank")
    if not rows["window_ns"].sum():
        return SectionData(reason="No device work was recorded: record ProfilerActivity.CUDA.")
    table = figures.parts(rows)
    views = (
        View("by rank", lambda: figures.by_rank(rows)),
        View("slowest first", lambda: figures.stacked_ranks(figures.slowest_first(table), figures.PARTS)),
    )
    figure = Figure(
        "breakdown-ranks",
        f"where the {answers.window} goes, ms per rank and {answers.window}",
        _caption(rows, answers.window),
        table,
        views if len(rows) > 1 else views[:1],
        figures.PARTS,
    )
    return SectionData(figures=(figure,))


def _caption(rows: pl.DataFrame, window: str) -> str:
    each = rows.select("rank", length=pl.col("window_ns") / pl.col("window_count"), idle=pl.col("idle_ns"))
    shortest, longest = each.sort("length", "rank").row(0), each.sort("length", "rank").row(-1)
    whole = int(rows["window_ns"].sum())
    parts = (
        (column, units.percent(int(rows[name].sum()) / whole))
        for column, name in (
            ("compute", "compute_ns"),
            ("exposed communication", "exposed_comm_ns"),
            ("idle time", "idle_ns"),
        )
    )
    shares = ", ".join(f"{share} {name}" for name, share in parts)
    if len(rows) == 1:
        return f"Of a {window} of {units.duration(longest[1])}: {shares}."
    return (
        f"Over all ranks: {shares}; a {window} takes {units.duration(shortest[1])} on rank {shortest[0]} "
        f"and {units.duration(longest[1])} on rank {longest[0]}."
    )


SECTION = Section("breakdown", "Where the step goes", 30, (("breakdown", ("rank",)),), build)
