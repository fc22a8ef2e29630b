"""The events of one rank's Kineto trace: host rows, device rows, and the flows and ids that link them."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

from traceview.synth.clocks import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from traceview.synth.timeline import DeviceOp, Exchange, HostSpan, Timeline

_LIST_LIMIT = 30  # PyTorch cuts split and rank lists here
_SM_COUNT = 132
_SM_WARPS = 64
_CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cuLaunchKernel": 307,
    "cuLaunchKernelEx": 652,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}
_COLLECTIVE_NAMES = {
    "all_to_all": "all_to_allv",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_reduce": "allreduce",
}
_TYPE_NAMES = {"BFloat16": "c10::BFloat16", "Float": "float", "Float8_e4m3fn": "c10::Float8_e4m3fn"}
_SPAN_CATEGORIES = {"annotation": "user_annotation", "operator": "cpu_op", "frame": "python_function"}
_OP_CATEGORIES = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


def microseconds(ns: int) -> str:
    """``ns`` as Kineto prints it: microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


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
        self._span_starts = stamp(timeline.span_start_ns[:, rank], clock).tolist()
        self._span_ends = stamp(timeline.span_end_ns[:, rank], clock).tolist()
        self._op_starts = stamp(timeline.op_start_ns[:, rank], clock).tolist()
        self._op_ends = stamp(timeline.op_end_ns[:, rank], clock).tolist()
        self._ranks = {g.name: g.ranks_of(rank).tolist() for g in timeline.topology.groups()}
        self._triton = {op.kernel.name for op in timeline.ops if op.kernel.host_op == op.kernel.name}
        # Ids differ between ranks, as they do in real runs.
        self._external = _numbered(timeline.spans, ("annotation", "operator"), first=1 + rank)
        self._event = _numbered(timeline.spans, ("annotation", "operator", "frame"), first=0)
        self._correlation = _numbered(timeline.spans, ("call",), first=12_000 + 7 * rank)
        self._python = _numbered(timeline.spans, ("frame",), first=1)
        self.pid = 2_326_506 + 631 * rank
        self.gpu = timeline.workload.device(rank)
        self.tids = {"main": self.pid, "autograd": self.pid + 512}
        self.streams = sorted({op.stream for op in timeline.ops})
        self.begin_ns = min(self._span_starts)
        self.end_ns = max(*self._span_ends, *self._op_ends)

    def host(self) -> Iterator[str]:
        """Annotations, operators and Python frames, and the flows from forward to backward."""
        for row, span in enumerate(self._timeline.spans):
            if span.kind == "call":
                continue
            yield self._host_row(row, span)
            if span.sequence is not None:
                phase = "s" if span.thread == "main" else "f"
                tid = self.tids[span.thread]
                yield _flow(phase, "fwdbwd", span.sequence, (self.pid, tid), self._span_starts[row])

    def device(self) -> Iterator[str]:
        """Calls and the work they launched, each with its end of the flow between them."""
        launched = {op.call: index for index, op in enumerate(self._timeline.ops)}
        for row, span in enumerate(self._timeline.spans):
            if span.kind != "call":
                continue
            correlation, tid, ts = self._correlation[row], self.tids[span.thread], self._span_starts[row]
            if row in launched:
                index = launched[row]
                op = self._timeline.ops[index]
                yield self._device_row(index, op)
                place = (self.gpu, op.stream)
                yield _flow("f", "ac2g", correlation, place, self._op_starts[index])
            yield self._call_row(row, span)
            phase = "f" if span.name == "cudaEventRecord" else "s"
            yield _flow(phase, "ac2g", correlation, (self.pid, tid), ts)

    def device_annotations(self) -> Iterator[str]:
        """Each annotation's shadow on each stream: from its first op to its last, a nanosecond wider.

        Only the innermost annotation around a launch casts a shadow.
        """
        shadows: dict[tuple[int, int], tuple[int, int]] = {}
        for op, start, end in zip(self._timeline.ops, self._op_starts, self._op_ends, strict=True):
            row = self._timeline.spans[op.call].annotation
            if row is not None:
                first, last = shadows.get((row, op.stream), (start, end))
                shadows[row, op.stream] = min(first, start), max(last, end)
        for (row, stream), (first, last) in sorted(shadows.items()):
            name = self._timeline.spans[row].name
            args = f'"External id": {self._external[row]}'
            yield _complete("gpu_user_annotation", name, (self.gpu, stream), (first - 1, last + 1), args)

    def _host_row(self, row: int, span: HostSpan) -> str:
        place = (self.pid, self.tids[span.thread])
        times = (self._span_starts[row], self._span_ends[row])
        facts = self._frame_facts(row) if span.kind == "frame" else self._operator_facts(row, span)
        return _complete(_SPAN_CATEGORIES[span.kind], span.name, place, times, facts)

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
            elements = int(exchange.message.traffic.in_elements[self._rank])
            dtype = exchange.message.traffic.dtype
            facts += self._recorded(exchange) if span.kind == "operator" else _inputs([[elements]], [dtype])
        elif span.dims:
            dims = [[self._size(size) for size in shape] for shape in span.dims]
            facts += _inputs(dims, ["BFloat16"] * len(dims))
        if self._timeline.workload.traps and span.name in self._triton:
            facts += (
                '"num_warps": 8, "stream": 0, "kernel_backend": "triton", "num_stages": 1, '
                f'"kernel_name": {json.dumps(span.name)}, "kernel_kwargs": "XBLOCK=1024", '
            )
        return f'{facts}"Ev Idx": {self._event[row]}'

    def _size(self, size: int | NDArray[np.int64]) -> int:
        return size if isinstance(size, int) else int(size[self._rank])

    def _call_row(self, row: int, span: HostSpan) -> str:
        category = "cuda_runtime" if span.name.startswith("cuda") else "cuda_driver"
        link = "" if span.operator is None else f'"External id": {self._external[span.operator]},      '
        args = f'{link}"cbid": {_CALLBACK_IDS[span.name]}, "correlation": {self._correlation[row]}'
        place = (self.pid, self.tids[span.thread])
        return _complete(category, span.name, place, (self._span_starts[row], self._span_ends[row]), args)

    def _device_row(self, index: int, op: DeviceOp) -> str:
        start, end = self._op_starts[index], self._op_ends[index]
        operator = self._timeline.spans[op.call].operator
        link = "" if operator is None else f'"External id": {self._external[operator]},      '
        where = f'"stream": {op.stream}, "correlation": {self._correlation[op.call]},      '
        graph = '"graph id": 0, "graph node id": 0'
        if op.kernel.kind == "kernel":
            args = f'{link}"queued": 0, "device": {self.gpu}, "context": 1,      {where}{_shape(op)}{graph}'
            if op.exchange is not None:
                args += self._copied(self._timeline.exchanges[op.exchange])
        else:
            rate = op.size / (end - start)
            args = (
                f'{link}"device": {self.gpu}, "context": 1,      {where}'
                f'"bytes": {op.size}, "memory bandwidth (GB/s)": {rate!r},      {graph}'
            )
        place = (self.gpu, op.stream)
        return _complete(_OP_CATEGORIES[op.kernel.kind], op.kernel.name, place, (start, end), args)

    def _copied(self, exchange: Exchange) -> str:
        """What PyTorch copies from the recorded call to its kernel; nothing, for libraries it cannot see."""
        message = exchange.message
        if message.library != "nccl":
            return ""
        traffic, group = message.traffic, message.group
        into, out = self._splits(exchange)
        return (
            f', "Collective name": "{_COLLECTIVE_NAMES[traffic.collective]}"'
            f', "In msg nelems": {traffic.in_elements[self._rank]}'
            f', "Out msg nelems": {traffic.out_elements[self._rank]}'
            f', "Group size": {group.size}, "dtype": "{traffic.dtype}"'
            f', "In split size": "{into}", "Out split size": "{out}"'
            f', "Process Group Name": "{group.name}", "Process Group Description": "{group.desc}"'
            f', "Process Group Ranks": "{_listed(self._ranks[group.name])}", "Seq": {exchange.sequence}'
        )

    def _recorded(self, exchange: Exchange) -> str:
        """The arguments of ``record_param_comms``, in the order PyTorch's hash map leaves them."""
        traffic, group = exchange.message.traffic, exchange.message.group
        into, out = self._splits(exchange)
        ranks = self._ranks[group.name]
        stride = ranks[1] - ranks[0] if group.size > 1 else 1
        blanks = ", []" * 10
        concrete = ["", "", "", "0", "", into, out, "0", "1", str(group.size), "False"]
        types = [_TYPE_NAMES[traffic.dtype], "", "", "Scalar", "", "ScalarList", "ScalarList"] + [
            "Scalar"
        ] * 4
        return (
            f'"Process Group Name": "{group.name}", "In split size": "{into}", "Out split size": "{out}", '
            f'"Out msg nelems": {traffic.out_elements[self._rank]}, '
            f'"Process Group Ranks": "{_listed(ranks)}", "Group size": {group.size}, '
            f'"Input Strides": [[1]{blanks}], "Global rank stride": {stride}, '
            f'"Input type": {json.dumps(types)}, "Seq": {exchange.sequence}, '
            f'"Concrete Inputs": {json.dumps(concrete)}, "Is asynchronized op": 0, '
            f'"Collective name": "{_COLLECTIVE_NAMES[traffic.collective]}", '
            f'"Process Group Description": "{group.desc}", "dtype": "{traffic.dtype}", "Rank": {self._rank}, '
            f'"In msg nelems": {traffic.in_elements[self._rank]}, '
            f'"Input Dims": [[{traffic.in_elements[self._rank]}]{blanks}], "Global rank start": {ranks[0]}, '
        )

    def _splits(self, exchange: Exchange) -> tuple[str, str]:
        """Rows sent and received per peer, as text; empty lists when the call has none."""
        traffic = exchange.message.traffic
        if traffic.rows_out is None or traffic.rows_in is None:
            return "[]", "[]"
        return (
            _listed(traffic.rows_out[self._rank].tolist()),
            _listed(traffic.rows_in[self._rank].tolist()),
        )


def _numbered(spans: Sequence[HostSpan], kinds: Sequence[str], *, first: int) -> dict[int, int]:
    """Running numbers of the spans of some kinds, by their row."""
    numbers = count(first)
    return {row: next(numbers) for row, span in enumerate(spans) if span.kind in kinds}


def _listed(values: Sequence[int]) -> str:
    shown = ", ".join(str(value) for value in values[:_LIST_LIMIT])
    return f"[{shown}, ...]" if len(values) > _LIST_LIMIT else f"[{shown}]"


def _inputs(dims: list[list[int]], dtypes: list[str]) -> str:
    """Shapes of contiguous tensor inputs, as recorded with ``record_shapes``."""
    strides = [_strides(shape) for shape in dims]
    types = [_TYPE_NAMES[dtype] for dtype in dtypes]
    return (
        f'"Concrete Inputs": {json.dumps([""] * len(dims))}, "Input type": {json.dumps(types)}, '
        f'"Input Strides": {json.dumps(strides)}, "Input Dims": {json.dumps(dims)}, '
    )


def _strides(shape: list[int]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _shape(op: DeviceOp) -> str:
    """A kernel's launch shape and the occupancy Kineto derives from it."""
    kernel = op.kernel
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / _SM_COUNT
    warps = blocks * kernel.block / 32
    occupancy = min(100, round(100 * warps / _SM_WARPS))
    return (
        f'"registers per thread": {kernel.registers},      "shared memory": {kernel.shared_memory},      '
        f'"blocks per SM": {blocks:.6f},      "warps per SM": {warps:.6f},      '
        f'"grid": {json.dumps(kernel.grid)},      "block": [{kernel.block}, 1, 1],      '
        f'"est. achieved occupancy %": {occupancy},      '
    )


def _complete(category: str, name: str, place: tuple[int, int], times: tuple[int, int], args: str) -> str:
    """A timed row; ``place`` is process and thread, ``times`` start and end stamp."""
    quoted = json.dumps(name, ensure_ascii=False)
    return f"""  {{
    "ph": "X", "cat": "{category}", "name": {quoted}, "pid": {place[0]}, "tid": {place[1]},
    "ts": {microseconds(times[0])}, "dur": {microseconds(times[1] - times[0])},
    "args": {{
      {args}
    }}
  }}"""


def _flow(phase: str, category: str, number: int, place: tuple[int, int], ts: int) -> str:
    """One end of an arrow; the finishing end binds to the row that encloses it."""
    binding = ', "bp": "e"' if phase == "f" else ""
    return f"""  {{
    "ph": "{phase}", "id": {number}, "pid": {place[0]}, "tid": {place[1]}, "ts": {microseconds(ts)},
    "cat": "{category}", "name": "{category}"{binding}
  }}"""
