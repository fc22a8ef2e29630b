"""Tokens per second and GPU, and the share of the hardware's peak that they are."""

from __future__ import annotations

from traceview.reports import mfu as pages
from traceview.reports.section import Answers, Section, SectionData, body

REMEDY = (
    "Write what the job is into run.toml beside the traces (model, seq_len, global_batch_size), or ask "
    "traceview mfu with --model, --seq-len and --global-batch-size."
)


def build(answers: Answers) -> SectionData:
    """The page of ``traceview mfu``, as far as traces and run.toml tell."""
    found = answers.utilization
    if found is None or found.throughput is None:
        unknown = [] if found is None else found.notes.filter(code="mfu.withheld")["text"].to_list()
        return SectionData(reason=f"{'; '.join([*unknown, ''])}{REMEDY}")
    return SectionData(body(pages.page(answers.about, found, (), every_notice=False), answers.about))


SECTION = Section("throughput", "Throughput and MFU", 28, (), build, command="mfu")
