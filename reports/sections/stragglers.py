"""Who makes whom wait, step by step and pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview import units
from traceview.reports import stragglers as pages
from traceview.reports.figures import _theme
from traceview.reports.figures import stragglers as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

if TYPE_CHECKING:
    from collections.abc import Iterator


BY_RANK, BY_STEP, BY_PAIR = (("stragglers", by) for by in (("rank",), ("rank", "step"), ("victim",)))
TOP = 10


def build(answers: Answers) -> SectionData:
    """The ranks that cost most, lag by step, and the matrix of blame."""
    rows = answers.frames[BY_RANK]
    if rows.is_empty():
        return SectionData(reason=f"{pages.NONE} Record every rank of the job over the same steps.")
    page = pages.page(answers.about, rows.head(TOP), ())
    return SectionData(body(page, answers.about), tuple(_figures(answers)))


def _figures(answers: Answers) -> Iterator[Figure]:
    by_step, by_pair, ranks = answers.frames[BY_STEP], answers.frames[BY_PAIR], answers.about.ranks
    late = figures.lateness(by_step)
    if late["waiting ms"].sum():
        worst = late.sort("waiting ms", "step", "rank", descending=[True, False, False]).row(0, named=True)
        yield Figure(
            "stragglers-steps",
            "what the others wait for each rank, ms summed over them",
            f"Most in one step: {units.significant(worst['waiting ms'])} ms for rank {worst['rank']} in step "
            f"{worst['step']}; a bright column is one slow rank, scattered cells are many.",
            late,
            (
                View("waiting caused", lambda: figures.by_step(by_step, ranks=ranks)),
                View("lateness when last", lambda: figures.by_step(by_step, "late", ranks=ranks)),
            ),
            method="Blank: never the last to arrive." + _theme.merging(len(ranks), late["step"].n_unique()),
        )
    pairs = figures.waits(by_pair)
    if pairs["waiting ms"].sum():
        worst = pairs.sort("waiting ms", "rank", "victim", descending=[True, False, False]).row(0, named=True)
        size = figures.block_size(by_pair)
        of = "rank" if size == 1 else f"the {size} ranks from"
        yield Figure(
            "stragglers-matrix",
            "who waits for whom, ms of exposed waiting per step",
            f"The dearest pair: {of} {worst['victim']} waits {units.significant(worst['waiting ms'])} ms per "
            f"step for {of} {worst['rank']}.",
            pairs,
            (View("", lambda: figures.matrix(by_pair)),),
            method="Ties, and leads within the residual of the clocks, blame nobody and are not drawn.",
        )


SECTION = Section("stragglers", "Stragglers", 60, (BY_RANK, BY_STEP, BY_PAIR), build)
