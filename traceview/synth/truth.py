"""What an analysis of the written traces must find, computed without any of the analysis code.

The method is the plainest one: walk along the rank's timeline from edge to edge and note which kinds of work
are in progress between two edges. Every figure is a sum over those pieces.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from traceview.synth.clocks import stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from traceview.synth.timeline import DeviceOp, Exchange, Timeline

SCHEMA = "traceview/synth-truth/1"


def truth(timeline: Timeline, files: dict[int, str]) -> dict[str, Any]:
    """Everything known about a run, ready for JSON; times are integers in ns.

    Figures per rank hold on the written stamps; times of collectives are true times since the run began.

    Args:
        timeline: The run.
        files: Name of each rank's trace.

    Returns:
        ``ranks`` (clock, file and figures per rank, over the whole device window and per step),
        ``collectives`` (one entry per instance) and ``experts`` (tokens per expert).
    """
    workload = timeline.workload
    return {
        "schema": SCHEMA,
        "workload": asdict(workload),
        "ranks": [
            {
                "rank": rank,
                "host": workload.host(rank),
                "device": workload.device(rank),
                "file": files[rank],
                "clock_offset_ns": workload.clock(rank).offset_ns,
                "clock_drift_ppm": workload.clock(rank).drift_ppm,
                **rank_figures(timeline, rank),
            }
            for rank in range(workload.ranks)
        ],
        "collectives": [
            instance for exchange in timeline.exchanges for instance in _instances(timeline, exchange)
        ],
        "experts": [
            {
                "step": routing.step,
                "microbatch": routing.microbatch,
                "layer": routing.layer,
                "tokens": routing.chosen[timeline.topology.expert.members].sum(axis=1).tolist(),
            }
            for routing in timeline.routings
        ],
    }


def rank_figures(timeline: Timeline, rank: int) -> dict[str, Any]:
    """``all`` (the whole device window) and ``steps`` of one rank.

    A step's window runs from the first start of a device op launched in it to the first start of one
    launched in the next; the last ends with the rank's last op. An op that reaches into another window
    counts there for the part that does.
    """
    clock = timeline.workload.clock(rank)
    starts = stamp(timeline.op_start_ns[:, rank], clock)
    ends = stamp(timeline.op_end_ns[:, rank], clock)
    steps = np.array([op.scope.step for op in timeline.ops])
    numbers = sorted(set(steps.tolist()))
    cuts = [int(starts[steps == step].min()) for step in numbers] + [int(ends.max())]
    pieces = sweep(starts, ends, [_label(timeline, op) for op in timeline.ops], cuts)
    counts = [Counter(op.kernel.category for op in timeline.ops if op.scope.step == step) for step in numbers]
    return {
        "all": _figures(sum(pieces, Counter()), sum(counts, Counter())),
        "steps": {
            str(step): _figures(of_step, counted)
            for step, of_step, counted in zip(numbers, pieces, counts, strict=True)
        },
    }


def sweep(
    starts: NDArray[np.int64], ends: NDArray[np.int64], labels: Sequence[str], cuts: Sequence[int]
) -> list[Counter[frozenset[str]]]:
    """For each window between two cuts, the time spent in each combination of labels.

    Args:
        starts: Start of each op.
        ends: End of each op; an op is there from its start up to, not including, its end.
        labels: Kind of each op.
        cuts: Borders of the windows, ascending, one more than there are windows.

    Returns:
        Per window, the time by the set of labels in progress; the empty set is idle time.
    """
    edges = [(time, 1, label) for time, label in zip(starts.tolist(), labels, strict=True)]
    edges += [(time, -1, label) for time, label in zip(ends.tolist(), labels, strict=True)]
    edges += [(cut, 0, "") for cut in cuts]
    edges.sort()
    pieces: list[Counter[frozenset[str]]] = [Counter() for _ in cuts]
    running: Counter[str] = Counter()
    window = -1  # before the first cut, as after the last one, time goes to the entry that is dropped
    for (time, change, label), (until, _, _) in pairwise(edges):
        if change:
            running[label] += change
        else:
            window += 1
        if until > time:
            pieces[window][frozenset(kind for kind, count in running.items() if count)] += until - time
    return pieces[:-1]


def _label(timeline: Timeline, op: DeviceOp) -> str:
    """``compute``, ``copy``, or the axis of a communication."""
    if op.exchange is not None:
        return f"comm {timeline.exchanges[op.exchange].message.group.axis}"
    return "copy" if op.kernel.category == "memory" else "compute"


def _figures(pieces: Counter[frozenset[str]], counts: Counter[str]) -> dict[str, Any]:
    """One window's figures from its pieces."""
    axes = {
        kinds: [kind.removeprefix("comm ") for kind in kinds if kind.startswith("comm ")] for kinds in pieces
    }
    exposed: Counter[str] = Counter()
    for kinds, time in pieces.items():
        if axes[kinds] and "compute" not in kinds:
            exposed[axes[kinds][0] if len(axes[kinds]) == 1 else "several"] += time

    def total(claims: Iterable[frozenset[str]]) -> int:
        return sum(pieces[kinds] for kinds in claims)

    return {
        "window_ns": total(pieces),
        "compute_ns": total(kinds for kinds in pieces if "compute" in kinds),
        "comm_ns": total(kinds for kinds in pieces if axes[kinds]),
        "hidden_comm_ns": total(kinds for kinds in pieces if axes[kinds] and "compute" in kinds),
        "exposed_comm_ns": exposed.total(),
        "exposed_copy_ns": pieces[frozenset({"copy"})],
        "idle_ns": pieces[frozenset()],
        "exposed_comm_by_axis_ns": dict(sorted(exposed.items())),
        "op_count_by_category": dict(sorted(counts.items())),
    }


def _instances(timeline: Timeline, exchange: Exchange) -> Iterable[dict[str, Any]]:
    """One entry per set of the group; lists per rank are in group order."""
    op, message, traffic = timeline.ops[exchange.op], exchange.message, exchange.message.traffic
    for members in message.group.members:
        starts = timeline.op_start_ns[exchange.op, members]
        latest = np.flatnonzero(starts == starts.max())
        yield {
            "collective": traffic.collective,
            "category": op.kernel.category,
            "kernel": op.kernel.name,
            "role": message.role,
            "part": message.part,
            "axis": message.group.axis,
            "group_name": message.group.name,
            "group_ranks": members.tolist(),
            "seq": exchange.sequence if message.library == "nccl" else None,
            "stream": op.stream,
            **asdict(op.scope),
            "start_ns": starts.tolist(),
            "end_ns": timeline.op_end_ns[exchange.op, members].tolist(),
            "transfer_ns": int(exchange.transfer_ns[members[0]]),
            "last_arriver": int(members[latest[0]]) if len(latest) == 1 else None,
            "in_bytes": traffic.in_bytes[members].tolist(),
            "out_bytes": traffic.out_bytes[members].tolist(),
            "sent_bytes": traffic.sent_bytes[members].tolist(),
            "received_bytes": traffic.received_bytes[members].tolist(),
        }
