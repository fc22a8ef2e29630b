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
    from traceview.synth.topology import Group

SCHEMA = "traceview/synth-truth/1"
HOT = 1.5
"""An expert with this many times the mean tokens of its layer is hot."""


def truth(timeline: Timeline, files: Mapping[int, str]) -> dict[str, Any]:
    """Everything known about a run, ready for JSON; times are integers in ns.

    Figures per rank hold on the written stamps, and for what its file shows; times of collectives are true
    times since the run began, whether recorded or not. Of a run that records only some of its ranks, all
    but the throughput is about those: sets of which none is recorded are left out, and lists per rank hold
    the recorded members.

    Args:
        timeline: The run.
        files: Name of each rank's trace, for those that have one.

    Returns:
        ``throughput`` (of the whole job), ``ranks`` (clock, file and figures per rank, over the whole device
        window and per step), ``stragglers``, ``collectives`` (one entry per instance; where they are vast
        ``calls``, one entry per call, whose times and bytes are in `arrays`), ``experts`` (tokens per expert)
        and ``hot_experts``.
    """
    workload = timeline.workload
    if workload.has_vast_truth:
        communication = {"calls": [_call(timeline, exchange) for exchange in timeline.exchanges]}
    else:
        held = np.zeros((len(timeline.ops), workload.ranks), dtype=bool)
        for rank in files:
            held[:, rank] = captured(timeline, rank).ops
        instances = (_instances(timeline, exchange, held) for exchange in timeline.exchanges)
        communication = {"collectives": list(chain.from_iterable(instances))}
    return {
        "schema": SCHEMA,
        "workload": asdict(workload),
        "throughput": _throughput(timeline),
        "ranks": [_rank(timeline, rank, files) for rank in workload.recorded],
        "groups": {group.desc: _known_sets(timeline, group).tolist() for group in timeline.topology.groups()},
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


def _throughput(timeline: Timeline) -> dict[str, Any]:
    """How fast the whole job is, all its ranks included, whichever of them are recorded.

    A step takes, on average, the time from a rank's first device op to its last, over the steps.
    """
    workload = timeline.workload
    in_step = [row for row, op in enumerate(timeline.ops) if op.scope.step is not None]
    ran = np.stack([timeline.done_by(timeline.ops, rank)[in_step] for rank in range(workload.ranks)], axis=1)
    never = np.iinfo(np.int64)
    begin = np.where(ran, timeline.op_start_ns[in_step], never.max).min(axis=0)
    end = np.where(ran, timeline.op_end_ns[in_step], never.min).max(axis=0)
    step_ns = float((end - begin).mean()) / workload.steps
    tokens = workload.tokens_per_step
    return {
        "rank_count": workload.ranks,
        "tokens_per_step": tokens,
        "step_ns": step_ns,
        "tokens_per_second_per_rank": tokens / workload.ranks / step_ns * 1e9,
    }


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
        known = np.isin(members, timeline.workload.recorded)
        if not known.any() or (ran is not None and not ran[members].all()):
            continue
        starts = timeline.op_start_ns[first, members]
        latest = np.flatnonzero(starts == starts.max())
        here = members[known]
        yield {
            **_call(timeline, exchange),
            "group_name": exchange.message.group.names[number],
            "group_size": len(members),
            "group_ranks": here.tolist(),
            "recorded": held[first, here].tolist(),
            "start_ns": starts[known].tolist(),
            "end_ns": timeline.op_end_ns[last, here].tolist(),
            "transfer_ns": int(exchange.transfer_ns[members[0]]),
            "last_arriver": int(members[latest[0]]) if len(latest) == 1 else None,
            "in_bytes": traffic.in_bytes[here].tolist(),
            "out_bytes": traffic.out_bytes[here].tolist(),
            "sent_bytes": traffic.sent_bytes[here].tolist(),
            "received_bytes": traffic.received_bytes[here].tolist(),
            "scale_up_bytes": (traffic.sent_bytes - traffic.scale_out_bytes)[here].tolist(),
            "scale_out_bytes": traffic.scale_out_bytes[here].tolist(),
        }


def _known_sets(timeline: Timeline, group: Group) -> NDArray[np.int64]:
    """The sets of ``group`` with a recorded rank."""
    return group.members[np.isin(group.members, timeline.workload.recorded).any(axis=1)]


def _loads(timeline: Timeline, routing: Routing) -> NDArray[np.int64]:
    """Tokens per expert of a routing, for the sets that hold its layer, shape (sets, experts)."""
    workload = timeline.workload
    stage = routing.layer // (workload.layers // workload.pipeline_parallel)
    holds_layer = timeline.topology.in_stage(stage)
    sets = timeline.topology.expert.members
    is_known = np.isin(sets, workload.recorded).any(axis=1)
    return routing.loads[holds_layer[sets[:, 0]] & is_known]


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
