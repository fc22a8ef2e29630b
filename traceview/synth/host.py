"""The host side of every rank: threads that spend time, and the ranges, operators and calls they leave.

Every time is a vector over the ranks.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from traceview.synth.pace import launch_delay_ns, slowdown
from traceview.synth.recorder import Recorder
from traceview.synth.rocm import ported_call
from traceview.synth.timeline import HostSpan, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traceview.synth.timeline import SpanKind, Thread
    from traceview.synth.workload import Cause, Workload

CALL_NS = 4_500
EVENT_CALL_NS = 600

_OPERATOR_NS = 3_000  # from the operator's entry to its call
_RETURN_NS = 1_200
_HANDOFF_NS = 6_000  # from one host thread to another
_JITTER = 5.0  # host times scatter this much more than kernel times


@dataclass(slots=True)
class Replay:
    """A graph that is being replayed.

    Attributes:
        graph: Number of the graph.
        call: Call that launched it, as a row of `Timeline.spans`.
        nodes: Nodes so far.
    """

    graph: int
    call: int
    nodes: int = 0

    def next_node(self) -> tuple[int, int]:
        """Graph and number of the next node."""
        self.nodes += 1
        return self.graph, self.nodes


class Host:
    """The hosts of all ranks, which run the same program.

    Attributes:
        scope: Part of the step that device work is being launched for.
        thread: Host thread that launches.
    """

    def __init__(self, workload: Workload) -> None:
        self.scope = Scope()
        self.thread: Thread = "main"
        self._workload = workload
        self._rng = np.random.Generator(np.random.PCG64([workload.seed, 1]))
        skew = self._rng.uniform(0, workload.start_skew_ns, workload.ranks)
        self._now = np.rint(skew).astype(np.int64)
        self._record = Recorder()
        self._active: NDArray[np.bool_] | None = None
        self._replay: Replay | None = None

    @contextmanager
    def within(self, **changes: Any) -> Iterator[None]:  # noqa: ANN401 - fields of Scope, checked by replace
        """Launch for another part of the step; ``changes`` are fields of `Scope`."""
        outer, self.scope = self.scope, replace(self.scope, **changes)
        yield
        self.scope = outer

    @contextmanager
    def only(self, ranks: NDArray[np.bool_] | None) -> Iterator[None]:
        """Let only ``ranks`` of the current ones go on (None: all); nobody else sees what is inside."""
        outer = self._active
        if ranks is not None:
            self._active = ranks if outer is None else outer & ranks
        yield
        self._active = outer

    @contextmanager
    def on(self, thread: Thread) -> Iterator[None]:
        """Launch from ``thread``, while the other waits."""
        outer = self.thread
        if thread != outer:
            self._spend(_HANDOFF_NS)
        self.thread = thread
        yield
        self.thread = outer
        if thread != outer:
            self._spend(_HANDOFF_NS)

    @contextmanager
    def annotate(
        self, name: str, thread: Thread | None = None, *, exchange: int | None = None
    ) -> Iterator[None]:
        """A named range, on the launching thread unless ``thread`` says otherwise."""
        with self._span("annotation", name, thread=thread, exchange=exchange):
            yield

    @contextmanager
    def operator(self, name: str, **facts: Any) -> Iterator[None]:  # noqa: ANN401 - fields of HostSpan
        """A host operator; what is launched inside links to it. ``facts`` are fields of `HostSpan`."""
        if self._workload.compact:
            self._spend(_OPERATOR_NS)
            yield
            return
        with self._span("operator", name, **facts):
            self._spend(_OPERATOR_NS)
            yield

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python frame."""
        with self._span("frame", name):
            yield

    @property
    def is_replaying(self) -> bool:
        """Whether a graph runs, in which the host can neither wait nor decide."""
        return self._replay is not None

    @contextmanager
    def _span(
        self,
        kind: SpanKind,
        name: str,
        *,
        thread: Thread | None = None,
        **facts: Any,  # noqa: ANN401 - fields of HostSpan, checked by its constructor
    ) -> Iterator[int]:
        if self._replay:
            yield self._replay.call
            return
        span = HostSpan(kind, name, thread or self.thread, ranks=self._active, **facts)
        row = self._record.begin(span, self._now)
        yield row
        self._record.finish(row, self._now)
        self._spend(_RETURN_NS)

    def _call(self, name: str, duration_ns: int) -> int:
        """Make a runtime or driver call; its row comes back."""
        with self._span("call", ported_call(name, self._workload.platform)) as row:
            self._spend(duration_ns)
        return row

    def _launch_call(self, name: str) -> int:
        """Make a call that launches device work: the ones that stragglers delay."""
        if not self._replay:
            self._go_on(self._now + launch_delay_ns(self._workload, self.scope.step))
        return self._call(name, CALL_NS)

    def _block(self, name: str, until: NDArray[np.int64]) -> None:
        """Make a call that returns at ``until``; a graph has none."""
        if self._replay:
            return
        with self._span("call", ported_call(name, self._workload.platform)):
            self._spend(EVENT_CALL_NS)
            self._go_on(np.maximum(self._now, until))

    def _spend(self, duration_ns: int) -> None:
        """Let the host work for about ``duration_ns``; a graph's nodes cost it nothing."""
        if self._replay:
            return
        scatter = _JITTER * self._workload.jitter * self._rng.standard_normal(self._workload.ranks)
        slow = self._workload.host_slowdown * self._slowdown("late_launch")
        spent = duration_ns * slow * np.exp(scatter)
        self._go_on(self._now + np.rint(spent).astype(np.int64))

    def _go_on(self, until: NDArray[np.int64]) -> None:
        self._now = until if self._active is None else np.where(self._active, until, self._now)

    def _slowdown(self, cause: Cause, axis: str | None = None) -> NDArray[np.float64]:
        return slowdown(self._workload, cause, self.scope.step, axis)
