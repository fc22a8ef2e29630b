"""Which communication is hidden, and which is exposed."""

from __future__ import annotations

from traceview import units
from traceview.reports.figures import overlap as figures
from traceview.reports.findings import KIND
from traceview.reports.section import Answers, Figure, Section, SectionData, View

QUESTION = ("overlap", KIND)
NONE = (
    "no communication was recorded in the steps looked at. If the job communicates, record "
    "ProfilerActivity.CUDA on every rank, and check under Data quality which kernels no rule names."
)


def build(answers: Answers) -> SectionData:
    """Lying bars by kind."""
    rows = answers.frames[QUESTION]
    table = figures.parts(rows)
    if table.is_empty():
        return SectionData(reason=NONE)
    costliest = table.row(0, named=True)
    caption = (
        f"Of {units.plural(len(table), 'kind')}, {costliest['kind']} costs most: "
        f"{units.significant(costliest['exposed alone ms'])} ms per {answers.window} exposed alone, "
        f"{units.significant(costliest['hidden ms'])} ms hidden."
    )
    figure = Figure(
        "overlap-kinds",
        f"communication by kind, ms per rank and {answers.window}",
        caption,
        table,
        (View("", lambda: figures.by_kind(rows)),),
        figures.PARTS,
        "Exposed alone: nothing computes and no other kind communicates.",
    )
    return SectionData(figures=(figure,))


SECTION = Section("overlap", "Overlap by kind", 32, (QUESTION,), build)
