"""A whole report as data: cards, findings and sections of one run, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl

from traceview import stages, utilization
from traceview.errors import PluginError
from traceview.reports import inventory, json_, summary, text
from traceview.reports.cards import Card, Figures, cards
from traceview.reports.findings import KIND, Evidence
from traceview.reports.section import Answers, Question, Section, SectionData
from traceview.terms import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.comparisons.compare import Comparison
    from traceview.reports.about import About
    from traceview.reports.findings import Finding
    from traceview.reports.layout import Facts
    from traceview.reports.summary import Summary
    from traceview.run import Run
    from traceview.utilization import Utilization

WINDOWS: Question = ("breakdown", ("rank", "step"))
KINDS: Question = ("overlap", KIND)
LATENCY: Question = ("collectives", KIND)
BLAME: Question = ("stragglers", ("rank",))
LOADS: Question = ("experts", ("layer",))
EXCHANGES: Question = ("alltoall", ())
IDLE: Question = ("idle", ())
HEAD: tuple[Question, ...] = (
    WINDOWS,
    ("breakdown", ("rank",)),
    KINDS,
    LATENCY,
    BLAME,
    LOADS,
    EXCHANGES,
    IDLE,
)
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

    @property
    def verdict(self) -> str:
        """The one sentence to remember."""
        return self.summary.findings[0].text

    @property
    def head(self) -> Facts:
        """What the report is about."""
        return text.header(self.summary)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What costs most."""
        return self.summary.findings[1:]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every result by its question, such as ``alltoall by layer, rank``."""
        found = {
            f"{name} by {', '.join(by)}" if by else name: frame
            for (name, by), frame in sorted(self.answers.frames.items())
        }
        if self.answers.utilization is not None:
            found["mfu"] = self.answers.utilization.frame
        if self.answers.comparison is not None:
            _, compared = self.answers.comparison
            found |= {"compare": compared.totals, "compare changes": compared.changes}
            found |= {"compare kernels": compared.kernels, "compare configuration": compared.configuration}
        return found

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


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run that a report compares with.

    Attributes:
        about: Which run.
        figures: Its cards.
        comparison: The report's run against it.
    """

    about: About
    figures: Figures
    comparison: Comparison


def questions(sections: Sequence[Section]) -> tuple[Question, ...]:
    """Everything ``sections`` and the head of the page want to know, each question once."""
    return tuple(dict.fromkeys(chain(HEAD, *(section.questions for section in sections))))


def compose(
    run: Run,
    frames: Mapping[Question, pl.DataFrame],
    sections: Sequence[Section],
    *,
    title: str | None = None,
    baseline: Baseline | None = None,
) -> Report:
    """The report of ``run``.

    Args:
        run: The run.
        frames: The answers to `questions`.
        sections: Sections to show, those that do not concern this report left out.
        title: Of the page; else the name of the run.
        baseline: What the run is compared with.
    """
    whole, used = summarized(run, frames), _used(run, frames)
    answers = Answers(
        whole.about,
        whole.window,
        inventory.take(run),
        frames,
        run.traces,
        used,
        (baseline.about, baseline.comparison) if baseline else None,
    )
    built = [(section, _built(section, answers)) for section in sorted(sections, key=lambda one: one.order)]
    notes = [run.diagnostics, *([baseline.comparison.notes] if baseline else [])]
    return Report(
        title=title or run.name,
        summary=whole,
        cards=cards(
            _figures(whole, frames, used),
            baseline.figures if baseline else None,
            compared=baseline.comparison if baseline else None,
        ),
        sections=tuple((section, data) for section, data in built if data is not None),
        answers=answers,
        diagnostics=pl.concat(notes, how="vertical_relaxed"),
        baseline=baseline.about.name if baseline else None,
    )


def _built(section: Section, answers: Answers) -> SectionData | None:
    """What ``section`` shows; a plugin's section that fails says so, and costs no other section."""
    try:
        return section.build(answers)
    except PluginError as error:
        return SectionData(reason=str(error))


def figures(run: Run, frames: Mapping[Question, pl.DataFrame]) -> Figures:
    """What the cards show of ``run``, from the answers to `HEAD`."""
    return _figures(summarized(run, frames), frames, _used(run, frames))


def _figures(whole: Summary, frames: Mapping[Question, pl.DataFrame], used: Utilization) -> Figures:
    return Figures.of(whole.total, whole.step_time, frames[EXCHANGES], frames[BLAME], frames[IDLE], used)


def _used(run: Run, frames: Mapping[Question, pl.DataFrame]) -> Utilization:
    return utilization.of_run(run, frames[WINDOWS], Asked())


def summarized(run: Run, frames: Mapping[Question, pl.DataFrame]) -> Summary:
    """``run`` summed up, from the answers to `HEAD`."""
    return summary.summarize(
        run,
        windows=frames[WINDOWS],
        breakdown=frames["breakdown", ("rank",)],
        collectives=frames[KINDS],
        evidence=Evidence(frames[KINDS], frames[LATENCY], frames[BLAME], frames[LOADS]),
    )
