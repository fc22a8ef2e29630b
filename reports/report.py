"""A whole report as data: cards, findings and sections of one run, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl

from traceview import stages
from traceview.errors import PluginError
from traceview.reports import inventory, json_, summary
from traceview.reports.cards import Card, Figures, cards
from traceview.reports.findings import KIND, Evidence
from traceview.reports.section import Answers, Question, Section, SectionData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.reports.summary import Summary
    from traceview.run import Run

WINDOWS: Question = ("breakdown", ("rank", "step"))
KINDS: Question = ("overlap", KIND)
LATENCY: Question = ("collectives", KIND)
BLAME: Question = ("stragglers", ("rank",))
LOADS: Question = ("experts", ("layer",))
EXCHANGES: Question = ("alltoall", ())
HEAD: tuple[Question, ...] = (WINDOWS, ("breakdown", ("rank",)), KINDS, LATENCY, BLAME, LOADS, EXCHANGES)
"""What the head of the report, its cards and findings look at."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a page shows.

    Attributes:
        title: Of the page.
        summary: The run, summed up: its steps, findings and diagnostics.
        cards: Numbers to look at first.
        sections: Sections and what they show, in order.
        answers: Everything they were made from.
        diagnostics: Everything assumed, repaired or left out.
        baseline: Name of the run that the cards compare with, if any.
    """

    title: str
    summary: Summary
    cards: tuple[Card, ...]
    sections: tuple[tuple[Section, SectionData], ...]
    answers: Answers
    diagnostics: pl.DataFrame
    baseline: str | None = None

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every result by its question, such as ``alltoall by layer, rank``."""
        return {
            f"{name} by {', '.join(by)}" if by else name: frame
            for (name, by), frame in sorted(self.answers.frames.items())
        }

    def _tagged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``frame`` with the name of the run first, as every command's JSON has it."""
        return frame.select(pl.lit(self.summary.about.name).alias("run"), pl.all())

    def html(self, *, compact: bool = False) -> str:
        """The page; ``compact`` halves its size, for browsers of 2023 and newer."""
        from traceview.reports import html  # noqa: PLC0415 - loads Bokeh

        with stages.stage("render", "html"):
            return html.render(self, compact=compact)

    def json(self) -> str:
        """All numbers of the report as one JSON object."""
        return json_.document(
            "report",
            inputs=[self.summary.about.name],
            runs=[self.summary.about.as_dict()],
            diagnostics=self._tagged(self.diagnostics),
            tables={name: self._tagged(frame) for name, frame in self.tables().items()},
        )


def questions(sections: Sequence[Section]) -> tuple[Question, ...]:
    """Everything ``sections`` and the head of the page want to know, each question once."""
    return tuple(dict.fromkeys(chain(HEAD, *(section.questions for section in sections))))


def compose(
    run: Run,
    frames: Mapping[Question, pl.DataFrame],
    sections: Sequence[Section],
    *,
    title: str | None = None,
    baseline: tuple[str, Figures] | None = None,
) -> Report:
    """The report of ``run``.

    Args:
        run: The run.
        frames: The answers to `questions`.
        sections: Sections to show.
        title: Of the page; else the name of the run.
        baseline: Name and figures of the run that the cards compare with.
    """
    whole = summarized(run, frames)
    answers = Answers(whole.about, whole.window, inventory.take(run), frames, run.traces)
    built = tuple(
        (section, _built(section, answers)) for section in sorted(sections, key=lambda section: section.order)
    )
    return Report(
        title=title or run.name,
        summary=whole,
        cards=cards(_figures(whole, frames), baseline[1] if baseline else None),
        sections=built,
        answers=answers,
        diagnostics=run.diagnostics,
        baseline=baseline[0] if baseline else None,
    )


def _built(section: Section, answers: Answers) -> SectionData:
    """What ``section`` shows; a plugin's section that fails says so, and costs no other section."""
    try:
        return section.build(answers)
    except PluginError as error:
        return SectionData(reason=str(error))


def figures(run: Run, frames: Mapping[Question, pl.DataFrame]) -> Figures:
    """What the cards show of ``run``, from the answers to `HEAD`."""
    return _figures(summarized(run, frames), frames)


def _figures(whole: Summary, frames: Mapping[Question, pl.DataFrame]) -> Figures:
    return Figures.of(whole.total, whole.step_time, frames[EXCHANGES], frames[BLAME])


def summarized(run: Run, frames: Mapping[Question, pl.DataFrame]) -> Summary:
    """``run`` summed up, from the answers to `HEAD`."""
    return summary.summarize(
        run,
        windows=frames[WINDOWS],
        breakdown=frames["breakdown", ("rank",)],
        collectives=frames[KINDS],
        evidence=Evidence(frames[KINDS], frames[LATENCY], frames[BLAME], frames[LOADS]),
    )
