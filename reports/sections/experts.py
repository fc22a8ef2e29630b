"""How evenly the experts' ranks are loaded, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.reports import experts as pages
from traceview.reports.figures import _theme
from traceview.reports.figures import experts as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

if TYPE_CHECKING:
    from collections.abc import Iterator


BY_LAYER, BY_PLACE = ("experts", ("layer",)), ("experts", ("layer", "rank"))
REMEDY = "Record split sizes (NCCL, PyTorch 2.3 or newer, ProfilerActivity.CPU) or record_shapes=True."


def build(answers: Answers) -> SectionData:
    """Max/mean by layer, and every rank's load."""
    rows = answers.frames[BY_LAYER]
    if rows.is_empty():
        return SectionData(reason=f"{pages.NONE} {REMEDY}")
    page = pages.page(answers.about, rows, ())
    return SectionData(body(page, answers.about), tuple(_figures(rows, answers.frames[BY_PLACE])))


def _figures(by_layer: pl.DataFrame, by_place: pl.DataFrame) -> Iterator[Figure]:
    balance = figures.balance(by_layer)
    if len(balance):
        worst = balance.sort("max/mean per exchange", "layer", descending=[True, False]).row(0, named=True)
        yield Figure(
            "experts-layers",
            "load of the most loaded rank over the mean",
            f"Least even is layer {worst['layer']}: in its median exchange the most loaded rank has "
            f"{units.significant(worst['max/mean per exchange'])} times the mean load.",
            balance,
            (View("", lambda: figures.by_layer(by_layer)),),
            figures.BALANCE,
            "1 is balanced.",
        )
    loads = figures.loads(by_place)
    if len(loads):
        hottest = loads.sort(-pl.col("load / mean"), "layer", "rank").row(0, named=True)
        yield Figure(
            "experts-places",
            "load of each rank over the mean, by layer",
            f"The hottest is rank {hottest['rank']} in layer {hottest['layer']}, with "
            f"{units.significant(hottest['load / mean'])} times the mean.",
            loads,
            (View("", lambda: figures.by_place(by_place)),),
            method="Over all exchanges of the layer; red is above the mean, blue below."
            + _theme.merging(loads["rank"].n_unique(), loads["layer"].n_unique()),
        )


SECTION = Section("experts", "Expert load", 70, (BY_LAYER, BY_PLACE), build)
