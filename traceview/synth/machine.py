"""The machine that runs a program on all ranks at once and writes down when everything happened.

One host launches calls in order; a stream runs its work first in, first out; work starts when its launch has
returned, its stream is free and the work it waits for is done. A collective ends on all its ranks together.
Every time is a vector over the ranks.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from traceview.synth.costs import KERNEL_FLOOR_NS, copy_ns, transfer_ns
from traceview.synth.host import EVENT_CALL_NS, Host, Replay
from traceview.synth.pace import regression
from traceview.synth.rocm import ported
from traceview.synth.timeline import DeviceOp, Exchange
from traceview.synth.traffic import RINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Message, Timeline
    from traceview.synth.topology import Topology
    from traceview.synth.workload import Workload

COMPUTE_STREAM = 7
"""Stream of everything that does not communicate, as CUPTI numbers PyTorch's default stream."""

_LAUNCH_LATENCY_NS = 900  # from the call's return to the earliest start
_QUEUE_GAP_NS = 700  # between two ops of one stream
_HOLDS = ("host", "stream", "event", "peers")
"""What can hold work back, as numbered in `DeviceOp.held_by`."""

_FUSED_WHEN_COMPACT = ("norm", "elementwise", "route_permute", "quantize", "memory")


@dataclass(frozen=True, slots=True, eq=False)
class _Issue:
    """Work that has been launched: its call (a row of `Timeline.spans`), its start, and what held it back."""

    call: int
    start: NDArray[np.int64]
    held_by: NDArray[np.int8]

    def at(self, start: NDArray[np.int64], cause: str) -> _Issue:
        """The same where it cannot start before ``start``, for ``cause``."""
        held_by = np.where(start > self.start, np.int8(_HOLDS.index(cause)), self.held_by)
        return replace(self, start=np.maximum(self.start, start), held_by=held_by)


class Machine(Host):
    """Host, streams and links of every rank, and the record of what they did."""

    def __init__(self, workload: Workload, topology: Topology) -> None:
        super().__init__(workload)
        self._topology = topology
        self._stream_free: dict[int, NDArray[np.int64]] = {}
        self._graph_launched: NDArray[np.int64] | None = None
        self._graph_free: NDArray[np.int64] | None = None
        self._calls_on: dict[str, int] = {}
        self._fused_ns: NDArray[np.float64] = np.zeros(workload.ranks)
        self._fused_after: list[int] = []

    def timeline(self, routings: Sequence[Routing]) -> Timeline:
        """Everything that happened so far."""
        return self._record.timeline(self._workload, self._topology, routings)

    @contextmanager
    def replay(self, graph: int) -> Iterator[None]:
        """Replay what is launched inside as one graph: a single call, and no host work for its nodes."""
        call = self._launch_call("cudaGraphLaunch")
        self._graph_launched, self._graph_free = self._now, self._free(COMPUTE_STREAM)
        self._replay = Replay(graph, call)
        yield
        self._replay = self._graph_launched = self._graph_free = None
        # a graph is one piece of work to the stream it is launched on
        self._stream_free[COMPUTE_STREAM] = np.max(list(self._stream_free.values()), axis=0)

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
            The device op. In a compact run a small kernel becomes part of the next one, and the op launched
            before it comes back.
        """
        duration_ns = duration_ns * regression(self._workload, kernel.category, self.scope.phase)
        if self._workload.compact and kernel.category in _FUSED_WHEN_COMPACT and self._record.ops:
            self._fused_ns = self._fused_ns + duration_ns
            self._fused_after.extend(after)
            return self.last_op
        awaited = [*after, *self._fused_after]
        with self.operator(kernel.host_op, dims=dims):
            issue = self._issue(kernel, COMPUTE_STREAM, awaited)
        jitter = 1 + self._workload.jitter * self._rng.standard_normal(self._workload.ranks)
        busy = (duration_ns + self._fused_ns) * self._slowdown("slow_kernels") * np.maximum(jitter, 0.1)
        self._fused_ns, self._fused_after = np.zeros(self._workload.ranks), []
        end = issue.start + np.rint(np.maximum(busy, KERNEL_FLOOR_NS)).astype(np.int64)
        return self._run(self._op(kernel, COMPUTE_STREAM, issue, size=size), issue.start, end)

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
        meeting, traffic = message.meeting, message.traffic
        issue = self._issue(kernel, stream, after)
        links = self._slowdown("slow_link", meeting.axis)
        hop_ns = self._workload.ring_hop_ns if traffic.collective in RINGS else 0
        busiest = np.maximum(traffic.sent_bytes, traffic.received_bytes)
        transfer = transfer_ns(meeting, busiest, links, hop_ns=hop_ns)
        end = meeting.spread(issue.start[meeting.members].max(axis=1)) + transfer
        op = self._run(self._op(kernel, stream, issue, exchange=self.next_exchange), issue.start, end)
        self._add_exchange(range(op, op + 1), message, transfer)
        return op

    def copy_to_peers(
        self, kernel: Kernel, message: Message, sizes: Sequence[NDArray[np.int64]], *, stream: int,
        after: Sequence[int],
    ) -> int:  # fmt: skip
        """Launch an all-to-all as copies, one per peer in turn, once all of a set are there.

        A stream waits for the peers without any kernel, so nothing shows that it waits.

        Args:
            kernel: The copy.
            message: What it moves, and among whom.
            sizes: Bytes for each peer, each of shape (ranks,).
            stream: Stream it runs on.
            after: Device ops on other streams that must be done first.

        Returns:
            The device op of the last copy.
        """
        group, first = message.group, len(self._record.ops)
        links = self._slowdown("slow_link", group.axis)
        issue = self._issue(kernel, stream, after)
        together = group.spread(issue.start[group.members].max(axis=1))
        for number, size in enumerate(sizes):
            if number:
                issue = self._issue(kernel, stream, ())
            issue = issue.at(together, "peers")
            op = self._op(kernel, stream, issue, size=size, exchange=self.next_exchange)
            self._run(op, issue.start, issue.start + copy_ns(size, links))
        ended = group.spread(self._record.op_ends[-1][group.members].max(axis=1))
        self._add_exchange(range(first, len(self._record.ops)), message, ended - together)
        return self.last_op

    @property
    def next_exchange(self) -> int:
        """Row the next exchange will take in `Timeline.exchanges`."""
        return len(self._record.exchanges)

    @property
    def last_op(self) -> int:
        """The device op launched last."""
        return len(self._record.ops) - 1

    def synchronize(self) -> None:
        """Block the host until the compute stream is empty."""
        self._block("cudaStreamSynchronize", self._free(COMPUTE_STREAM) + _LAUNCH_LATENCY_NS)

    def synchronize_device(self) -> None:
        """Block the host until every stream is empty."""
        last = np.max(list(self._stream_free.values()), axis=0)
        self._block("cudaDeviceSynchronize", last + _LAUNCH_LATENCY_NS)

    def spin(self, op: int) -> None:
        """Keep the host busy, without any call, until ``op`` is done; a graph cannot."""
        if not self.is_replaying:
            self._go_on(np.maximum(self._now, self._record.op_ends[op] + _LAUNCH_LATENCY_NS))

    def _issue(self, kernel: Kernel, stream: int, after: Sequence[int]) -> _Issue:
        """Make the call that launches ``kernel``."""
        awaited = [op for op in after if self._record.ops[op].stream != stream]
        for op in awaited:
            with self.only(self._record.ops[op].ranks):
                self._wait_for_event()
        call = self._launch_call(kernel.call)
        launched = self._now if self._graph_launched is None else self._graph_launched
        issue = _Issue(call, launched + _LAUNCH_LATENCY_NS, np.zeros(len(launched), np.int8))
        if self._graph_free is not None:
            issue = issue.at(self._graph_free + _QUEUE_GAP_NS, "stream")
        if stream in self._stream_free:
            issue = issue.at(self._stream_free[stream] + _QUEUE_GAP_NS, "stream")
        for op in awaited:
            issue = issue.at(self._record.op_ends[op] + _QUEUE_GAP_NS, "event")
        return issue

    def _wait_for_event(self) -> None:
        """Have a stream wait for another; compact runs do not write the calls down."""
        for name in ("cudaEventRecord", "cudaStreamWaitEvent"):
            if self._workload.compact:
                self._spend(EVENT_CALL_NS)
            else:
                self._call(name, EVENT_CALL_NS)

    def _op(
        self, kernel: Kernel, stream: int, issue: _Issue, *,
        size: int | NDArray[np.int64] = 0, exchange: int | None = None,
    ) -> DeviceOp:  # fmt: skip
        node = self._replay.next_node() if self._replay else None
        kernel = ported(kernel, self._workload.platform)
        held_by = tuple(np.array(_HOLDS, dtype=object)[issue.held_by])
        return DeviceOp(kernel, stream, issue.call, self.scope, size, exchange, node, self._active, held_by)

    def _run(self, op: DeviceOp, start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
        row = self._record.add_op(op, start, end)
        before = self._stream_free.get(op.stream, np.zeros_like(end))
        self._stream_free[op.stream] = end if op.ranks is None else np.where(op.ranks, end, before)
        return row

    def _free(self, stream: int) -> NDArray[np.int64]:
        """When the last work so far on ``stream`` is done."""
        return self._stream_free.get(stream, np.zeros_like(self._now))

    def _add_exchange(self, ops: range, message: Message, transfer: NDArray[np.int64]) -> None:
        number = self._calls_on.get(message.group.desc, 0) + 1
        self._calls_on[message.group.desc] = number
        self._record.exchanges.append(Exchange(ops, message, number, transfer))
