"""Every nanosecond on one row: what waiting and moving bytes cost."""

from __future__ import annotations

from traceview.reports import ledger as pages
from traceview.reports.figures import _bars
from traceview.reports.figures import ledger as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

BY_KIND, BY_RANK = ("ledger", ("kind",)), ("ledger", ("rank",))


def build(answers: Answers) -> SectionData:
    """The ledger, and the same per rank."""
    rows = answers.frames[BY_KIND]
    if not rows["time_ns"].sum():
        return SectionData(reason="no device work was recorded. Record ProfilerActivity.CUDA.")
    page = pages.page(answers.about, rows, ())
    by_rank = answers.frames[BY_RANK]
    table = figures.parts(by_rank)
    colours = _bars.used(table, figures.PARTS)
    views = (
        View("by rank", lambda: figures.by_rank(by_rank)),
        View("slowest first", lambda: _bars.upright(_bars.longest_first(table), colours)),
    )
    figure = Figure(
        "ledger-ranks",
        f"ms per rank and {answers.window}, expert-parallel exchanges split",
        pages.sentence(rows),
        table,
        views if len(table) > 1 else views[:1],
        colours,
        "Waiting lasts until the last rank of an exchange has arrived; the rest moves bytes.",
    )
    return SectionData(body(page, answers.about)[1:], (figure,))


SECTION = Section("ledger", "The ledger of the step", 31, (BY_KIND, BY_RANK), build)
