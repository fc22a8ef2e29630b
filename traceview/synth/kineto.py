"""A rank's trace as PyTorch's profiler writes it: the document around the events of `kineto_events`.

Source: layout, keys and their order as written by Kineto in PyTorch 2.9 (``schemaVersion`` 1).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from traceview.synth.clocks import EPOCH_NS
from traceview.synth.kineto_events import RankEvents
from traceview.synth.kineto_rows import microseconds

if TYPE_CHECKING:
    from traceview.synth.timeline import Timeline

_PROCESS = "python3"
_DEVICE_ROWS = 16  # Kineto names this many GPU processes, whatever the host has
_DEVICE_SORT_INDEX = 5_000_000
_SPANS_SORT_INDEX = 536_870_912
_WINDOW_MARGIN_NS = 50_000
_CUDA_VERSIONS = """      "cuda_driver_version": 13000,
      "cuda_runtime_version": 13000,
      "cupti_version": 130001,"""
_ROCM_VERSIONS = """      "hip_driver_version": 70253211,
      "hip_runtime_version": 70253211,
      "roctracer_version": 4.1,"""


def document(timeline: Timeline, rank: int) -> str:
    """The whole JSON text of ``rank``'s trace."""
    events = RankEvents(timeline, rank)
    body = [*_metadata(events), *events.host(), *events.device()]
    if not timeline.workload.compact:
        body += events.device_annotations()
    return "".join(
        (_header(timeline, rank), ",\n".join(body + _closing(events)), _footer(timeline.workload.steps, rank))
    )


def _header(timeline: Timeline, rank: int) -> str:
    workload = timeline.workload
    is_rocm = workload.platform == "rocm"
    describe = _amd_device if is_rocm else _nvidia_device
    devices = ",\n".join(describe(device) for device in range(workload.ranks_per_host))
    groups = [
        {
            "pg_name": group.names[group.set_of(rank)],
            "pg_desc": group.desc,
            "backend_config": "cuda:nccl",
            "pg_size": group.size,
            "ranks": group.ranks_of(rank).tolist(),
        }
        for group in timeline.topology.groups()
    ]
    distributed = {
        "backend": "nccl",
        "rank": rank,
        "world_size": workload.ranks,
        "pg_count": len(groups),
        "pg_config": groups,
        "nccl_version": "2.27.7" if is_rocm else "2.29.7",
    }
    return f"""
  {{
    "schemaVersion": 1,
    "deviceProperties": [
{devices}
    ],
      "trace_id": "{workload.seed:016X}{rank:016X}",
      "record_shapes": 1,
      "distributedInfo": {json.dumps(distributed)},
{_ROCM_VERSIONS if is_rocm else _CUDA_VERSIONS}
  "host_name": "node{workload.host(rank)}",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": {EPOCH_NS},
  "traceEvents": [
"""


def _nvidia_device(device: int) -> str:
    return f"""    {{
      "id": {device}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472
    }}"""


def _amd_device(device: int) -> str:
    return f"""    {{
      "id": {device}, "name": "AMD Instinct MI300X", "totalGlobalMem": 206141652992,
      "computeMajor": 9, "computeMinor": 4,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 131072, "warpSize": 64,
      "sharedMemPerBlock": 65536, "numSms": 304
    , "maxSharedMemoryPerMultiProcessor": 65536
    }}"""


def _metadata(events: RankEvents) -> list[str]:
    """Names and order of the processes and threads."""
    processes = [(events.pid, "CPU", events.pid)]
    processes += [(row, f"GPU {row}", _DEVICE_SORT_INDEX + row) for row in range(_DEVICE_ROWS)]
    threads = [(events.gpu, stream, f"stream {stream} ", stream) for stream in events.streams]
    threads += [
        (events.pid, tid, f"thread {tid} ({name})", tid)
        for tid, name in zip(events.tids.values(), (_PROCESS, "pt_autograd_0"), strict=True)
    ]
    ts = microseconds(events.begin_ns)
    rows = []
    for pid, label, index in processes:
        rows.append(_named("process_name", ts, (pid, 0), name=_PROCESS))
        rows.append(_named("process_labels", ts, (pid, 0), labels=label))
        rows.append(_named("process_sort_index", ts, (pid, 0), sort_index=index))
    for pid, tid, name, index in threads:
        rows.append(_named("thread_name", ts, (pid, tid), name=name))
        rows.append(_named("thread_sort_index", ts, (pid, tid), sort_index=index))
    return rows


def _named(kind: str, ts: str, place: tuple[int, int], **fact: str | int) -> str:
    """A row that names or orders a process or thread."""
    return f"""  {{
    "name": "{kind}", "ph": "M", "ts": {ts}, "pid": {place[0]}, "tid": {place[1]},
    "args": {{
      {json.dumps(fact)[1:-1]}
    }}
  }}"""


def _closing(events: RankEvents) -> list[str]:
    """The rows that mark the profiler's own window."""
    ts = microseconds(events.begin_ns - _WINDOW_MARGIN_NS)
    end = microseconds(events.end_ns + _WINDOW_MARGIN_NS)
    dur = microseconds(events.end_ns - events.begin_ns + _WINDOW_MARGIN_NS)
    return [
        f"""  {{
    "ph": "X", "cat": "Trace", "ts": {ts}, "dur": {dur},
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {{
      "Op count": 0
    }}
  }}""",
        f"""  {{
    "name": "process_sort_index", "ph": "M", "ts": {ts},
    "pid": "Spans", "tid": 0,
    "args": {{
      "sort_index": {_SPANS_SORT_INDEX}
    }}
  }}""",
        f"""  {{
    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",
    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {ts}
  }}""",
        f"""  {{
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": {end}
  }}""",
    ]


def _footer(steps: int, rank: int) -> str:
    return f"""
  ],
  "traceName": "iteration_{steps}/rank{rank}_trace.json"
}}
"""
