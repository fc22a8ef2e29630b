"""The stretches in which nothing runs on a device, or no compute, and what the device was waiting for.

A *gap* lies between two pieces of the work looked at; the op that ends it tells the cause, and the op whose
end came last before that one's start is the one that may have *released* it. Every ns has one cause:

- ``launch_starved``: the host was late. The launching call had not returned, or had returned no more than
  `LATENCY_NS` before the work began, which is what an empty queue takes (graphs: `GRAPH_LATENCY_NS`).
- ``host_blocked``: the same, and a wait of the host explains it (see `_waits`). A wait takes away the lead of
  the host, so late time counts as blocked, in the order of the launches, up to the length of the waits before
  it. Waits add up until some work has been launched with a lead again; then the next one starts anew.
- ``profiler``: the host was late and the profiler kept it busy meanwhile, as recorded.
- ``blocking``: launched in time, and released by communication that ended no more than `HANDOVER_NS` before.
- ``dependency_stalled``: the same, released by other work on another stream.
- ``turnaround``: the same, released by other work on its own stream: the device goes from op to op.
- ``graph_unseen``: launched in time, nothing recorded released it, and it or the op before it belongs to a
  graph replay: nodes of the graph that were not recorded, or that run on the host.
- ``unexplained``: launched in time, and nothing recorded released it: a peer, a host callback, a value in
  memory, or work that was not recorded.
- ``launch_unknown``: the op that ends the gap has no recorded launch.
- ``window_edge``: no recorded op ends the gap.

Where a late launch and a handover both fit, it was a handover. Where the call returns inside the gap and the
work begins later than an empty queue takes, the gap is cut at the return. The thresholds are wide of what
traces of A100, H800 and H100 show: 90 % of kernels on an idle device start within 3 to 10 µs of the return of
their call, graphs within 250 µs; 99 % of handovers on one stream take 4 µs, between streams up to 11 µs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.intervals import Ints, Spans, difference, split, total, union

if TYPE_CHECKING:
    from collections.abc import Sequence

LATENCY_NS = 10_000
GRAPH_LATENCY_NS = 250_000
HANDOVER_NS = 10_000

CAUSES = (
    "launch_starved",
    "host_blocked",
    "profiler",
    "blocking",
    "dependency_stalled",
    "turnaround",
    "graph_unseen",
    "unexplained",
    "launch_unknown",
    "window_edge",
)
HOST_CAUSES = ("launch_starved", "host_blocked", "profiler")
"""Those in which the device waits for the host."""

_CODE = {cause: code for code, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True)
class Pieces:
    """Parts of gaps, each of one cause, disjoint.

    Attributes:
        spans: Their times, keyed by device.
        cause: Index in `CAUSES`.
        wait: Row of the wait that explains it, -1 if none.
        op: Row of the op that ends the gap, -1 if none.
    """

    spans: Spans
    cause: Ints
    wait: Ints
    op: Ints

    @classmethod
    def joined(cls, parts: Sequence[Pieces]) -> Pieces:
        """All of them."""
        spans = Spans(
            np.concatenate([part.spans.key for part in parts]),
            np.concatenate([part.spans.start for part in parts]),
            np.concatenate([part.spans.end for part in parts]),
        )
        return cls(
            spans,
            np.concatenate([part.cause for part in parts]),
            np.concatenate([part.wait for part in parts]),
            np.concatenate([part.op for part in parts]),
        )


def idle(work: pl.DataFrame, windows: pl.DataFrame, waits: pl.DataFrame, overheads: pl.DataFrame) -> Pieces:
    """The stretches in which nothing runs, cut by cause.

    Args:
        work: `launched` device work of one rank.
        windows: Stretches looked at; gaps before the first op and after the last one reach to their ends.
        waits: `waits` of the host.
        overheads: `ts_ns, dur_ns` of the profiler's own activity.
    """
    everything = pl.Series([True]).new_from_index(0, len(work))
    return _pieces(_gaps(work, everything, windows), work, waits, overheads)


def busy_without(
    among: pl.Series, work: pl.DataFrame, windows: pl.DataFrame, waits: pl.DataFrame, overheads: pl.DataFrame
) -> Pieces:
    """The stretches in which something runs and nothing marked in ``among``, cut by what ``among`` waits for.

    What copies on the same stream is something to depend on here, as is what another stream does.
    """
    found = _pieces(_gaps(work, among, windows), work, waits, overheads)
    begin = work["ts_ns"].to_numpy()
    busy = union(Spans.of(begin, work["end_ns"].to_numpy(), key=work["device"].to_numpy()))
    met, row = split(found.spans, busy)
    turned = np.where(found.cause == _CODE["turnaround"], _CODE["dependency_stalled"], found.cause)
    return Pieces(
        Spans(found.spans.key[row], met.start, met.end), turned[row], found.wait[row], found.op[row]
    )


def _pieces(gaps: pl.DataFrame, work: pl.DataFrame, waits: pl.DataFrame, overheads: pl.DataFrame) -> Pieces:
    found = _with_cut(_released(gaps, work))
    device, start, cut, end = (found[name].to_numpy() for name in ("device", "start_ns", "cut_ns", "end_ns"))
    rows = np.arange(len(found), dtype=np.int64)
    op = found["op"].fill_null(-1).to_numpy()
    nobody = np.full(len(found), -1)
    tail = Pieces(Spans(device, cut, end), found["code"].to_numpy(), nobody, op)
    late, profiler = _less_overhead(Spans(rows, start, cut), overheads)
    return Pieces.joined([tail, *_host_parts(late, found, waits), _of_gaps(profiler, "profiler", found)])


# --- gaps and what ends them --------------------------------------------------------------------------


def _gaps(work: pl.DataFrame, among: pl.Series, windows: pl.DataFrame) -> pl.DataFrame:
    """``device, start_ns, end_ns, op`` (the row of ``work`` that ends it, null at the end of the windows)."""
    bounds = windows.group_by("device").agg(
        from_ns=pl.col("ts_ns").min(), until_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max()
    )
    marked = (
        work.select("device", "ts_ns", "end_ns", "launch_ts_ns", op=pl.int_range(pl.len()))
        .filter(among & (pl.col("end_ns") > pl.col("ts_ns")))
        # of several that begin together the one launched first was ready first
        .sort("device", "ts_ns", "launch_ts_ns", nulls_last=True, maintain_order=True)
        .join(bounds, on="device", how="left", maintain_order="left")
    )
    before = pl.col("end_ns").cum_max().shift(1).over("device").fill_null(pl.col("from_ns"))
    between = marked.select("device", "op", start_ns=before, end_ns="ts_ns")
    reach = marked.group_by("device").agg(last_ns=pl.col("end_ns").max())
    after = bounds.join(reach, on="device", how="left").select(
        "device",
        op=pl.lit(None, pl.Int64),
        start_ns=pl.col("last_ns").fill_null(pl.col("from_ns")),
        end_ns="until_ns",
    )
    return pl.concat([between, after]).filter(pl.col("end_ns") > pl.col("start_ns"))


def _released(gaps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """``gaps``, by end, with the op's launch and what ran last before it on the device.

    Of several that end together, one of the op's own stream comes first.
    """
    launch = work.select(
        "stream", "launch_ts_ns", "launch_end_ns", "issued_ns", "launch_pid", "is_graph", "continues"
    )
    ended = pl.concat([gaps, launch.select(pl.all().gather(gaps["op"]))], how="horizontal").sort(
        "end_ns", maintain_order=True
    )
    ends = (
        work.filter(pl.col("dur_ns") > 0)
        .select(
            "device",
            pl.col("stream").fill_null(-1),
            "ts_ns",
            "end_ns",
            rel_ns="end_ns",
            rel_is_comm=pl.col("class") == "comm",
            rel_is_graph="is_graph",
        )
        .sort("end_ns", "ts_ns", maintain_order=True)
    )
    latest = ended.join_asof(ends.drop("stream", "ts_ns"), on="end_ns", by="device", check_sortedness=False)
    own = ends.select("device", "stream", "end_ns", own_ns="rel_ns", own_is_comm="rel_is_comm")
    known = latest.with_columns(pl.col("stream").fill_null(-1)).join_asof(
        own, on="end_ns", by=["device", "stream"], check_sortedness=False
    )
    is_own = (pl.col("own_ns") == pl.col("rel_ns")).fill_null(value=False)
    is_comm = pl.when(is_own).then("own_is_comm").otherwise("rel_is_comm")
    return known.with_columns(is_own=is_own, rel_is_comm=is_comm).drop("own_ns", "own_is_comm")


def _with_cut(gaps: pl.DataFrame) -> pl.DataFrame:
    """``gaps`` with ``cut_ns``, until when the host is the cause, and the ``code`` of the cause after it."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    latency = pl.when("is_graph").then(GRAPH_LATENCY_NS).otherwise(LATENCY_NS)
    fresh = end - pl.col("rel_ns") <= HANDOVER_NS
    released = (fresh & ((pl.col("issued_ns") <= pl.col("rel_ns")) | pl.col("continues"))).fill_null(
        value=False
    )
    ready = pl.col("launch_end_ns").clip(start, end)
    at_once = end - pl.col("launch_end_ns") <= latency
    cut = (
        pl.when(pl.col("launch_ts_ns").is_null() | pl.col("continues"))
        .then(start)
        .when(released)
        .then(pl.col("issued_ns").clip(start, end))
        .when(at_once)
        .then(end)
        .otherwise(ready)
    )
    code = (
        pl.when(pl.col("op").is_null())
        .then(_CODE["window_edge"])
        .when(pl.col("launch_ts_ns").is_null())
        .then(_CODE["launch_unknown"])
        .when(released & pl.col("rel_is_comm"))
        .then(_CODE["blocking"])
        .when(released & pl.col("is_own"))
        .then(_CODE["turnaround"])
        .when(released)
        .then(_CODE["dependency_stalled"])
        .when(pl.col("is_graph") | pl.col("rel_is_graph"))
        .then(_CODE["graph_unseen"])
        .otherwise(_CODE["unexplained"])
    )
    return gaps.with_columns(cut_ns=cut, code=code.cast(pl.Int64))


# --- what kept the host -------------------------------------------------------------------------------


def _less_overhead(host: Spans, overheads: pl.DataFrame) -> tuple[Spans, Spans]:
    """Parts of ``host`` without and within the profiler's own activity, with their keys."""
    begin = overheads["ts_ns"].to_numpy()
    busy = union(Spans.of(begin, begin + overheads["dur_ns"].to_numpy()))
    met, row = split(Spans(np.zeros_like(host.key), host.start, host.end), busy)
    within = Spans(host.key[row], met.start, met.end)
    return difference(host, within), within


def _of_gaps(parts: Spans, cause: str, gaps: pl.DataFrame) -> Pieces:
    """``parts``, keyed by gap, as pieces of one cause."""
    device, op = (gaps[name].fill_null(-1).to_numpy()[parts.key] for name in ("device", "op"))
    nobody = np.full(len(parts), -1)
    return Pieces(
        Spans(device.astype(np.int64), parts.start, parts.end), np.full(len(parts), _CODE[cause]), nobody, op
    )


def _host_parts(late: Spans, gaps: pl.DataFrame, waits: pl.DataFrame) -> list[Pieces]:
    """Late parts, keyed by gap: what waits explain, and the rest."""
    late_ns = total(late, len(gaps))
    explained = _explained(late_ns, gaps, waits)
    blocked_ns, wait = (explained[name].to_numpy() for name in ("blocked_ns", "wait"))
    # of a gap in several parts the first ones are blocked
    length = late.durations()
    before = np.cumsum(length) - length - (np.cumsum(late_ns) - late_ns)[late.key]
    blocked = np.clip(blocked_ns[late.key] - before, 0, length)
    turn = late.start + blocked
    first = _of_gaps(Spans(late.key, late.start, turn), "host_blocked", gaps)
    named = Pieces(first.spans, first.cause, wait[late.key], first.op)
    return [named, _of_gaps(Spans(late.key, turn, late.end), "launch_starved", gaps)]


def _explained(late_ns: Ints, gaps: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Per gap, the late ns that waits explain, and the row of the wait: ``blocked_ns, wait`` (-1 if none)."""
    wanted = gaps.select("device", "launch_ts_ns", pid=pl.col("launch_pid").fill_null(-1)).with_columns(
        pl.Series("late_ns", late_ns)
    )
    rows = wanted.with_row_index("gap").filter((pl.col("late_ns") > 0) & pl.col("launch_ts_ns").is_not_null())
    lost = waits.filter("stalls").select(
        "train", "longest", "lost_ns", pid=pl.col("pid").fill_null(-1), launch_ts_ns="end_ns"
    )
    behind = rows.sort("launch_ts_ns", maintain_order=True).join_asof(
        lost.sort("launch_ts_ns", maintain_order=True), on="launch_ts_ns", by="pid", check_sortedness=False
    )
    train = ["device", "pid", "train"]
    spent = pl.col("late_ns").cum_sum().over(train)
    # lead that was lost and not yet paid for with idle time; it can only be spent once
    short = (pl.col("lost_ns") - spent).cum_min().over(train).clip(upper_bound=0)
    paid = (
        behind.drop_nulls("train")
        .with_columns(paid_ns=spent + short)
        .with_columns(blocked_ns=pl.col("paid_ns") - pl.col("paid_ns").shift(1).over(train).fill_null(0))
        .select("gap", "blocked_ns", wait="longest")
    )
    return (
        wanted.with_row_index("gap")
        .join(paid, on="gap", how="left", maintain_order="left")
        .select(pl.col("blocked_ns").fill_null(0).cast(pl.Int64), pl.col("wait").fill_null(-1).cast(pl.Int64))
    )


def with_trains(waits: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """``waits`` in trains: waits of a process between which no work was launched with a lead.

    Returns:
        The waits, sorted by process and return, and ``train`` (number), ``lost_ns`` (length of the stalling
        waits of the train so far) and ``longest`` (row of its longest).
    """
    latency = pl.when("is_graph").then(GRAPH_LATENCY_NS).otherwise(LATENCY_NS)
    ahead = (pl.col("ts_ns") - pl.col("issued_ns") > latency) & ~pl.col("continues")
    leads = work.filter(ahead.fill_null(value=False)).select(
        "launch_ts_ns", pid=pl.col("launch_pid").fill_null(-1), lead_ns="launch_ts_ns"
    )
    known = waits.with_columns(pl.col("pid").fill_null(-1)).sort("ts_ns", maintain_order=True)
    last_lead = known.join_asof(
        leads.sort("launch_ts_ns", maintain_order=True),
        left_on="ts_ns",
        right_on="launch_ts_ns",
        by="pid",
        check_sortedness=False,
        allow_exact_matches=False,
    )
    ordered = last_lead.sort("pid", "end_ns", maintain_order=True).with_row_index("row")
    anew = (pl.col("lead_ns") >= pl.col("end_ns").shift(1)).over("pid").fill_null(value=True)
    anew = anew & pl.col("lead_ns").is_not_null() | (pl.col("pid") != pl.col("pid").shift(1)).fill_null(
        value=True
    )
    length = pl.when("stalls").then(pl.col("end_ns") - pl.col("ts_ns")).otherwise(0)
    return (
        ordered.with_columns(train=anew.cum_sum(), length_ns=length)
        .with_columns(
            lost_ns=pl.col("length_ns").cum_sum().over("train"),
            longest=pl.col("row").get(pl.col("length_ns").arg_max()).over("train"),
        )
        .drop("row", "lead_ns", "launch_ts_ns", strict=False)
    )
