"""What an analysis of the written traces must find, computed without any of the analysis code."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from traceview.synth.capture import captured
from traceview.synth.figures import rank_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Exchange, Timeline

SCHEMA = "traceview/synth-truth/1"
HOT = 1.5
"""An expert with this many times the mean tokens of its layer is hot."""


def truth(timeline: Timeline, files: Mapping[int, str]) -> dict[str, Any]:
    """Everything known about a run, ready for JSON; times are integers in ns.

    Figures per rank hold on the written stamps, and for what its file shows; times of collectives are true
    times since the run began, whether recorded or not.

    Args:
        timeline: The run.
        files: Name of each rank's trace, for those that have one.

    Returns:
        ``ranks`` (clock, file and figures per rank, over the whole device window and per step),
        ``stragglers``, ``collectives`` (one entry per instance; of a compact run ``calls``, one entry per
        call, whose times and bytes are in `arrays`), ``experts`` (tokens per expert) and ``hot_experts``.
    """
    workload = timeline.workload
    if workload.compact:
        communication = {"calls": [_call(timeline, exchange) for exchange in timeline.exchanges]}
    else:
        held = np.stack([captured(timeline, rank).ops & (rank in files) for rank in range(workload.ranks)], 1)
        instances = (_instances(timeline, exchange, held) for exchange in timeline.exchanges)
        communication = {"collectives": list(chain.from_iterable(instances))}
    return {
        "schema": SCHEMA,
        "workload": asdict(workload),
        "ranks": [_rank(timeline, rank, files) for rank in range(workload.ranks)],
        "groups": {group.desc: group.members.tolist() for group in timeline.topology.groups()},
        "stragglers": [
            asdict(straggler) | {"steps": straggler.steps or _steps(timeline)}
            for straggler in workload.stragglers
        ],
        **communication,
        "experts": [
            {
                "step": routing.step,
                "microbatch": routing.microbatch,
                "layer": routing.layer,
                "tokens": _loads(timeline, routing).tolist(),
            }
            for routing in timeline.routings
        ],
        "hot_experts": list(_hot_experts(timeline)),
    }


def arrays(timeline: Timeline) -> dict[str, NDArray[np.int64]]:
    """Times and bytes of every call of a compact run, shape (calls, ranks), in the order of ``calls``."""
    first = [exchange.ops[0] for exchange in timeline.exchanges]
    last = [exchange.ops[-1] for exchange in timeline.exchanges]
    traffic = [exchange.message.traffic for exchange in timeline.exchanges]
    return {
        "start_ns": timeline.op_start_ns[first],
        "end_ns": timeline.op_end_ns[last],
        "transfer_ns": np.stack([exchange.transfer_ns for exchange in timeline.exchanges]),
        "sent_bytes": np.stack([call.sent_bytes for call in traffic]),
        "received_bytes": np.stack([call.received_bytes for call in traffic]),
        "scale_out_bytes": np.stack([call.scale_out_bytes for call in traffic]),
    }


def _steps(timeline: Timeline) -> list[int]:
    first = timeline.workload.first_step
    return list(range(first, first + timeline.workload.steps))


def _rank(timeline: Timeline, rank: int, files: Mapping[int, str]) -> dict[str, Any]:
    workload = timeline.workload
    return {
        "rank": rank,
        "host": workload.host(rank),
        "device": workload.device(rank),
        "file": files.get(rank),
        "recorded_from_ns": captured(timeline, rank).begin_ns,
        "clock_offset_ns": workload.clock(rank).offset_ns,
        "clock_drift_ppm": workload.clock(rank).drift_ppm,
        **rank_figures(timeline, rank),
    }


def _call(timeline: Timeline, exchange: Exchange) -> dict[str, Any]:
    """What all ranks share of a call."""
    op, message = timeline.ops[exchange.ops[0]], exchange.message
    has_number = message.library == "nccl" and op.node is None
    return {
        "collective": message.traffic.collective,
        "category": op.kernel.category,
        "kernel": op.kernel.name,
        "role": message.role,
        "part": message.part,
        "axis": message.group.axis,
        "group_desc": message.group.desc,
        "seq": exchange.sequence if has_number else None,
        "stream": op.stream,
        **asdict(op.scope),
    }


def _instances(timeline: Timeline, exchange: Exchange, held: NDArray[np.bool_]) -> Iterable[dict[str, Any]]:
    """One entry per set of the group that took part; lists per rank are in group order.

    Of a pipeline transfer, the members are sender and receiver.

    Args:
        timeline: The run.
        exchange: The call.
        held: Whether a rank's file holds an op, shape (ops, ranks).
    """
    first, last = exchange.ops[0], exchange.ops[-1]
    traffic, ran = exchange.message.traffic, timeline.ops[first].ranks
    for number, members in enumerate(exchange.message.meeting.members):
        if ran is not None and not ran[members].all():
            continue
        starts = timeline.op_start_ns[first, members]
        latest = np.flatnonzero(starts == starts.max())
        yield {
            **_call(timeline, exchange),
            "group_name": exchange.message.group.names[number],
            "group_ranks": members.tolist(),
            "recorded": held[first, members].tolist(),
            "start_ns": starts.tolist(),
            "end_ns": timeline.op_end_ns[last, members].tolist(),
            "transfer_ns": int(exchange.transfer_ns[members[0]]),
            "last_arriver": int(members[latest[0]]) if len(latest) == 1 else None,
            "in_bytes": traffic.in_bytes[members].tolist(),
            "out_bytes": traffic.out_bytes[members].tolist(),
            "sent_bytes": traffic.sent_bytes[members].tolist(),
            "received_bytes": traffic.received_bytes[members].tolist(),
            "scale_up_bytes": (traffic.sent_bytes - traffic.scale_out_bytes)[members].tolist(),
            "scale_out_bytes": traffic.scale_out_bytes[members].tolist(),
        }


def _loads(timeline: Timeline, routing: Routing) -> NDArray[np.int64]:
    """Tokens per expert of a routing, for the sets that hold its layer, shape (sets, experts)."""
    workload = timeline.workload
    stage = routing.layer // (workload.layers // workload.pipeline_parallel)
    holds_layer = timeline.topology.in_stage(stage)
    return routing.loads[holds_layer[timeline.topology.expert.members[:, 0]]]


def _hot_experts(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Experts that over the run get at least `HOT` times the mean tokens of their layer."""
    workload = timeline.workload
    for layer in range(workload.layers):
        tokens = sum(_loads(timeline, r).sum(axis=0) for r in timeline.routings if r.layer == layer)
        load = tokens / np.mean(tokens)
        for expert in np.flatnonzero(load >= HOT).tolist():
            position = expert // (workload.experts // workload.expert_parallel)
            yield {
                "layer": layer,
                "expert": expert,
                "load": float(load[expert]),
                "tokens": int(tokens[expert]),
                "position": position,
            }
