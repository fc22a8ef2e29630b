"""What all-to-alls cost: by role and phase, by layer and rank, and how fast they move bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview import units
from traceview.reports import alltoall as pages
from traceview.reports import latencies
from traceview.reports.figures import _theme
from traceview.reports.figures import alltoall as figures
from traceview.reports.figures import latencies as distributions
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

if TYPE_CHECKING:
    from collections.abc import Iterator


BY_KIND = ("alltoall", ("role", "phase"))
BY_PLACE = ("alltoall", ("layer", "rank"))
SPREAD = ("latencies", ("collective", "role", "phase"))
BY_SPEED = ("alltoall", ("role", "layer", "step"))
NONE = (
    "no all-to-all, dispatch or combine was recorded. Dense models have none; else check under Data quality "
    "whether the kernels of the transport are known."
)
NO_LAYERS = "Layer by rank needs layer annotations: record_function or NVTX ranges with the layer's number."
NO_BYTES = "Bandwidth needs the bytes of each exchange, which this transport does not record."


def build(answers: Answers) -> SectionData:
    """The table by role and phase, then where and how fast."""
    rows = answers.frames[BY_KIND]
    if rows.is_empty():
        return SectionData(reason=NONE)
    found = tuple(_figures(answers))
    drawn = {figure.id for figure in found}
    remarks = (("alltoall-places", NO_LAYERS), ("alltoall-speed", NO_BYTES))
    lacking = [text for name, text in remarks if name not in drawn]
    page = pages.page(answers.about, rows, ())
    return SectionData(body(page, answers.about), found, " ".join(lacking))


def _figures(answers: Answers) -> Iterator[Figure]:
    by_place, by_speed = answers.frames[BY_PLACE], answers.frames[BY_SPEED]
    spread = answers.frames[SPREAD].filter(pl.col("collective") == "all_to_all")
    if len(spread):
        yield Figure(
            "alltoall-latencies",
            "share of all-to-alls that take no longer",
            latencies.sentence(latencies.wide(spread)),
            distributions.curves(spread),
            tuple(
                View(measure, partial(distributions.by_kind, spread, measure))
                for measure in distributions.MEASURES
                if distributions.curves(spread)[f"{measure} ms"].count()
            ),
            distributions.legend(spread),
            "Waiting lasts until the last rank has arrived; the rest is transfer.",
        )
    places = figures.places(by_place)
    if places["layer"].n_unique() > 1 or places["rank"].n_unique() > 1:
        known = [measure for measure in figures.MEASURES if places[f"{measure} ms"].count()]
        yield Figure(
            "alltoall-places",
            "all-to-alls by layer and rank, ms per op",
            _slowest(places),
            places,
            tuple(View(measure, partial(figures.by_place, by_place, measure)) for measure in known),
            method="Waiting and transfer are means over exchanges recorded whole."
            + _theme.merging(places["rank"].n_unique(), places["layer"].n_unique()),
        )
    speeds = figures.speeds(by_speed)
    if len(speeds):
        roles = speeds["role"].unique().sort().to_list()
        yield Figure(
            "alltoall-speed",
            "bus bandwidth of the transfer alone, by bytes sent",
            _speed(speeds),
            speeds,
            (View("", lambda: figures.by_speed(by_speed)),),
            tuple((role, _theme.ROLES.get(role, _theme.TEXT)) for role in roles),
            "Dashed: what links or published measurements allow. A point is the median of a layer and step.",
        )


def _slowest(places: pl.DataFrame) -> str:
    row = _largest(places, "median ms")
    median = units.significant(row["median ms"])
    text = f"The slowest median, {median} ms, is layer {row['layer']} on rank {row['rank']}"
    if places["waiting ms"].count() == 0:
        return f"{text}."
    most = _largest(places, "waiting ms")
    return (
        f"{text}; rank {most['rank']} waits longest for others, "
        f"{units.significant(most['waiting ms'])} ms per op in layer {most['layer']}."
    )


def _largest(places: pl.DataFrame, column: str) -> dict[str, Any]:
    known = places.drop_nulls(column)
    return known.sort(column, "layer", "rank", descending=[True, False, False]).row(0, named=True)


def _speed(speeds: pl.DataFrame) -> str:
    rate, expected = np.median(speeds["bus GB/s"].to_numpy()), speeds["expected GB/s"].drop_nulls()
    text = f"The median is {units.significant(rate)} GB/s"
    if expected.is_empty():
        return f"{text}; what to expect of this hardware is not known."
    most = expected.to_numpy().max()
    return f"{text}, {units.percent(rate / most)} of the {units.significant(most)} GB/s to expect."


SECTION = Section("alltoall", "All-to-all", 50, (BY_KIND, SPREAD, BY_PLACE, BY_SPEED), build)
