"""The machine that runs a program on all ranks at once and writes down when everything happened.

One host launches calls in order; a stream runs its work first in, first out; work starts when its launch has
returned, its stream is free and the work it waits for is done. A collective ends on all its ranks together.
Every time is a vector over the ranks.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from traceview.synth.costs import KERNEL_FLOOR_NS, transfer_ns
from traceview.synth.timeline import DeviceOp, Exchange, HostSpan, Scope, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Message, Thread
    from traceview.synth.topology import Topology
    from traceview.synth.workload import Workload

COMPUTE_STREAM = 7
"""Stream of everything that does not communicate, as CUPTI numbers PyTorch's default stream."""

_OPERATOR_NS = 3_000  # from the operator's entry to its call
_CALL_NS = 4_500
_EVENT_CALL_NS = 600
_RETURN_NS = 1_200
_HANDOFF_NS = 6_000  # from one host thread to another
_LAUNCH_LATENCY_NS = 900  # from the call's return to the earliest start
_QUEUE_GAP_NS = 700  # between two ops of one stream
_HOST_JITTER = 5.0  # host times scatter this much more than kernel times


class Machine:
    """Host, streams and links of every rank, and the record of what they did.

    Attributes:
        scope: Part of the step that device work is being launched for.
        thread: Host thread that launches.
    """

    def __init__(self, workload: Workload, topology: Topology) -> None:
        self.scope = Scope()
        self.thread: Thread = "main"
        self._workload = workload
        self._topology = topology
        self._rng = np.random.Generator(np.random.PCG64([workload.seed, 1]))
        ranks = workload.ranks
        self._now = np.rint(self._rng.uniform(0, workload.start_skew_ns, ranks)).astype(np.int64)
        self._kernel_pace = _paces(workload, "slow_kernels")
        self._host_pace = _paces(workload, "late_launch")
        self._stream_free: dict[int, NDArray[np.int64]] = {}
        self._calls_on: dict[str, int] = {}
        self._open: dict[Thread, list[int]] = {"main": [], "autograd": []}
        self._spans: list[HostSpan] = []
        self._span_starts: list[NDArray[np.int64]] = []
        self._span_ends: list[NDArray[np.int64]] = []
        self._ops: list[DeviceOp] = []
        self._op_starts: list[NDArray[np.int64]] = []
        self._op_ends: list[NDArray[np.int64]] = []
        self._exchanges: list[Exchange] = []

    def timeline(self, routings: Sequence[Routing]) -> Timeline:
        """Everything that happened so far."""
        return Timeline(
            self._workload,
            self._topology,
            tuple(routings),
            tuple(self._spans),
            np.stack(self._span_starts),
            np.stack(self._span_ends),
            tuple(self._ops),
            np.stack(self._op_starts),
            np.stack(self._op_ends),
            tuple(self._exchanges),
        )

    @contextmanager
    def within(self, **changes: Any) -> Iterator[None]:  # noqa: ANN401 - fields of Scope, checked by replace
        """Launch for another part of the step; ``changes`` are fields of `Scope`."""
        outer, self.scope = self.scope, replace(self.scope, **changes)
        yield
        self.scope = outer

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
    def operator(
        self,
        name: str,
        *,
        sequence: int | None = None,
        exchange: int | None = None,
        dims: tuple[tuple[int | NDArray[np.int64], ...], ...] = (),
    ) -> Iterator[None]:
        """A host operator; what is launched inside links to it."""
        with self._span("operator", name, sequence=sequence, exchange=exchange, dims=dims):
            self._spend(_OPERATOR_NS)
            yield

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python frame."""
        with self._span("frame", name):
            yield

    def launch(
        self,
        kernel: Kernel,
        duration_ns: NDArray[np.float64] | float,
        *,
        after: Sequence[int] = (),
        dims: tuple[tuple[int | NDArray[np.int64], ...], ...] = (),
        size: int = 0,
    ) -> int:
        """Launch local work on the compute stream.

        Args:
            kernel: What runs.
            duration_ns: How long it takes on an undisturbed rank, the same for all or shape (ranks,).
            after: Device ops on other streams that must be done first.
            dims: Shapes of the operator's inputs.
            size: Bytes copied or set.

        Returns:
            The device op.
        """
        with self.operator(kernel.host_op, dims=dims):
            call, start = self._issue(kernel, COMPUTE_STREAM, after)
        jitter = 1 + self._workload.jitter * self._rng.standard_normal(self._workload.ranks)
        busy = np.maximum(duration_ns * self._kernel_pace * np.maximum(jitter, 0.1), KERNEL_FLOOR_NS)
        op = DeviceOp(kernel, COMPUTE_STREAM, call, self.scope, size)
        return self._run(op, start, start + np.rint(busy).astype(np.int64))

    def meet(self, kernel: Kernel, message: Message, *, stream: int, after: Sequence[int] = ()) -> int:
        """Launch a collective: each rank arrives when it can, all of a set leave together.

        Args:
            kernel: What runs.
            message: What it moves, and among whom.
            stream: Stream it runs on.
            after: Device ops on other streams that must be done first.

        Returns:
            The device op.
        """
        group, traffic = message.group, message.traffic
        call, start = self._issue(kernel, stream, after)
        transfer = transfer_ns(group, np.maximum(traffic.sent_bytes, traffic.received_bytes))
        end = group.spread(start[group.members].max(axis=1)) + transfer
        self._calls_on[group.name] = sequence = self._calls_on.get(group.name, 0) + 1
        op = DeviceOp(kernel, stream, call, self.scope, exchange=self.next_exchange)
        self._exchanges.append(Exchange(len(self._ops), message, sequence, transfer))
        return self._run(op, start, end)

    @property
    def next_exchange(self) -> int:
        """Row the next `meet` will take in `Timeline.exchanges`."""
        return len(self._exchanges)

    @property
    def last_op(self) -> int:
        """The device op launched last."""
        return len(self._ops) - 1

    def synchronize(self) -> None:
        """Block the host until the compute stream is empty."""
        self._block("cudaStreamSynchronize", self._stream_free[COMPUTE_STREAM])

    def synchronize_device(self) -> None:
        """Block the host until every stream is empty."""
        self._block("cudaDeviceSynchronize", np.max(list(self._stream_free.values()), axis=0))

    def spin(self, op: int) -> None:
        """Keep the host busy, without any call, until ``op`` is done."""
        self._now = np.maximum(self._now, self._op_ends[op] + _LAUNCH_LATENCY_NS)

    def _issue(self, kernel: Kernel, stream: int, after: Sequence[int]) -> tuple[int, NDArray[np.int64]]:
        """Make the call that launches ``kernel``: the call's row, and when the work can start."""
        awaited = [op for op in after if self._ops[op].stream != stream]
        for _ in awaited:
            self._call("cudaEventRecord", _EVENT_CALL_NS)
            self._call("cudaStreamWaitEvent", _EVENT_CALL_NS)
        call = self._call(kernel.call, _CALL_NS)
        start = self._now + _LAUNCH_LATENCY_NS
        if stream in self._stream_free:
            start = np.maximum(start, self._stream_free[stream] + _QUEUE_GAP_NS)
        for op in awaited:
            start = np.maximum(start, self._op_ends[op] + _QUEUE_GAP_NS)
        return call, start

    def _run(self, op: DeviceOp, start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
        self._ops.append(op)
        self._op_starts.append(start)
        self._op_ends.append(end)
        self._stream_free[op.stream] = end
        return len(self._ops) - 1

    def _call(self, name: str, duration_ns: int) -> int:
        with self._span("call", name) as row:
            self._spend(duration_ns)
        return row

    def _block(self, name: str, until: NDArray[np.int64]) -> None:
        with self._span("call", name):
            self._spend(_EVENT_CALL_NS)
            self._now = np.maximum(self._now, until + _LAUNCH_LATENCY_NS)

    @contextmanager
    def _span(
        self,
        kind: Literal["annotation", "operator", "call", "frame"],
        name: str,
        *,
        thread: Thread | None = None,
        **facts: Any,  # noqa: ANN401 - fields of HostSpan, checked by its constructor
    ) -> Iterator[int]:
        thread = thread or self.thread
        stack, row = self._open[thread], len(self._spans)
        span = HostSpan(
            kind, name, thread, self._around(stack, "operator"), self._around(stack, "annotation")
        )
        self._spans.append(replace(span, **facts))
        self._span_starts.append(self._now)
        self._span_ends.append(self._now)
        stack.append(row)
        yield row
        stack.pop()
        self._span_ends[row] = self._now
        self._spend(_RETURN_NS)

    def _around(self, stack: Sequence[int], kind: str) -> int | None:
        return next((row for row in reversed(stack) if self._spans[row].kind == kind), None)

    def _spend(self, duration_ns: int) -> None:
        """Let the host work for about ``duration_ns``."""
        scatter = _HOST_JITTER * self._workload.jitter * self._rng.standard_normal(self._workload.ranks)
        self._now = self._now + np.rint(duration_ns * self._host_pace * np.exp(scatter)).astype(np.int64)


def _paces(workload: Workload, cause: str) -> NDArray[np.float64]:
    """Slowdown of each rank by stragglers of one cause, shape (ranks,)."""
    pace = np.ones(workload.ranks)
    for straggler in workload.stragglers:
        if straggler.cause == cause:
            pace[straggler.rank] *= straggler.factor
    return pace
