"""The events of one rank's Kineto trace: host rows, device rows, and the flows and ids that link them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from traceview.synth.capture import captured
from traceview.synth.clocks import stamp
from traceview.synth.kineto_metadata import CallTexts
from traceview.synth.kineto_rows import callback, complete, flow, inputs, launch_shape
from traceview.synth.process import correlations, numbered, process_id, thread_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traceview.synth.timeline import DeviceOp, HostSpan, Timeline

_SPAN_CATEGORIES = {"annotation": "user_annotation", "operator": "cpu_op", "frame": "python_function"}
_OP_CATEGORIES = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


class RankEvents:
    """One rank's events, as texts in file order.

    Attributes:
        pid: Host process.
        gpu: Device index, which Kineto uses as the process of device rows.
        tids: Thread id by thread.
        streams: Streams with work on them.
        begin_ns: First stamp.
        end_ns: Last stamp.
    """

    def __init__(self, timeline: Timeline, rank: int) -> None:
        clock = timeline.workload.clock(rank)
        self._timeline = timeline
        self._rank = rank
        self._calls = CallTexts(timeline, rank)
        self._captured = captured(timeline, rank)
        self._is_rocm = timeline.workload.platform == "rocm"
        self._span_starts = stamp(timeline.span_start_ns[:, rank], clock).tolist()
        self._span_ends = stamp(timeline.span_end_ns[:, rank], clock).tolist()
        self._op_starts = stamp(timeline.op_start_ns[:, rank], clock).tolist()
        self._op_ends = stamp(timeline.op_end_ns[:, rank], clock).tolist()
        self._triton = {op.kernel.name for op in timeline.ops if op.kernel.host_op == op.kernel.name}
        spans = [(int(row), timeline.spans[row]) for row in np.flatnonzero(self._captured.spans)]
        self._spans = dict(spans)
        self._ops = [int(row) for row in np.flatnonzero(self._captured.ops)]
        # Ids differ between ranks, as they do in real runs.
        self._external = numbered(spans, ("annotation", "operator"), first=1 + rank)
        self._event = numbered(spans, ("annotation", "operator", "frame"), first=0)
        self._python = numbered(spans, ("frame",), first=1)
        self._correlation = correlations(timeline, rank)
        self.pid, self.tids = process_id(rank), thread_ids(rank)
        self.gpu = timeline.workload.device(rank)
        self.streams = sorted({timeline.ops[row].stream for row in self._ops})
        self.begin_ns = min(
            [self._span_starts[row] for row in self._spans] + [self._op_starts[row] for row in self._ops]
        )
        self.end_ns = max(
            [self._span_ends[row] for row in self._spans] + [self._op_ends[row] for row in self._ops]
        )

    def host(self) -> Iterator[str]:
        """Annotations, operators and Python frames, and the flows from forward to backward."""
        for row, span in self._spans.items():
            if span.kind == "call":
                continue
            yield self._host_row(row, span)
            if span.sequence is not None:
                phase = "s" if span.thread == "main" else "f"
                tid = self.tids[span.thread]
                yield flow(phase, "fwdbwd", span.sequence, (self.pid, tid), self._span_starts[row])

    def device(self) -> Iterator[str]:
        """Calls and the work they launched, each with its end of the flow between them."""
        launched: defaultdict[int, list[int]] = defaultdict(list)
        for index in self._ops:
            launched[self._timeline.ops[index].call].append(index)
        with_flows = not self._timeline.workload.compact
        for row, span in enumerate(self._timeline.spans):
            if span.kind != "call":
                continue
            correlation = self._correlation[row]
            for index in launched[row]:
                op = self._timeline.ops[index]
                yield self._device_row(index, op)
                if with_flows:
                    yield flow("f", "ac2g", correlation, (self.gpu, op.stream), self._op_starts[index])
            if row not in self._spans:
                continue
            yield self._call_row(row, span)
            if with_flows:
                place = (self.pid, self.tids[span.thread])
                phase = "f" if span.name.endswith("EventRecord") else "s"
                yield flow(phase, "ac2g", correlation, place, self._span_starts[row])

    def device_annotations(self) -> Iterator[str]:
        """Each annotation's shadow on each stream: from its first op to its last, a nanosecond wider.

        Only the innermost annotation around a launch casts a shadow.
        """
        shadows: dict[tuple[int, int], tuple[int, int]] = {}
        for index in self._ops:
            op, start, end = self._timeline.ops[index], self._op_starts[index], self._op_ends[index]
            row = self._timeline.spans[op.call].annotation
            if row in self._spans and op.call in self._spans:
                first, last = shadows.get((row, op.stream), (start, end))
                shadows[row, op.stream] = min(first, start), max(last, end)
        for (row, stream), (first, last) in sorted(shadows.items()):
            name = self._range_name(self._spans[row])
            args = f'"External id": {self._external[row]}'
            yield complete("gpu_user_annotation", name, (self.gpu, stream), (first - 1, last + 1), args)

    def _range_name(self, span: HostSpan) -> str:
        if span.kind != "annotation" or span.exchange is None:
            return span.name
        return self._calls.range_name(span.name, self._timeline.exchanges[span.exchange])

    def _host_row(self, row: int, span: HostSpan) -> str:
        place = (self.pid, self.tids[span.thread])
        times = (self._span_starts[row], self._span_ends[row])
        facts = self._frame_facts(row) if span.kind == "frame" else self._operator_facts(row, span)
        return complete(_SPAN_CATEGORIES[span.kind], self._range_name(span), place, times, facts)

    def _frame_facts(self, row: int) -> str:
        number = self._python[row]
        parent = number - 1 if number > 1 else "null"
        return f'"Python parent id": {parent}, "Python id": {number}, "Ev Idx": {self._event[row]}'

    def _operator_facts(self, row: int, span: HostSpan) -> str:
        facts = f'"External id": {self._external[row]},"Record function id": 0, '
        if span.sequence is not None:
            forward_thread = 0 if span.thread == "main" else 1
            facts += f'"Sequence number": {span.sequence}, "Fwd thread id": {forward_thread}, '
        if span.exchange is not None:
            exchange = self._timeline.exchanges[span.exchange]
            traffic = exchange.message.traffic
            elements = int(traffic.in_elements[self._rank])
            is_call = span.kind == "operator"
            facts += self._calls.on_host(exchange) if is_call else inputs([[elements]], [traffic.dtype])
        elif span.dims:
            dims = [[self._size(size) for size in shape] for shape in span.dims]
            facts += inputs(dims, ["BFloat16"] * len(dims))
        if self._timeline.workload.traps and span.name in self._triton:
            facts += (
                '"num_warps": 8, "stream": 0, "kernel_backend": "triton", "num_stages": 1, '
                f'"kernel_name": {json.dumps(span.name)}, "kernel_kwargs": "XBLOCK=1024", '
            )
        return f'{facts}"Ev Idx": {self._event[row]}'

    def _size(self, size: int | NDArray[np.int64]) -> int:
        return size if isinstance(size, int) else int(size[self._rank])

    def _call_row(self, row: int, span: HostSpan) -> str:
        category = "cuda_runtime" if span.name.startswith(("cuda", "hip")) else "cuda_driver"
        args = f'{self._link(row)}{callback(span.name)}, "correlation": {self._correlation[row]}'
        place = (self.pid, self.tids[span.thread])
        return complete(category, span.name, place, (self._span_starts[row], self._span_ends[row]), args)

    def _device_row(self, index: int, op: DeviceOp) -> str:
        start, end = self._op_starts[index], self._op_ends[index]
        link = self._link(op.call) if op.call in self._spans else ""
        where = f'"stream": {op.stream}, "correlation": {self._correlation[op.call]},      '
        if op.kernel.kind == "kernel":
            args = f"{link}{self._kernel_facts(op, where)}"
        else:
            args = f"{link}{self._copy_facts(index, op, where)}{_node(op)}"
        place = (self.gpu, op.stream)
        return complete(_OP_CATEGORIES[op.kernel.kind], op.kernel.name, place, (start, end), args)

    def _kernel_facts(self, op: DeviceOp, where: str) -> str:
        if self._is_rocm:
            grid, block = json.dumps(op.kernel.grid), f"[{op.kernel.block}, 1, 1]"
            facts = (
                f'"device": {self.gpu}, {where}"kind": "Dispatch Kernel", "grid": {grid}, "block": {block}'
            )
        elif self._timeline.workload.compact:
            facts = f'"device": {self.gpu}, "context": 1,      {where[:-7]}'
        else:
            facts = f'"queued": 0, "device": {self.gpu}, "context": 1,      {where}'
            facts += launch_shape(op.kernel) + _node(op)
        # what a graph replays was recorded when it was captured, not now
        if op.exchange is not None and op.node is None:
            facts += self._calls.on_kernel(self._timeline.exchanges[op.exchange])
        return facts

    def _copy_facts(self, index: int, op: DeviceOp, where: str) -> str:
        size = self._size(op.size)
        rate = size / (self._op_ends[index] - self._op_starts[index])
        devices = f'"device": {self.gpu}, "context": 1'
        if op.exchange is not None:
            exchange = self._timeline.exchanges[op.exchange]
            peers = exchange.message.group.ranks_of(self._rank).tolist()
            distance = index - exchange.ops.start + 1
            peer = peers[(peers.index(self._rank) + distance) % len(peers)]
            target = self._timeline.workload.device(peer)
            devices = (
                f'"fromDevice": {self.gpu}, "inDevice": {self.gpu}, "toDevice": {target}, '
                '"fromContext": 1, "inContext": 1, "toContext": 1'
            )
        kind = f'"kind": "{op.kernel.name.split()[1]}", ' if self._is_rocm else ""
        return f'{devices},      {where}{kind}"bytes": {size}, "memory bandwidth (GB/s)": {rate!r}'

    def _link(self, call: int) -> str:
        """The id of the operator around a call, which its device work carries too."""
        operator = self._timeline.spans[call].operator
        return f'"External id": {self._external[operator]},      ' if operator in self._external else ""


def _node(op: DeviceOp) -> str:
    """The graph and the node that launched it; zeros for a launch of its own."""
    graph, node = op.node or (0, 0)
    return f',      "graph id": {graph}, "graph node id": {(graph << 32) + node}'
