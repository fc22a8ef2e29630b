"""What pipeline stages wait for each other."""

from __future__ import annotations

import polars as pl

from traceview import units
from traceview.reports import alltoall as pages
from traceview.reports.findings import KIND
from traceview.reports.layout import Verdict
from traceview.reports.section import Answers, Section, SectionData, body

QUESTION = ("collectives", KIND)
NONE = (
    "no transfer between pipeline stages was recorded. Jobs without pipeline parallelism have none; else "
    "record process groups (PyTorch 2.3 or newer) or annotate sends and receives as pp.send and pp.recv."
)


def build(answers: Answers) -> SectionData:
    """Transfers between stages: how long they are exposed, which is the bubble as far as it can be seen."""
    rows = answers.frames[QUESTION].filter(pl.col("axis") == "pp")
    if rows.is_empty():
        return SectionData(reason=NONE)
    windows = rows["window_count"].max() or 0
    length, exposed = rows["window_ns"].max(), int(rows["exposed_ns"].sum())
    each = units.duration(exposed / windows) if isinstance(windows, int) and windows else units.MISSING
    share = units.percent(exposed / length) if isinstance(length, int) and length else units.MISSING
    verdict = Verdict(
        f"Transfers between stages are exposed {each} per rank and {answers.window} ({share}): the bubble, "
        "as far as stages wait on their device. Idle time before a transfer is launched is not in it."
    )
    blocks = body(pages.page(answers.about, rows, ()), answers.about)
    return SectionData((verdict, *blocks[1:]))


SECTION = Section("pipeline", "Pipeline", 80, (QUESTION,), build)
