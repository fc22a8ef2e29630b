"""Which communication could be hidden, and which never."""

from __future__ import annotations

from traceview.reports import hideability as pages
from traceview.reports.findings import KIND
from traceview.reports.section import Answers, Section, SectionData, body

QUESTION = ("hideability", KIND)


def build(answers: Answers) -> SectionData:
    """The table by kind."""
    rows = answers.frames[QUESTION]
    if rows.is_empty():
        return SectionData(reason="no communication was recorded in the steps looked at.")
    page = pages.page(answers.about, rows, (), every_notice=False)
    return SectionData(body(page, answers.about))


SECTION = Section("hideability", "What could be hidden", 78, (QUESTION,), build)
