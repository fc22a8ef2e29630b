"""Which kernels take the time, and what mixture of experts adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.analyzers._moe_parts import TAXES
from traceview.reports import kernels as pages
from traceview.reports.figures import _bars
from traceview.reports.figures import kernels as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, BY_NAME = ("kernels", ("category",)), ("kernels", ("name",))
LEAST = 0.0005
"""Share of busy time from which on a tax is told."""

QUESTIONS = {
    "products": ("roofline", ("operator", "precision", "name")),
    "moe_parts": ("kernels", ("moe_part",)),
    "moe": ("kernels", ("is_moe",)),
    "sm_share": ("sm_share", ("axis", "category")),
    "copies": ("copies", ("kind",)),
}
"""Fields of `reports.kernels.Findings` beside the rows."""


def build(answers: Answers) -> SectionData:
    """Bars by family and part of the MoE layer, the single kernels, and the tables of the terminal page."""
    rows = answers.frames[ROWS]
    if rows.is_empty():
        return SectionData(reason="no kernel was recorded. Record ProfilerActivity.CUDA.")
    found = pages.Findings(rows, **{name: answers.frames[question] for name, question in QUESTIONS.items()})
    page = pages.page(answers.about, found, (), every_notice=False)
    names = pages.names(answers.frames[BY_NAME])
    return SectionData((*body(page, answers.about), names), tuple(_figures(found, answers.window)))


def _figures(found: pages.Findings, window: str) -> Iterator[Figure]:
    table = figures.shares(found.rows)
    yield Figure(
        "kernels-families",
        "share of busy time in which kernels of a family run, %",
        _busiest(table, window),
        table,
        (View("", lambda: figures.by_category(found.rows)),),
        _bars.used(table, figures.CLASSES, unit=figures.UNIT),
        "Unions of intervals: families that run at once count in each, so shares may exceed 100 %.",
    )
    parts = figures.moe_shares(found.moe_parts)
    if found.moe["is_moe"].any() and len(parts):
        yield Figure(
            "kernels-moe",
            "share of busy time in which a part of the mixture-of-experts layers runs, %",
            _tax(found.moe_parts),
            parts,
            (View("", lambda: figures.by_moe_part(found.moe_parts)),),
            _bars.used(parts, figures.MOE_PARTS, unit=figures.UNIT),
            "Parts are unions and may overlap. Tax: neither expert compute nor exchange.",
        )


def _busiest(table: pl.DataFrame, window: str) -> str:
    row = table.row(0, named=True)
    share = sum(row[f"{name} {figures.UNIT}"] or 0 for name, _ in figures.CLASSES) / 100
    time = units.significant(row["busy ms"])
    return (
        f"{row['family']} runs longest: {time} ms per rank and {window}, {units.percent(share)} of busy time."
    )


def _tax(parts: pl.DataFrame) -> str:
    taxes = parts.filter(pl.col("moe_part").is_in(TAXES) & (pl.col("busy_ratio") >= LEAST)).sort(
        -pl.col("busy_ns"), "moe_part"
    )
    if taxes.is_empty():
        return "Expert compute and exchange are all that runs for the experts."
    listed = ", ".join(
        f"{row['moe_part']} {units.percent(row['busy_ratio'])}" for row in taxes.iter_rows(named=True)
    )
    return f"Neither expert compute nor exchange, in shares of busy time: {listed}."


SECTION = Section("kernels", "Kernels", 110, (ROWS, BY_NAME, *QUESTIONS.values()), build)
