"""Which kernels take the time, how near to the device's limits they are, and what MoE adds."""

from __future__ import annotations

from traceview.reports import kernels as pages
from traceview.reports.section import Answers, Section, SectionData, body

ROWS = ("kernels", ("category",))
QUESTIONS = {
    "products": ("roofline", ("operator", "precision", "name")),
    "moe_parts": ("kernels", ("moe_part",)),
    "moe": ("kernels", ("is_moe",)),
    "sm_share": ("sm_share", ("axis", "category")),
    "copies": ("copies", ("kind",)),
}
"""Fields of `reports.kernels.Findings` beside the rows."""


def build(answers: Answers) -> SectionData:
    """The tables of ``traceview kernels``."""
    rows = answers.frames[ROWS]
    if rows.is_empty():
        return SectionData(reason="no kernel was recorded. Record ProfilerActivity.CUDA.")
    found = pages.Findings(rows, **{name: answers.frames[question] for name, question in QUESTIONS.items()})
    return SectionData(body(pages.page(answers.about, found, (), every_notice=False), answers.about))


SECTION = Section("kernels", "Kernels", 110, (ROWS, *QUESTIONS.values()), build)
