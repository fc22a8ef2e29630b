"""Where the device idles, and whether its host was late."""

from __future__ import annotations

from traceview.reports import idle as pages
from traceview.reports.figures import _bars
from traceview.reports.figures import idle as figures
from traceview.reports.section import Answers, Figure, Section, SectionData, View, body

BY_CAUSE, TOTAL, PARTS = ("idle", ("cause",)), ("idle", ()), ("idle", ("step", "cause", "sync"))
BY_RANK = ("idle", ("rank", "cause"))


def build(answers: Answers) -> SectionData:
    """Each rank's idle time by cause, the table of causes, and the waits that cost most."""
    rows, evidence = answers.frames[BY_CAUSE], pages.Evidence.of(answers.frames[TOTAL], answers.frames[PARTS])
    if not rows["idle_ns"].sum():
        return SectionData(reason=evidence.sentence())
    by_rank = answers.frames[BY_RANK]
    table = figures.parts(by_rank)
    colours = _bars.used(table, figures.PARTS)
    views = (
        View("by rank", lambda: figures.by_rank(by_rank)),
        View("most idle first", lambda: _bars.upright(_bars.longest_first(table), colours)),
    )
    figure = Figure(
        "idle-ranks",
        f"idle ms per rank and {answers.window}, by what the device waits for",
        evidence.sentence(),
        table,
        views if len(table) > 1 else views[:1],
        colours,
        "Parts add up to the idle time exactly; in the lowest three the host is late.",
    )
    page = pages.page(answers.about, rows, (), evidence=evidence, every_notice=False)
    return SectionData(body(page, answers.about)[1:], (figure,))


SECTION = Section("idle", "Idle time", 84, (BY_CAUSE, TOTAL, PARTS, BY_RANK), build)
