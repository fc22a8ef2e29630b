"""What of a run a rank's file holds: everything, less what the profiler's defects cost.

A profiler that starts late has seen no host row that began before it, and no device row either; device work
that was launched before and runs after is in the file, without its launch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.timeline import Timeline

_STEP_NAME = re.compile(r"ProfilerStep#(\d+)$")


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The rows of one rank's file.

    Attributes:
        begin_ns: True time from which the profiler recorded; None if it was there from the start.
        spans: Which of `Timeline.spans` it holds, shape (spans,).
        ops: Which of `Timeline.ops` it holds, shape (ops,).
        steps: Step of each op as the file tells it, shape (ops,): -1 without a recorded launch in a recorded
            step.
    """

    begin_ns: int | None
    spans: NDArray[np.bool_]
    ops: NDArray[np.bool_]
    steps: NDArray[np.int64]


def captured(timeline: Timeline, rank: int) -> Captured:
    """What ``rank``'s file holds; what it would hold, for a rank whose file is lost."""
    begin = _begin_ns(timeline, rank)
    spans = timeline.done_by(timeline.spans, rank)
    ops = timeline.done_by(timeline.ops, rank) & ~_dropped(timeline, rank)
    if begin is not None:
        spans &= timeline.span_start_ns[:, rank] >= begin
        ops &= timeline.op_start_ns[:, rank] >= begin
    marked = {step for row, step in _step_rows(timeline).items() if spans[row]}
    known = [spans[op.call] and op.scope.step in marked for op in timeline.ops]
    steps = [-1 if op.scope.step is None else op.scope.step for op in timeline.ops]
    return Captured(begin, spans, ops, np.where(known, steps, -1))


def _begin_ns(timeline: Timeline, rank: int) -> int | None:
    """True time at which the rank's profiler starts, if it starts late."""
    missed = [late.steps for late in timeline.workload.capture.late_starts if late.rank == rank]
    if not missed:
        return None
    rows = list(_step_rows(timeline))
    borders = [*timeline.span_start_ns[rows, rank], timeline.span_end_ns[rows[-1], rank]]
    return round(float(np.interp(max(missed), np.arange(len(borders)), borders)))


def _dropped(timeline: Timeline, rank: int) -> NDArray[np.bool_]:
    """Which device rows never reached the file."""
    rng = np.random.Generator(np.random.PCG64([timeline.workload.seed, 2, rank]))
    return rng.random(len(timeline.ops)) < timeline.workload.capture.dropped_share


@lru_cache(maxsize=1)
def _step_rows(timeline: Timeline) -> dict[int, int]:
    """Step by the row of the range that marks it, in order of time."""
    named = ((row, _STEP_NAME.match(span.name)) for row, span in enumerate(timeline.spans))
    return {row: int(match[1]) for row, match in named if match}
