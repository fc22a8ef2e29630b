"""Where the device idles, and whether its host was late."""

from __future__ import annotations

from traceview.reports import idle as pages
from traceview.reports.section import Answers, Section, SectionData, body

BY_CAUSE, TOTAL, PARTS = ("idle", ("cause",)), ("idle", ()), ("idle", ("step", "cause", "sync"))


def build(answers: Answers) -> SectionData:
    """The table by cause, and the waits that cost most."""
    rows, evidence = answers.frames[BY_CAUSE], pages.Evidence.of(answers.frames[TOTAL], answers.frames[PARTS])
    if not rows["idle_ns"].sum():
        return SectionData(reason=evidence.sentence())
    page = pages.page(answers.about, rows, (), evidence=evidence, every_notice=False)
    return SectionData(body(page, answers.about))


SECTION = Section("idle", "Idle time", 84, (BY_CAUSE, TOTAL, PARTS), build)
