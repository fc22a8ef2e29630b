"""The record of a run while it is being made: rows in order, times as one vector over the ranks each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from traceview.synth.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traceview.synth.routing import Routing
    from traceview.synth.timeline import DeviceOp, Exchange, HostSpan, Thread
    from traceview.synth.topology import Topology
    from traceview.synth.workload import Workload


class Recorder:
    """Rows of a `Timeline` that is still growing.

    Attributes:
        ops: Device ops so far.
        op_ends: End of each, shape (ranks,); 0 on ranks that did not run it.
        exchanges: Communication calls so far.
    """

    def __init__(self) -> None:
        self.ops: list[DeviceOp] = []
        self.op_ends: list[NDArray[np.int64]] = []
        self.exchanges: list[Exchange] = []
        self._op_starts: list[NDArray[np.int64]] = []
        self._spans: list[HostSpan] = []
        self._span_starts: list[NDArray[np.int64]] = []
        self._span_ends: list[NDArray[np.int64]] = []
        self._open: dict[Thread, list[int]] = {"main": [], "autograd": []}

    def begin(self, span: HostSpan, now: NDArray[np.int64]) -> int:
        """Open ``span`` within what is open on its thread; its row comes back."""
        stack, row = self._open[span.thread], len(self._spans)
        operator, annotation = (self._innermost(stack, kind) for kind in ("operator", "annotation"))
        self._spans.append(replace(span, operator=operator, annotation=annotation))
        self._span_starts.append(now)
        self._span_ends.append(now)
        stack.append(row)
        return row

    def finish(self, row: int, now: NDArray[np.int64]) -> None:
        """Close the span that was opened last on its thread."""
        self._open[self._spans[row].thread].pop()
        self._span_ends[row] = now

    def add_op(self, op: DeviceOp, start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
        """Add device work; its row comes back."""
        self.ops.append(op)
        self._op_starts.append(start)
        self.op_ends.append(end if op.ranks is None else np.where(op.ranks, end, 0))
        return len(self.ops) - 1

    def timeline(self, workload: Workload, topology: Topology, routings: Sequence[Routing]) -> Timeline:
        """Everything recorded so far."""
        return Timeline(
            workload,
            topology,
            tuple(routings),
            tuple(self._spans),
            np.stack(self._span_starts),
            np.stack(self._span_ends),
            tuple(self.ops),
            np.stack(self._op_starts),
            np.stack(self.op_ends),
            tuple(self.exchanges),
        )

    def _innermost(self, stack: Sequence[int], kind: str) -> int | None:
        return next((row for row in reversed(stack) if self._spans[row].kind == kind), None)
