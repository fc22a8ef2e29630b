"""What overlap costs the kernels that communication runs beside."""

from __future__ import annotations

from traceview.reports import interference as pages
from traceview.reports.figures import interference as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

BY_CATEGORY, BY_STEP = ("interference", ("category",)), ("interference", ("step",))


def build(answers: Answers) -> SectionData:
    """The table by category, and how much of it is excess."""
    rows, steps = answers.frames[BY_CATEGORY], answers.frames[BY_STEP]
    sentence = pages.Total.of(steps).sentence()
    table = figures.parts(rows)
    if table.is_empty():
        return SectionData(reason=sentence)
    figure = Figure(
        "interference-categories",
        f"kernels under communication, ms per rank and {answers.window}",
        sentence,
        table,
        (View("", lambda: figures.by_category(rows)),),
        figures.PARTS,
    )
    page = pages.page(answers.about, rows, (), steps=steps, every_notice=False)
    return SectionData(body(page, answers.about)[1:], (figure,))


SECTION = Section("interference", "What overlap costs", 75, (BY_CATEGORY, BY_STEP), build)
