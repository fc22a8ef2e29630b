"""The shapes of the HTML report: a `Section` per question, its `SectionData`, and `Figure`s drawn late.

A section is one module of `traceview.reports.sections` that declares ``SECTION``; `traceview.registry` finds
it. Its blocks are those of the terminal pages (`traceview.reports.layout`), so both say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from traceview.comparisons.compare import Comparison
    from traceview.reports.about import About
    from traceview.reports.inventory import Inventory
    from traceview.trace import Trace
    from traceview.utilization import Utilization

Question = tuple[str, tuple[str, ...]]
"""An analysis and the grain it is asked in."""

TABLE_ROWS = 200
"""Rows of a figure's table on the page."""

CSV_ROWS = 1_000
"""Rows of a figure's CSV, which lies inside the page; ``--json`` has all of them."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What there is to show of one run.

    Attributes:
        about: Which run.
        window: What one window is called: "step" or "window".
        inventory: What the traces hold and lack.
        frames: Results by question.
        traces: The ranks, for what shows single events.
        utilization: Throughput and MFU, as far as traces and run.toml tell.
        comparison: The run against its baseline, if there is one, and the baseline.
    """

    about: About
    window: str
    inventory: Inventory
    frames: Mapping[Question, pl.DataFrame]
    traces: tuple[Trace, ...] = ()
    utilization: Utilization | None = None
    comparison: tuple[About, Comparison] | None = None

    def of(self, name: str, *by: str) -> pl.DataFrame:
        """The answer of analysis ``name`` in the grain ``by``."""
        return self.frames[name, by]


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a figure; ``draw`` makes a HoloViews element, or a `Timeline`, when it is needed."""

    label: str
    draw: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, and the numbers it shows.

    Attributes:
        id: Unique on the page; letters, digits and dashes.
        title: What is drawn, over what, in which unit.
        caption: What it shows, in one sentence with numbers.
        data: The numbers behind it, as they are to be read: names carry units.
        views: At least one; the first is shown, the others can be chosen.
        legend: Names and colours, in the order drawn.
        method: How the numbers were found, where that is not plain.
        is_interactive: Whether it has controls of its own, and is thus more than a picture.
    """

    id: str
    title: str
    caption: str
    data: pl.DataFrame
    views: tuple[View, ...]
    legend: tuple[tuple[str, str], ...] = ()
    method: str = ""
    is_interactive: bool = False

    @property
    def table(self) -> Grid:
        """The first `TABLE_ROWS` rows of the data as text."""
        shown = self.data.head(TABLE_ROWS)
        labels = 0
        while labels < shown.width and not shown.dtypes[labels].is_float():
            labels += 1
        rows = tuple(tuple(map(_cell, row)) for row in shown.iter_rows())
        return Grid("", tuple(shown.columns), rows, label_count=labels)

    @property
    def csv(self) -> str:
        """The first `CSV_ROWS` rows of the data, as they are."""
        finite = pl.when(cs.float().is_finite()).then(cs.float())
        return self.data.head(CSV_ROWS).with_columns(finite.name.keep()).write_csv()


@dataclass(frozen=True, slots=True)
class SectionData:
    """What a section shows.

    Attributes:
        blocks: Text and tables; a leading `Verdict` is the section's one line to remember.
        figures: Pictures, in order.
        reason: Why there is nothing to show, or less than there could be, and how to record it.
    """

    blocks: tuple[Block, ...] = ()
    figures: tuple[Figure, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report.

    Attributes:
        name: Name of the module, and anchor on the page.
        title: Heading.
        order: Place on the page, lowest first.
        questions: Answers that `build` looks at.
        build: Makes the content, of `Answers`, or of the runs of a `scaling_report`; None where the section
            does not concern this report. Pure.
        command: What shows the same on the terminal; else the command named after the first question.
    """

    name: str
    title: str
    order: int
    questions: tuple[Question, ...]
    build: Callable[[Any], SectionData | None]
    command: str = ""

    @property
    def verb(self) -> str:
        """The command that shows the same on the terminal."""
        return self.command or (self.questions[0][0] if self.questions else "info")


def body(blocks: Sequence[Block], about: About) -> tuple[Block, ...]:
    """A terminal page without what the report's head says already; its verdict comes first."""
    known = {*margins.facts(about), *margins.recorded(about)}
    kept = [_without(block, known) if isinstance(block, Facts) else block for block in blocks]
    full = [block for block in kept if not (isinstance(block, Facts) and not block.pairs)]
    return tuple(sorted(full, key=lambda block: not isinstance(block, Verdict)))


def _without(facts: Facts, known: set[tuple[str, str]]) -> Facts:
    return Facts(tuple(pair for pair in facts.pairs if pair not in known), facts.title)


def _cell(value: object) -> str:
    match value:
        case None:
            return units.MISSING
        case bool():
            return "yes" if value else "no"
        case float():
            return units.significant(value, 4)
        case _:
            return str(value)
