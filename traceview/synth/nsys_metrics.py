"""GPU metrics as Nsight Systems samples them: shares of a period, known because the timeline is.

What a device does at an instant follows from the work that runs then, in thousandths of a percent:

- *SMs Active*: the blocks of the running kernels over the SMs of the device, 100 % at most.
- *DRAM Read* and *Write Bandwidth*: a share by category of the running work, 100 % at most together.
- *NVLink RX* and *TX*: the bytes an exchange moves within the host, spread evenly from the last arrival to
  the end, over 450 GB/s, 100 % at most. So a rank that waits for others shows a running kernel and an idle
  link.

A sample is the mean over the period before its stamp, rounded to a whole percent as in real reports. The
device's own counters see what the profiler's buffers lost: dropped rows change nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traceview.synth.clocks import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traceview.synth.nsys_tables import Row
    from traceview.synth.timeline import DeviceOp, Exchange, Timeline

    Ints = NDArray[np.int64]
    Curve = tuple[Ints, Ints, Ints]

SM_COUNT = 132
NVLINK_BYTES_PER_NS = 450
_SOURCE = 1 << 48  # hardware and virtual machine of the sampler, as in other ids of the report
_WHOLE = 100_000  # 100 %, in thousandths of a percent
_READS, _WRITES = 2, 1  # a kernel reads two operands for each result
_DRAM_SHARES = {
    "gemm": 36_000,
    "grouped_gemm": 48_000,
    "attention": 24_000,
    "elementwise": 90_000,
    "norm": 84_000,
    "route_permute": 78_000,
    "quantize": 81_000,
    "optimizer": 93_000,
    "memory": 12_000,
}
_DRAM_OTHERS = 15_000
METRICS = (
    "SMs Active",
    "DRAM Read Bandwidth",
    "DRAM Write Bandwidth",
    "NVLink RX Responses User Data",
    "NVLink TX Responses User Data",
)
"""Names without their unit; all are percentages."""


def described(device: int) -> Iterator[Row]:
    """Rows of ``TARGET_INFO_GPU_METRICS``: what the numbers of the metrics mean."""
    for number, name in enumerate(METRICS):
        yield {
            "typeId": _SOURCE | device,
            "sourceId": _SOURCE,
            "typeName": f"GPU Metrics [{device}]",
            "metricId": number,
            "metricName": f"{name} [Throughput %]",
        }


def samples(timeline: Timeline, rank: int, *, begin_ns: int | None, base_ns: int) -> Iterator[Row]:
    """Rows of ``GPU_METRICS``, by stamp.

    Args:
        timeline: The run.
        rank: Whose device is sampled.
        begin_ns: True time from which the profiler sampled; None if it was there from the start.
        base_ns: The stamp that the report counts from.
    """
    period = 10**9 // timeline.workload.capture.gpu_metrics_hz
    curves = list(_curves(timeline, rank, base_ns))
    clock = timeline.workload.clock(rank)
    first = int(min(start.min() for start, _, _ in curves if len(start)))
    if begin_ns is not None:
        first = max(first, int(stamp(np.array([begin_ns]), clock)[0]) - base_ns)
    last = int(max(end.max() for _, end, _ in curves if len(end)))
    edges = np.arange(first // period, last // period + 2, dtype=np.int64) * period
    columns = [_percentages(curve, edges) for curve in curves]
    device = timeline.workload.device(rank)
    for ts, *row in zip(edges[1:].tolist(), *(column.tolist() for column in columns), strict=True):
        for number, value in enumerate(row):
            yield {
                "rawTimestamp": ts,
                "timestamp": ts,
                "typeId": _SOURCE | device,
                "metricId": number,
                "value": value,
            }


def _percentages(curve: Curve, edges: Ints) -> Ints:
    """Mean of a curve between neighbouring ``edges``, whole percent, rounded half up."""
    start, end, weight = curve
    points = np.unique(np.concatenate([start, end, edges]))
    steps = np.zeros(len(points), dtype=np.int64)
    np.add.at(steps, np.searchsorted(points, start), weight)
    np.subtract.at(steps, np.searchsorted(points, end), weight)
    level = np.minimum(np.cumsum(steps), _WHOLE)
    area = np.concatenate(([0], np.cumsum(level[:-1] * np.diff(points))))
    inside = np.diff(area[np.searchsorted(points, edges)])
    unit = (edges[1] - edges[0]) * (_WHOLE // 100)
    return np.asarray((2 * inside + unit) // (2 * unit))


def _curves(timeline: Timeline, rank: int, base_ns: int) -> Iterator[Curve]:
    """For each of `METRICS` the spans that add to it: starts, ends, weights."""
    did = np.flatnonzero(timeline.done_by(timeline.ops, rank))
    ops = [timeline.ops[row] for row in did.tolist()]
    clock = timeline.workload.clock(rank)
    start, end = (stamp(t[did, rank], clock) - base_ns for t in (timeline.op_start_ns, timeline.op_end_ns))
    yield start, end, np.array([_sm_share(op) for op in ops], dtype=np.int64)
    dram = np.array([_DRAM_SHARES.get(op.kernel.category, _DRAM_OTHERS) for op in ops], dtype=np.int64)
    for part in (_READS, _WRITES):
        yield start, end, dram * part // (_READS + _WRITES)
    exchanges = [exchange for exchange in timeline.exchanges if _takes_part(timeline, exchange, rank)]
    true_end = np.array([_ended(timeline, e, rank) for e in exchanges], dtype=np.int64)
    transfer = np.array([int(e.transfer_ns[rank]) for e in exchanges], dtype=np.int64)
    begun, ended = (stamp(t, clock) - base_ns for t in (true_end - transfer, true_end))
    for moved in (_received_within_host, _sent_within_host):
        size = np.array([moved(e, rank) for e in exchanges], dtype=np.int64)
        rate = size * _WHOLE // (np.maximum(transfer, 1) * NVLINK_BYTES_PER_NS)
        yield begun, ended, rate


def _sm_share(op: DeviceOp) -> int:
    if op.kernel.kind != "kernel":
        return 0  # a copy engine's work takes no SM
    blocks = int(np.prod(op.kernel.grid))
    return min(blocks, SM_COUNT) * _WHOLE // SM_COUNT


def _takes_part(timeline: Timeline, exchange: Exchange, rank: int) -> bool:
    ran = timeline.ops[exchange.ops.start].ranks
    return bool((ran is None or ran[rank]) and (exchange.message.meeting.members == rank).any())


def _ended(timeline: Timeline, exchange: Exchange, rank: int) -> int:
    """When the last rank of the set has what it was sent."""
    members = exchange.message.meeting.ranks_of(rank)
    return int(timeline.op_end_ns[exchange.ops[-1], members].max())


def _sent_within_host(exchange: Exchange, rank: int) -> int:
    traffic = exchange.message.traffic
    return int(traffic.sent_bytes[rank] - traffic.scale_out_bytes[rank])


def _received_within_host(exchange: Exchange, rank: int) -> int:
    traffic, meeting = exchange.message.traffic, exchange.message.meeting
    received = int(traffic.received_bytes[rank])
    far = meeting.is_far[rank]
    if traffic.rows_in is None:  # the same from every peer
        return received * int((~far).sum() - 1) // max(meeting.size - 1, 1)
    rows = traffic.rows_in[rank].astype(np.int64)
    others = np.arange(meeting.size) != meeting.position[rank]
    return received * int(rows[others & ~far].sum()) // max(int(rows[others].sum()), 1)
