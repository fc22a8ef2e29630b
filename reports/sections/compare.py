"""What changed since the baseline, and whether chance could do it."""

from __future__ import annotations

from traceview.reports import compare as pages
from traceview.reports.figures import _changes
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body


def build(answers: Answers) -> SectionData | None:
    """The rows of the step with their differences, and the tables of ``traceview compare``."""
    if answers.comparison is None:
        return None
    baseline, found = answers.comparison
    page = pages.page((baseline, answers.about), found, ())
    rows = _changes.table(found.changes)
    if rows.is_empty():
        return SectionData(tuple(page[-1:]), reason="neither run has device work in its steps.")
    figure = Figure(
        "compare-ledger",
        f"difference of each part of the {answers.window}, ms per rank: A is the baseline, B this run",
        pages.sentence(found),
        rows,
        (View("", lambda: _changes.of_ledger(found.changes)),),
        _changes.legend(found.changes),
        "Bars add up to the difference of the step; whiskers are bootstrap intervals over steps, each of its "
        "row alone.",
    )
    return SectionData(body(page, answers.about)[1:], (figure,))


SECTION = Section("compare", "Compared with the baseline", 25, (), build, command="compare")
