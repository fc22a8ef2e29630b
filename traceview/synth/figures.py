"""Where the time of one rank goes, found the plainest way: by walking along its timeline.

From edge to edge it notes which kinds of work are in progress; every figure is a sum over those pieces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from traceview.synth.capture import captured
from traceview.synth.clocks import stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from traceview.synth.timeline import Timeline


def rank_figures(timeline: Timeline, rank: int) -> dict[str, Any]:
    """``all`` (the whole device window) and ``steps`` of one rank, as its file shows them.

    A step's window runs from the first start of a device op launched in it to the first start of one
    launched in the next; the last ends with the rank's last op. An op that reaches into another window
    counts there for the part that does.
    """
    file = captured(timeline, rank)
    rows = np.flatnonzero(file.ops)
    starts, turns, ends = _stamps(timeline, rows, rank)
    steps = file.steps[rows]
    numbers = sorted(set(steps.tolist()) - {-1})
    begins = [int(starts[steps == step].min()) for step in numbers]
    waiting, working = _labels(timeline, rows)
    cuts = [int(starts.min()), *begins, int(ends.max())]
    held_by = [timeline.ops[row].held_by[rank] for row in rows.tolist()]
    idle = idle_by_hold(starts, ends, held_by, cuts)
    windows = sweep(
        np.concatenate([starts, turns]),
        np.concatenate([turns, ends]),
        waiting + working,
        cuts,
    )
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for row, step in zip(rows.tolist(), steps.tolist(), strict=True):
        counts[step][timeline.ops[row].kernel.category] += 1
    return {
        "all": _figures(sum(windows, Counter()), sum(counts.values(), Counter()), sum(idle, Counter())),
        "steps": {
            str(step): _figures(window, counts[step], held)
            for step, window, held in zip(numbers, windows[1:], idle[1:], strict=True)
        },
    }


def sweep(
    starts: NDArray[np.int64], ends: NDArray[np.int64], labels: Sequence[str], cuts: Sequence[int]
) -> list[Counter[frozenset[str]]]:
    """For each window between two cuts, the time spent in each combination of labels.

    Args:
        starts: Start of each piece of work.
        ends: End of each; a piece is there from its start up to, not including, its end.
        labels: Kind of each.
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


def idle_by_hold(
    starts: NDArray[np.int64], ends: NDArray[np.int64], held_by: Sequence[str], cuts: Sequence[int]
) -> list[Counter[str]]:
    """For each window between two cuts, the idle time by what held the op that ends it.

    Args:
        starts: Start of each op.
        ends: End of each.
        held_by: What each waited for last.
        cuts: Borders of the windows, ascending, one more than there are windows.
    """
    found: list[Counter[str]] = [Counter() for _ in cuts[1:]]
    work = sorted(zip(starts.tolist(), ends.tolist(), held_by, strict=True))
    reach = cuts[0]
    for start, end, hold in work:
        for window, (begin, until) in enumerate(pairwise(cuts)) if start > reach else ():
            found[window][hold] += max(0, min(start, until) - max(reach, begin))
        reach = max(reach, end)
    return found


def _stamps(timeline: Timeline, rows: NDArray[np.int64], rank: int) -> Iterator[NDArray[np.int64]]:
    """When each op starts, has waited for the last of its peers, and ends, as the rank's clock reads it.

    Local work has nothing to wait for; nor have copies to peers, which begin when all are there.
    """
    start, end = timeline.op_start_ns[rows, rank], timeline.op_end_ns[rows, rank]
    turn = start.copy()
    for place, row in enumerate(rows.tolist()):
        exchange = timeline.exchange_of(row)
        if exchange is not None and len(exchange.ops) == 1:
            turn[place] = end[place] - exchange.transfer_ns[rank]
    return (stamp(times, timeline.workload.clock(rank)) for times in (start, turn, end))


def _labels(timeline: Timeline, rows: NDArray[np.int64]) -> tuple[list[str], list[str]]:
    """Each op's kind while it waits and after: ``compute``, ``copy``, or ``comm AXIS ROLE STREAM PART``."""
    waiting, working = [], []
    for row in rows.tolist():
        op, exchange = timeline.ops[row], timeline.exchange_of(row)
        if exchange is None:
            kind = "copy" if op.kernel.category == "memory" else "compute"
            waiting.append(kind)
            working.append(kind)
        else:
            kind = f"comm {exchange.message.group.axis} {exchange.message.role} {op.stream}"
            waiting.append(f"{kind} wait")
            working.append(f"{kind} transfer")
    return waiting, working


def _figures(pieces: Counter[frozenset[str]], counts: Counter[str], idle: Counter[str]) -> dict[str, Any]:
    """One window's figures from its pieces."""
    comm = {kinds: [kind.split()[1:] for kind in kinds if kind.startswith("comm ")] for kinds in pieces}

    def total(claims: Iterable[frozenset[str]]) -> int:
        return sum(pieces[kinds] for kinds in claims)

    exposed = [kinds for kinds in pieces if comm[kinds] and "compute" not in kinds]
    by_axis: Counter[str] = Counter()
    by_part: Counter[tuple[str, str, str]] = Counter()
    several = 0
    for kinds in exposed:
        axes = {axis for axis, *_ in comm[kinds]}
        by_axis[axes.pop() if len(axes) == 1 else "several"] += pieces[kinds]
        if len(comm[kinds]) == 1:
            axis, role, _, part = comm[kinds][0]
            by_part[axis, role, part] += pieces[kinds]
        else:
            several += pieces[kinds]
    return {
        "window_ns": total(pieces),
        "compute_ns": total(kinds for kinds in pieces if "compute" in kinds),
        "comm_ns": total(kinds for kinds in pieces if comm[kinds]),
        "hidden_comm_ns": total(kinds for kinds in pieces if comm[kinds] and "compute" in kinds),
        "exposed_comm_ns": total(exposed),
        "exposed_copy_ns": pieces[frozenset({"copy"})],
        "idle_ns": pieces[frozenset()],
        "idle_by_hold_ns": dict(sorted((+idle).items())),
        "exposed_comm_by_axis_ns": dict(sorted(by_axis.items())),
        "exposed_by_exchange": [
            {
                "axis": axis,
                "role": None if role == "None" else role,
                "wait_ns": by_part[axis, role, "wait"],
                "transfer_ns": by_part[axis, role, "transfer"],
            }
            for axis, role in sorted({key[:2] for key in by_part})
        ],
        "exposed_by_several_ns": several,
        "op_count_by_category": dict(sorted(counts.items())),
    }
