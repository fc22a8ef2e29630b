"""Who sends how many bytes to whom."""

from __future__ import annotations

from traceview.reports import traffic as pages
from traceview.reports.figures import traffic as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

QUESTION = ("traffic", ("pair",))


def build(answers: Answers) -> SectionData:
    """The matrix and its largest pairs."""
    rows = answers.frames[QUESTION]
    table = figures.sent(rows)
    if table.is_empty():
        return SectionData(reason=f"{pages.NONE} {pages.REMEDY}")
    size = figures.block_size(rows)
    figure = Figure(
        "traffic-matrix",
        "bytes sent from rank to rank, MB over the steps looked at",
        pages.sentence(rows),
        table,
        (View("", lambda: figures.by_pair(rows)),),
        method="All-to-alls and transfers to one peer; own slices left out. Blank: nothing sent."
        + (f" A cell is {size} ranks by {size}." if size > 1 else ""),
    )
    page = pages.page(answers.about, rows, ())
    return SectionData(body(page, answers.about)[1:], (figure,))


SECTION = Section("traffic", "Communication matrix", 65, (QUESTION,), build)
