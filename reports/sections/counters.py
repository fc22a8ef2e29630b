"""What memory, SMs, DRAM and links read, and what while communication was exposed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.reports import counters as pages
from traceview.reports.figures import counters as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

if TYPE_CHECKING:
    from collections.abc import Iterator

BY_METRIC, BY_STATE, BY_STEP = ("counters", ("metric",)), ("counters", ("state",)), ("counters", ("step",))


def build(answers: Answers) -> SectionData:
    """Means by what the device did and from step to step, and the statistics of every metric."""
    rows, states = answers.frames[BY_METRIC], answers.frames[BY_STATE]
    if rows.is_empty():
        recording = "; ".join(pages.RECORDING)
        return SectionData(reason=f"no counters were recorded. To record {recording}.")
    page = pages.page(answers.about, rows, (), states=states, every_notice=False)
    return SectionData(body(page, answers.about)[1:], tuple(_figures(states, answers.frames[BY_STEP])))


def _figures(states: pl.DataFrame, steps: pl.DataFrame) -> Iterator[Figure]:
    known = figures.units_of(states)
    if known:
        yield Figure(
            "counters-states",
            "mean of each counter by what the device did",
            pages.sentence(states),
            pl.concat([figures.means(states, unit) for unit in known], how="diagonal"),
            tuple(View(figures.unit_of(unit)[0], partial(figures.by_state, states, unit)) for unit in known),
            figures.PARTS,
            "A sample speaks for a state only where nearly all of its time lies in it.",
        )
    for number, unit in enumerate(figures.units_of(steps)):
        table = figures.over_steps(steps, unit)
        if table["step"].n_unique() < 2:
            continue
        shown, _ = figures.unit_of(unit)
        yield Figure(
            f"counters-steps-{number}",
            f"mean of each counter per step, {shown}",
            _range(table, shown),
            table,
            (View("", partial(figures.by_step, steps, unit)),),
            figures.colours(table["metric"].unique(maintain_order=True).to_list()),
        )


def _range(table: pl.DataFrame, unit: str) -> str:
    """The metric whose mean moves most from step to step."""
    mean = pl.col(f"mean {unit}")
    spread = table.group_by("metric").agg(low=mean.min(), high=mean.max())
    row = spread.sort(pl.col("low") - pl.col("high"), "metric").row(0, named=True)
    ends = (f"{units.significant(row[end])} {unit}" for end in ("low", "high"))
    return f"{row['metric']} moves most: from {' to '.join(ends)} between steps."


SECTION = Section("counters", "Counters", 115, (BY_METRIC, BY_STATE, BY_STEP), build)
