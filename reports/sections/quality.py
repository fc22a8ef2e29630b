"""How far the figures can be trusted: what was read, assumed, left out, and how each number is found."""

from __future__ import annotations

from dataclasses import replace

from traceview.reports import coverage, margins, text
from traceview.reports.layout import Facts
from traceview.reports.section import Answers, Section, SectionData, body

RANKS = 64
"""Ranks that are all listed; of more, only the first."""

METHODS = (
    ("time", "unions of half-open intervals per rank and device, in whole ns; never sums of durations"),
    (
        "hidden, exposed",
        "communication under compute, and without; window = compute + exposed + copies + idle",
    ),
    ("step, layer, phase", "those of the host range that contains the launch; never by device time"),
    (
        "waiting, moving bytes",
        "until the last rank of an exchange arrived, and after; of exchanges recorded whole",
    ),
    ("hosts' clocks", "offset and drift per host, fitted to collectives that end everywhere at once"),
    (
        "bus bandwidth",
        "of the transfer alone, decimal GB/s, factors of nccl-tests; own slice of an all-to-all left out",
    ),
    ("step time", "median and p95 over rank-steps; interval by bootstrap over whole steps, from five steps"),
)


def build(answers: Answers) -> SectionData:
    """Diagnostics, gaps with their remedy, what was taken for what, what the ranks hold, and methods."""
    found = answers.inventory
    pages = text.inventory(replace(found, notices=()), every_notice=len(found.rows) <= RANKS)
    return SectionData(
        (
            *margins.notes(found.notices, rank_count=len(found.rows), every_notice=True),
            *coverage.blocks(found.coverage),
            *body(pages, answers.about),
            Facts(METHODS, "How numbers are found"),
        )
    )


SECTION = Section("quality", "Data quality", 130, (), build)
