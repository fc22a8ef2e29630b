"""What ran when: one step of the ranks that tell most, bar by bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.reports import lanes, timeline
from traceview.reports.section import Answers, Figure, Section, SectionData, View

if TYPE_CHECKING:
    from traceview.reports.timeline import Timeline

BY_STEP, CLOCKS = ("breakdown", ("rank", "step")), ("clocks", ("rank",))
METHOD = (
    "Drag to move, Ctrl and wheel to zoom, double-click a bar to fit it; keys: arrows, +, −, 0, [ ], n, /. "
    "Work is placed by its own stamps, on one clock."
)


def build(answers: Answers) -> SectionData:
    """Lanes of the ranks with the least, the median and the most compute, in the step of median length."""
    rows = answers.frames[BY_STEP].filter(pl.col("window_ns") > 0)
    if rows.is_empty():
        return SectionData(reason="no device work was recorded. Record ProfilerActivity.CUDA.")
    step = typical_step(rows)
    chosen = telling_ranks(rows.filter(pl.col("step").eq_missing(step)))
    traces = [trace for trace in answers.traces if trace.facts.rank in chosen]
    clocks = answers.frames[CLOCKS]
    made = timeline.compose(
        traces, lanes.clocks(clocks), step=step, most_bars=timeline.FIGURE_BARS, uncertainty_ns=apart(clocks)
    )
    figure = Figure(
        "timeline-step",
        f"{f'step {step}' if step is not None else 'everything recorded'} of {_named(chosen)}",
        caption(made, rows, step),
        exposed(made),
        (View("", lambda: made),),
        made.groups(),
        METHOD + precision(made),
        is_interactive=True,
    )
    return SectionData(figures=(figure,))


def typical_step(rows: pl.DataFrame) -> int | None:
    """The step whose longest window is the median one; None where nothing marks steps."""
    longest = (
        rows.drop_nulls("step").group_by("step").agg(pl.col("window_ns").max()).sort("window_ns", "step")
    )
    return int(longest["step"][(len(longest) - 1) // 2]) if len(longest) else None


def telling_ranks(rows: pl.DataFrame) -> tuple[int, ...]:
    """The ranks with the least, the median and the most compute, each once."""
    ordered = rows.group_by("rank").agg(pl.col("compute_ns").sum()).sort("compute_ns", "rank")["rank"]
    places = {0, (len(ordered) - 1) // 2, len(ordered) - 1}
    return tuple(sorted({int(ordered[place]) for place in places}))


def caption(made: Timeline, rows: pl.DataFrame, step: int | None) -> str:
    """What is to be seen, in one sentence."""
    shown = {lane.rank for lane in made.lanes}
    here = rows.filter(pl.col("step").eq_missing(step) & pl.col("rank").is_in(shown))
    parts = [
        f"rank {rank} {units.duration(compute)} of compute, {units.duration(alone)} of exposed communication"
        for rank, compute, alone in here.group_by("rank")
        .agg(pl.col("compute_ns", "exposed_comm_ns").sum())
        .sort("rank")
        .iter_rows()
    ]
    if len(parts) < 2:
        return f"{parts[0]}." if parts else "Nothing ran in it."
    return f"Least, median and most compute: {'; '.join(parts)}."


def exposed(made: Timeline) -> pl.DataFrame:
    """The exposed stretches as a table, longest first: what the row "exposed" shows."""
    found = [
        lane.bars.select(
            rank=pl.lit(lane.rank),
            start_ms=(pl.col("ts_ns") - made.begin_ns) / 1e6,
            exposed_ms=pl.col("dur_ns") / 1e6,
            what="context",
        )
        for lane in made.lanes
        if lane.kind == "exposed"
    ]
    empty = pl.DataFrame(
        schema={"rank": pl.Int32, "start_ms": pl.Float64, "exposed_ms": pl.Float64, "what": pl.String}
    )
    whole = pl.concat(found) if found else empty
    longest = whole.sort("exposed_ms", "rank", "start_ms", descending=[True, False, False])
    return longest.select(
        "rank", "what", pl.col("start_ms").alias("start ms"), pl.col("exposed_ms").alias("exposed ms")
    )


def precision(made: Timeline) -> str:
    """What was drawn together, and how exactly clocks are known."""
    together = ""
    if made.merged_ns:
        length = units.duration(made.merged_ns)
        together = f" Bars shorter than {length} are drawn together; `traceview timeline` shows each."
    if made.uncertainty_ns is None:
        return together
    return f"{together} Between hosts, stamps are known within ± {units.duration(made.uncertainty_ns)}."


def apart(clocks: pl.DataFrame) -> int | None:
    """Residual between hosts; None where all ranks share a clock."""
    if clocks["offset_ns"].n_unique() < 2:
        return None
    residual: int | None = clocks.row(0, named=True)["residual_p95_ns"]
    return residual


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {units.numbers(ranks)}"


SECTION = Section("timeline", "What ran when", 40, (BY_STEP, CLOCKS), build, command="timeline")
