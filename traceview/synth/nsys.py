"""A rank's trace as Nsight Systems exports it: tables of one process's ranges, device work and GPU metrics.

Every kind of export holds the same rows. Graphs are recorded node by node or, with ``graph_trace="graph"``,
as one opaque block per replay, from the first start to the last end of what it hides; the truth stays that of
the nodes.

Source: tables, ids and names as in exports of nsys 2026.2 (schema 3.25).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from traceview.errors import UsageError
from traceview.synth import nsys_metrics, nsys_nccl
from traceview.synth.capture import captured
from traceview.synth.clocks import EPOCH_NS, stamp
from traceview.synth.kineto_metadata import CallTexts
from traceview.synth.machine import COMPUTE_STREAM
from traceview.synth.process import correlations, process_id, thread_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from traceview.synth.kernels import Kernel
    from traceview.synth.nsys_tables import Row, Tables
    from traceview.synth.timeline import DeviceOp, HostSpan, Timeline

_LEAD_NS = 1_000_000_000  # from the start of the session to the first event
_PUSH_POP, _DOMAIN_CREATE = 59, 75
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2}
_DEVICE_MEMORY = _MEMORY_KINDS["Device"]
_TABLE_OF_KIND = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET",
}
_API_VERSIONS = {
    "cudaLaunchKernel": 7000,
    "cudaLaunchKernelExC": 11060,
    "cudaMemcpyAsync": 3020,
    "cudaMemsetAsync": 3020,
    "cudaEventRecord": 3020,
    "cudaStreamWaitEvent": 3020,
    "cudaStreamSynchronize": 3020,
    "cudaDeviceSynchronize": 3020,
    "cudaGraphLaunch": 10000,
}
_RUNTIME, _DRIVER = 0, 1


def tables(timeline: Timeline, rank: int) -> Tables:
    """The whole export of ``rank``'s process.

    Raises:
        UsageError: The workload runs on a platform that Nsight Systems does not trace.
    """
    if timeline.workload.platform != "cuda":
        message = f"Nsight Systems traces NVIDIA's GPUs only; write {timeline.workload.platform} as kineto."
        raise UsageError(message)
    return _Process(timeline, rank).tables()


class _Process:
    """One rank's rows; stamps count from the start of the session."""

    def __init__(self, timeline: Timeline, rank: int) -> None:
        clock = timeline.workload.clock(rank)
        spans = np.stack([stamp(t[:, rank], clock) for t in (timeline.span_start_ns, timeline.span_end_ns)])
        ops = np.stack([stamp(t[:, rank], clock) for t in (timeline.op_start_ns, timeline.op_end_ns)])
        self._timeline = timeline
        self._rank = rank
        self._captured = captured(timeline, rank)
        starts = np.concatenate([spans[0, self._captured.spans], ops[0, self._captured.ops]])
        self._session_ns = int(starts.min()) - _LEAD_NS
        self._span_times = (spans - self._session_ns).T.tolist()
        self._op_times = (ops - self._session_ns).T.tolist()
        self._strings = _Strings()
        self._correlation = correlations(timeline, rank)
        self._pid, self._tids = process_id(rank), thread_ids(rank)

    def tables(self) -> Tables:
        """Rows by table."""
        found = {
            **self._device_work(),
            "CUPTI_ACTIVITY_KIND_RUNTIME": list(self._calls()),
            "NVTX_EVENTS": [*self._domain(), *self._annotations(), *self._nccl()],
            "NVTX_PAYLOAD_SCHEMA_ENTRIES": list(nsys_nccl.schema_entries()),
            **self._metrics(),
            **self._target(),
        }
        return found | {"StringIds": self._strings.rows()}

    def _global_id(self, tid: int = 0) -> int:
        """Hardware, virtual machine, process and thread, packed into one number."""
        return 1 << 56 | 1 << 48 | self._pid << 24 | tid

    def _device_work(self) -> Tables:
        work: Tables = defaultdict(list)
        replayed: defaultdict[int, list[int]] = defaultdict(list)
        for index in np.flatnonzero(self._captured.ops).tolist():
            op = self._timeline.ops[index]
            if op.node and self._timeline.workload.capture.graph_trace == "graph":
                replayed[op.call].append(index)
            else:
                work[_TABLE_OF_KIND[op.kernel.kind]].append(self._op_row(index, op))
        for call, nodes in replayed.items():
            work["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append(self._graph_row(call, nodes))
        return work

    def _place(self, times: Sequence[int], stream: int, call: int) -> Row:
        return {
            "start": times[0],
            "end": times[1],
            "deviceId": self._timeline.workload.device(self._rank),
            "contextId": 1,
            "streamId": stream,
            "correlationId": self._correlation[call],
            "globalPid": self._global_id(),
        }

    def _graph_row(self, call: int, nodes: list[int]) -> Row:
        """The block that stands for all ``nodes`` (rows of `Timeline.ops`) of one replay."""
        times = [self._op_times[index] for index in nodes]
        around = (min(start for start, _ in times), max(end for _, end in times))
        graph, _ = self._timeline.ops[nodes[0]].node or (0, 0)
        return self._place(around, COMPUTE_STREAM, call) | {"graphId": graph, "graphExecId": graph + 1}

    def _op_row(self, index: int, op: DeviceOp) -> Row:
        graph, node = op.node or (0, 0)
        place = self._place(self._op_times[index], op.stream, op.call)
        place["graphNodeId"] = (graph << 32) + node or None
        if op.kernel.kind == "kernel":
            return place | self._kernel_facts(op.kernel)
        size = op.size if isinstance(op.size, int) else int(op.size[self._rank])
        facts = (
            _copy_facts(op.kernel) if op.kernel.kind == "memcpy" else {"value": 0, "memKind": _DEVICE_MEMORY}
        )
        return place | {"bytes": size} | facts

    def _kernel_facts(self, kernel: Kernel) -> Row:
        name = self._strings(kernel.name)
        return {
            "demangledName": name,
            "shortName": self._strings(_short(kernel.name)),
            "mangledName": None,
            "registersPerThread": kernel.registers,
            "dynamicSharedMemory": kernel.shared_memory,
            **dict(zip(("gridX", "gridY", "gridZ"), kernel.grid, strict=True)),
            **dict(zip(("blockX", "blockY", "blockZ"), (kernel.block, 1, 1), strict=True)),
        }

    def _recorded(self, kind: str) -> Iterator[tuple[int, HostSpan]]:
        """Rows of the spans of a kind that the report holds."""
        for row in np.flatnonzero(self._captured.spans).tolist():
            if self._timeline.spans[row].kind == kind:
                yield row, self._timeline.spans[row]

    def _calls(self) -> Iterator[Row]:
        for row, span in self._recorded("call"):
            start, end = self._span_times[row]
            version = _API_VERSIONS.get(span.name)
            yield {
                "start": start,
                "end": end,
                "eventClass": _DRIVER if version is None else _RUNTIME,
                "globalTid": self._global_id(self._tids[span.thread]),
                "correlationId": self._correlation[row],
                "nameId": self._strings(span.name if version is None else f"{span.name}_v{version}"),
                "returnValue": 0,
            }

    def _annotations(self) -> Iterator[Row]:
        texts = CallTexts(self._timeline, self._rank)
        for row, span in self._recorded("annotation"):
            start, end = self._span_times[row]
            name = span.name
            if span.exchange is not None:
                name = texts.range_name(name, self._timeline.exchanges[span.exchange])
            yield {
                "start": start,
                "end": end,
                "eventType": _PUSH_POP,
                "text": name,
                "globalTid": self._global_id(self._tids[span.thread]),
                "domainId": 0,
            }

    def _domain(self) -> Iterator[Row]:
        yield {
            "start": 0,
            "eventType": _DOMAIN_CREATE,
            "text": "NCCL",
            "globalTid": self._global_id(self._tids["main"]),
            "domainId": nsys_nccl.DOMAIN,
        }

    def _nccl(self) -> Iterator[Row]:
        """NCCL's own ranges; what a graph replays was called when it was captured, not now."""
        calls = nsys_nccl.Calls(self._timeline, self._rank)
        if self._captured.begin_ns is None:
            yield from self._nccl_rows("main", calls.created(_LEAD_NS // 4, _LEAD_NS // 2))
        for exchange in self._timeline.exchanges:
            op = self._timeline.ops[exchange.ops.start]
            did = op.ranks is None or op.ranks[self._rank]
            if exchange.message.library != "nccl" or op.kernel.kind != "kernel" or op.node or not did:
                continue
            if self._captured.spans[op.call]:
                start, end = self._span_times[op.call]
                thread = self._timeline.spans[op.call].thread
                yield from self._nccl_rows(thread, calls.around(exchange, start, end))

    def _nccl_rows(self, thread: str, ranges: Iterable[nsys_nccl.Range]) -> Iterator[Row]:
        for pushed in ranges:
            yield {
                "start": pushed.start,
                "end": pushed.end,
                "eventType": _PUSH_POP,
                "textId": self._strings(pushed.name),
                "globalTid": self._global_id(self._tids[thread]),
                "domainId": nsys_nccl.DOMAIN,
                "binaryData": pushed.payload,
            }

    def _metrics(self) -> Tables:
        if not self._timeline.workload.capture.gpu_metrics_hz:
            return {}
        sampled = nsys_metrics.samples(
            self._timeline, self._rank, begin_ns=self._captured.begin_ns, base_ns=self._session_ns
        )
        device = self._timeline.workload.device(self._rank)
        return {
            "GPU_METRICS": list(sampled),
            "TARGET_INFO_GPU_METRICS": list(nsys_metrics.described(device)),
        }

    def _target(self) -> Tables:
        """Who was traced, where, since when, and by which version."""
        workload = self._timeline.workload
        device = workload.device(self._rank)
        mode = workload.capture.graph_trace.capitalize()
        gpu: Row = {
            "vmId": 1,
            "name": "NVIDIA H100 80GB HBM3",
            "totalMemory": 85_028_372_480,
            "smCount": nsys_metrics.SM_COUNT,
        }
        gpu |= {"computeMajor": 9, "computeMinor": 0}
        exported = {"EXPORT_PRODUCT_VERSION": "2026.2.1.210", "EXPORT_SCHEMA_VERSION": "3.25.0"}
        exported |= {"EXPORT_PARAM_TIME_NORMALIZE": "false", "EXPORT_PARAM_TIME_SHIFT": "0"}
        return {
            "TARGET_INFO_GPU": [gpu | {"id": d, "cuDevice": d} for d in range(workload.ranks_per_host)],
            "TARGET_INFO_CUDA_DEVICE": [
                {
                    "gpuId": device,
                    "cudaId": device,
                    "pid": self._pid,
                    "numMultiprocessors": nsys_metrics.SM_COUNT,
                }
            ],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS + self._session_ns}],
            "TARGET_INFO_SYSTEM_ENV": [
                {"globalVid": 1, "name": "Hostname", "value": f"node{workload.host(self._rank)}"}
            ],
            "META_DATA_CAPTURE": [{"name": "CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": mode}],
            "META_DATA_EXPORT": [{"name": name, "value": value} for name, value in exported.items()],
        }


class _Strings:
    """The string table: a number for every distinct text."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids) + 1)

    def rows(self) -> list[Row]:
        """Rows of ``StringIds``."""
        return [{"id": number, "value": text} for text, number in self._ids.items()]


def _short(name: str) -> str:
    """A function's name without its result, namespaces, template arguments and parameters."""
    bare = name.replace("(anonymous namespace)::", "").split("<")[0].split("(")[0]
    return bare.removeprefix("void ").rsplit("::", 1)[-1]


def _copy_facts(kernel: Kernel) -> Row:
    """The kinds that a copy's name tells: ``Memcpy HtoD (Pinned -> Device)``."""
    _, direction, ends = kernel.name.split(" ", 2)
    source, target = ends.strip("()").split(" -> ")
    return {
        "copyKind": _COPY_KINDS[direction],
        "srcKind": _MEMORY_KINDS[source],
        "dstKind": _MEMORY_KINDS[target],
    }
