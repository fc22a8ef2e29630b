"""Idle time by cause: hand-made gaps, an oracle in plain Python, synthetic truth and public traces."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers._gaps import CAUSES, HANDOVER_NS, HOST_CAUSES, LATENCY_NS
from traceview.analyzers.idle import ANALYSIS, OTHERS, WAITS_KEPT
from traceview.contracts import Options
from traceview.schema import HOST_OPS, LAUNCHES, OPS, OVERHEADS, RANGES, STEPS, Table
from traceview.synth import PRESETS, simulate, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from traceview.run import Run

Row = dict[str, Any]
CALL = 3_000


def op(
    start: int,
    length: int,
    *,
    launch: int | None = 0,
    call: int = CALL,
    stream: int = 7,
    device: int = 0,
    kind: str = "compute",
    by: str = "cudaLaunchKernel",
    to_host: int | None = None,
    correlation: int | None = None,
) -> Row:
    """Device work and the call that launched it; ``to_host`` makes it a copy to the host of so many bytes."""
    return {
        "ts_ns": start,
        "dur_ns": length,
        "launch": launch,
        "call": call,
        "stream": stream,
        "device": device,
        "class": "copy" if to_host is not None else kind,
        "by": "cudaMemcpyAsync" if to_host is not None else by,
        "bytes": to_host,
        "correlation": correlation,
    }


def wait(start: int, length: int, *, name: str = "cudaStreamSynchronize", tid: int = 1) -> Row:
    """A call in which the host waits."""
    return {"ts_ns": start, "dur_ns": length, "name": name, "tid": tid}


def trace(
    rows: list[Row],
    waits: list[Row] | None = None,
    *,
    overheads: list[tuple[int, int]] | None = None,
    ranges: Sequence[tuple[int, int, str, str | None]] = (),
    operators: list[tuple[int, int, str]] | None = None,
    steps: list[tuple[int, int, int]] | None = None,
    rank: int = 0,
) -> Trace:
    """One rank; ranges are (start, length, name, part), steps (number, start, length)."""
    here: Row = {"rank": rank, "pid": 1, "tid": 1}
    categories = {"compute": "gemm", "comm": "all_to_all", "copy": "memory"}
    ops: list[Row] = []
    launches: list[Row] = []
    for number, row in enumerate(rows):
        link = row["correlation"] or 1000 + number
        is_copy = row["class"] == "copy"
        ops.append(
            {
                "op": number,
                "rank": rank,
                "rule_id": "test",
                "name": "work",
                "kind": "memcpy" if is_copy else "kernel",
                "copy_kind": "DtoH" if row["bytes"] is not None else None,
                "category": categories[row["class"]],
                "launch_ts_ns": row["launch"],
                "correlation": link,
            }
            | {name: row[name] for name in ("ts_ns", "dur_ns", "stream", "device", "class", "bytes")}
        )
        if row["launch"] is not None:
            launch = {"ts_ns": row["launch"], "dur_ns": row["call"], "name": row["by"], "correlation": link}
            launches.append(here | launch)
    launches += [here | row | {"correlation": None} for row in waits or []]
    marks = [
        {
            "step": step,
            "ts_ns": start,
            "dur_ns": length,
            "op_count": 1,
            "status": "complete",
            "source": "test",
        }
        for step, start, length in steps or []
    ]
    spans: list[Row] = [
        here
        | {"ts_ns": start, "dur_ns": length, "name": name, "raw_name": name, "kind": "other", "part": part}
        for start, length, name, part in ranges
    ]
    named: list[Row] = [
        here | {"ts_ns": start, "dur_ns": length, "name": name} for start, length, name in operators or []
    ]
    own = [
        {"ts_ns": start, "dur_ns": length, "name": "Buffer Flush", "rank": rank}
        for start, length in overheads or []
    ]

    def table(schema: Table, found: list[Row]) -> pl.DataFrame:
        return schema.frame(pl.DataFrame(found, infer_schema_length=None)) if found else schema.empty()

    tables = {
        "ops": table(OPS, ops),
        "launches": table(LAUNCHES, launches),
        "ranges": table(RANGES, spans),
        "host_ops": table(HOST_OPS, named),
        "overheads": table(OVERHEADS, own),
        "steps": table(STEPS, [{"rank": rank} | mark for mark in marks]),
    }
    return Trace(Facts("made.json", "kineto", rank=rank), tables)


def answer(traces: list[Trace], *by: str, steps: str | range = "auto") -> list[Row]:
    options = Options(by=by, steps=steps)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


def causes(one: Trace, figure: str = "idle_ns") -> dict[str, int]:
    return {row["cause"]: row[figure] for row in answer([one], "cause") if row[figure]}


# --- each cause, by hand ------------------------------------------------------------------------------


def test_a_launch_that_returns_after_the_device_ran_dry_starves_it() -> None:
    made = trace([op(0, 10_000), op(60_000, 5_000, launch=50_000)])
    assert causes(made) == {"launch_starved": 50_000}


def test_work_that_starts_long_after_a_late_launch_is_starved_until_the_return_only() -> None:
    made = trace([op(0, 10_000), op(90_000, 5_000, launch=30_000)])
    assert causes(made) == {"launch_starved": 23_000, "unexplained": 57_000}


def test_work_launched_in_time_goes_from_op_to_op_on_one_stream() -> None:
    made = trace([op(0, 100_000), op(101_000, 5_000, launch=5_000)])
    assert causes(made) == {"turnaround": 1_000}


def test_work_launched_in_time_depends_on_what_another_stream_did_last() -> None:
    other = trace([op(0, 100_000, stream=8), op(101_000, 5_000, launch=5_000)])
    exchange = trace([op(0, 100_000, stream=8, kind="comm"), op(101_000, 5_000, launch=5_000)])
    assert causes(other) == {"dependency_stalled": 1_000}
    assert causes(exchange) == {"blocking": 1_000}


def test_of_two_that_end_together_the_one_on_the_same_stream_released_the_work() -> None:
    made = trace([op(0, 100_000), op(0, 100_000, stream=8, kind="comm"), op(101_000, 5_000, launch=5_000)])
    assert causes(made) == {"turnaround": 1_000}


def test_a_long_gap_before_work_launched_in_time_is_unexplained() -> None:
    made = trace([op(0, 100_000), op(200_000, 5_000, launch=5_000)])
    assert causes(made) == {"unexplained": 100_000}


def test_a_gap_beside_a_graph_replay_may_hold_nodes_nobody_recorded() -> None:
    graph: Row = {"by": "cudaGraphLaunch", "launch": 0, "correlation": 7}
    made = trace([op(5_000, 10_000, **graph), op(90_000, 10_000, **graph), op(150_000, 1, launch=10_000)])
    assert causes(made) == {"graph_unseen": 75_000 + 50_000}


def test_a_graph_takes_longer_to_start_on_an_idle_device_than_a_kernel() -> None:
    made = trace([op(0, 1_000), op(200_000, 10_000, launch=5_000, by="cudaGraphLaunch")])
    kernel = trace([op(0, 1_000), op(200_000, 10_000, launch=5_000)])
    assert causes(made) == {"launch_starved": 199_000}
    assert causes(kernel) == {"launch_starved": 7_000, "unexplained": 192_000}


def test_a_gap_whose_end_has_no_recorded_launch_is_unknown() -> None:
    made = trace([op(0, 1_000), op(2_000, 1_000, launch=None)])
    assert causes(made) == {"launch_unknown": 1_000}


def test_time_after_the_last_op_of_a_device_is_an_edge() -> None:
    made = trace([op(0, 1_000), op(0, 9_000, device=1)], steps=[(1, 0, 9_000)])
    assert causes(made) == {"window_edge": 8_000}


def test_a_wait_explains_lateness_up_to_its_length_and_no_more() -> None:
    rows = [op(10_000, 90_000), op(160_000, 5_000, launch=150_000), op(200_000, 5_000, launch=190_000)]
    long_wait = trace(rows, [wait(20_000, 85_000)])
    short_wait = trace(rows, [wait(95_000, 12_000)])
    assert causes(long_wait) == {"host_blocked": 85_000, "launch_starved": 10_000}
    assert causes(short_wait) == {"host_blocked": 12_000, "launch_starved": 83_000}


def test_a_wait_during_which_another_thread_launches_explains_nothing() -> None:
    rows = [
        op(10_000, 90_000),
        op(95_000, 10_000, launch=90_000, stream=8),
        op(160_000, 5_000, launch=150_000),
    ]
    made = trace(rows, [wait(20_000, 85_000, tid=2)])
    assert causes(made) == {"launch_starved": 55_000}


def test_waits_add_up_until_the_host_is_ahead_again() -> None:
    first = [op(10_000, 90_000), op(160_000, 5_000, launch=150_000)]
    late = op(400_000, 5_000, launch=390_000)
    ahead = op(165_000, 100_000, launch=151_000)
    waits = [wait(20_000, 480_000 - 400_000 + 5_000), wait(300_000, 1_000)]
    assert causes(trace([*first, late], waits)) == {"host_blocked": 86_000, "launch_starved": 209_000}
    assert causes(trace([*first, ahead, late], waits)) == {"host_blocked": 61_000, "launch_starved": 134_000}


def test_what_the_profiler_did_while_the_host_was_late_is_apart() -> None:
    made = trace([op(0, 10_000), op(60_000, 5_000, launch=50_000)], overheads=[(5_000, 25_000)])
    assert causes(made) == {"profiler": 20_000, "launch_starved": 30_000}


def test_a_trace_without_a_table_of_overheads_has_no_profiler_time() -> None:
    whole = trace([op(0, 10_000), op(60_000, 5_000, launch=50_000)], overheads=[(5_000, 25_000)])
    lacking = Trace(whole.facts, {name: table for name, table in whole.tables.items() if name != "overheads"})
    assert causes(lacking) == {"launch_starved": 50_000}


def test_compute_that_was_launched_waits_for_communication_and_otherwise_for_the_host() -> None:
    exchange = op(10_000, 90_000, stream=8, kind="comm")
    in_time = trace([op(0, 10_000), exchange, op(101_000, 5_000, launch=5_000)])
    too_late = trace([op(0, 10_000), exchange, op(101_000, 5_000, launch=94_000)])
    assert causes(in_time, "no_compute_ns") == {"blocking": 91_000}
    assert causes(too_late, "no_compute_ns") == {"launch_starved": 87_000, "blocking": 3_000 + 1_000}


# --- waits --------------------------------------------------------------------------------------------


def waits_of(one: Trace) -> list[Row]:
    return [row for row in answer([one], "sync") if row["sync"]]


def test_a_copy_to_the_host_that_its_call_waits_for_is_a_wait_named_by_operator_and_range() -> None:
    rows = [
        op(10_000, 90_000),
        op(101_000, 2_000, launch=20_000, call=90_000, to_host=4),
        op(160_000, 5_000, launch=150_000, kind="comm"),
    ]
    made = trace(
        rows,
        ranges=[(0, 200_000, "train", None), (15_000, 100_000, "moe.router", "router")],
        operators=[(16_000, 98_000, "aten::item"), (17_000, 95_000, "aten::_local_scalar_dense")],
    )
    [row] = waits_of(made)
    known = {"sync": "cudaMemcpyAsync", "operator": "aten::item", "range": "moe.router", "reason": "scalar"}
    assert {name: row[name] for name in known} == known
    assert (row["follows"], row["copy_bytes"], row["sync_count"], row["sync_wait_ns"]) == (
        "all_to_all",
        4,
        1,
        90_000,
    )
    assert row["idle_ns"] == 160_000 - 103_000


@pytest.mark.parametrize(
    ("size", "part", "after", "reason"),
    [
        (2_048, "dispatch", "compute", "token_counts"),
        (2_048, None, "comm", "token_counts"),
        (2_048, None, "compute", "copy"),
        (1 << 20, "router", "comm", "copy"),
        (8, "router", "comm", "scalar"),
        (None, "router", "comm", "drain"),
    ],
)
def test_what_a_wait_is_for_is_told_by_the_copy_before_it(
    size: int | None, part: str | None, after: str, reason: str
) -> None:
    before = op(101_000, 2_000, launch=20_000, to_host=size) if size else op(101_000, 2_000, launch=20_000)
    rows = [op(10_000, 90_000), before, op(160_000, 5_000, launch=150_000, kind=after)]
    made = trace(rows, [wait(24_000, 80_000)], ranges=[(0, 200_000, "block", part)])
    assert [row["reason"] for row in waits_of(made)] == [reason]


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaEventSynchronize", True),
        ("hipStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaMemcpyAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_calls_that_block_the_host_are_known_by_name(name: str, blocks: bool) -> None:  # noqa: FBT001 - a case
    made = trace([op(0, 100), op(5_000, 100, launch=3_000, call=10)], [wait(500, 1_000, name=name)])
    assert bool(waits_of(made)) == blocks


def test_of_nested_waits_the_outer_one_counts() -> None:
    nested = [wait(500, 1_000), wait(600, 500, name="cuStreamSynchronize")]
    made = trace([op(0, 100), op(5_000, 100, launch=3_000, call=10)], nested)
    assert [(row["sync"], row["sync_count"]) for row in waits_of(made)] == [("cudaStreamSynchronize", 1)]


def test_kinds_of_waits_are_bounded_and_their_sums_are_kept() -> None:
    count = WAITS_KEPT + 20
    rows = [op(20_000 * number, 1_000, launch=20_000 * number - 100, call=10) for number in range(count + 1)]
    waits = [wait(20_000 * number + 1_000, 5_000) for number in range(count)]
    ranges = [(20_000 * number + 500, 8_000, f"range {number}", None) for number in range(count)]
    rows_by_wait = waits_of(trace(rows, waits, ranges=ranges))
    assert len(rows_by_wait) == WAITS_KEPT + 1
    assert sum(row["sync_count"] for row in rows_by_wait) == count
    assert sum(row["idle_ns"] for row in rows_by_wait) == 5_000 * count
    assert [row["range"] for row in rows_by_wait if row["sync"] == OTHERS] == [None]


# --- an oracle in plain Python ------------------------------------------------------------------------


def told(rows: list[Row], waits: list[Row], overheads: list[tuple[int, int]]) -> Counter[str]:
    """Idle ns by cause between the first start and the last end, after the text of `_gaps`, gap by gap."""
    found: Counter[str] = Counter()
    solid = sorted(rows, key=lambda row: (row["ts_ns"], row["launch"]))
    late = []
    reach = solid[0]["ts_ns"]
    for row in solid:
        if row["ts_ns"] > reach:
            cause, cut = told_of_gap(solid, reach, row)
            found[cause] += row["ts_ns"] - cut
            late.append((row["launch"], list(range(reach, cut))))
        reach = max(reach, row["ts_ns"] + row["dur_ns"])
    leads = [row["launch"] for row in rows if row["ts_ns"] - row["launch"] - row["call"] > LATENCY_NS]
    lost = told_of_waits(rows, waits)
    owed, used = 0, 0
    for launch, moments in sorted(late, key=lambda part: part[0]):
        while used < len(lost) and lost[used][1] <= launch:
            begin, _, length = lost[used]
            if used and any(lost[used - 1][1] <= lead < begin for lead in leads):
                owed = 0
            owed, used = owed + length, used + 1
        clean = [m for m in moments if not any(s <= m < s + d for s, d in overheads)]
        paid = min(owed, len(clean))
        owed -= paid
        found.update(profiler=len(moments) - len(clean), host_blocked=paid, launch_starved=len(clean) - paid)
    return +found


def told_of_gap(solid: list[Row], start: int, row: Row) -> tuple[str, int]:
    """Why the op that ends a gap did not start earlier, from when on it was not the host."""
    end, returned = row["ts_ns"], row["launch"] + row["call"]
    ended = [other for other in solid if other["ts_ns"] + other["dur_ns"] == start]
    own = [other for other in ended if other["stream"] == row["stream"]]
    if end - start <= HANDOVER_NS and returned <= start:
        before = max(own or ended, key=lambda other: other["ts_ns"])
        if before["class"] == "comm":
            return "blocking", start
        return ("turnaround" if own else "dependency_stalled"), start
    return "unexplained", end if end - returned <= LATENCY_NS else min(max(returned, start), end)


def told_of_waits(rows: list[Row], waits: list[Row]) -> list[tuple[int, int, int]]:
    """Start and end of each outermost wait, and the lead it takes away."""
    found: list[tuple[int, int, int]] = []
    for row in sorted(waits, key=lambda row: (row["ts_ns"], -row["dur_ns"])):
        begin, end = row["ts_ns"], row["ts_ns"] + row["dur_ns"]
        if found and begin < max(until for _, until, _ in found):
            continue
        stalls = not any(begin < other["launch"] < end for other in rows)
        found.append((begin, end, end - begin if stalls else 0))
    return found


SHORT = 40  # thousands of ns; everything is on a grid of 1 µs so that edges meet often


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[tuple[int, int]]]:
    kinds = st.sampled_from(["compute", "comm"])
    instant = st.integers(0, 5 * SHORT)
    rows = []
    for stream in (7, 8):
        free = 0
        for _ in range(draw(st.integers(0, 5))):
            launch = draw(instant)
            start = max(free, launch + draw(st.integers(0, SHORT)))
            free = start + draw(st.integers(0, SHORT))
            call = draw(st.integers(0, 15))
            row = op(
                start * 1000, (free - start) * 1000, launch=launch * 1000, call=call * 1000, stream=stream
            )
            rows.append(row | {"class": draw(kinds)})
    waits = [
        wait(draw(instant) * 1000, draw(st.integers(0, SHORT)) * 1000) for _ in range(draw(st.integers(0, 4)))
    ]
    overheads = [
        (draw(instant) * 1000, draw(st.integers(0, 10)) * 1000) for _ in range(draw(st.integers(0, 2)))
    ]
    # launches that coincide leave open which gap a wait pays for, not how much it pays
    return rows, waits, overheads


@settings(max_examples=60)
@given(recordings())
def test_idle_time_by_cause_is_what_the_text_says(
    found: tuple[list[Row], list[Row], list[tuple[int, int]]],
) -> None:
    rows, waits, overheads = found
    solid = [row for row in rows if row["dur_ns"]]
    made = trace(solid, waits, overheads=overheads) if solid else None
    assert made is None or causes(made) == told(solid, waits, overheads)


@settings(max_examples=40)
@given(recordings())
def test_queue_and_identities_hold_ns_by_ns(
    found: tuple[list[Row], list[Row], list[tuple[int, int]]],
) -> None:
    rows, waits, overheads = found
    if not rows:
        return
    made = trace(rows, waits, overheads=overheads)
    begin = min(row["ts_ns"] for row in rows)
    end = max(row["ts_ns"] + row["dur_ns"] for row in rows)
    [row] = answer([made])
    grid = range(begin // 1000, end // 1000)  # everything lies on whole µs
    depth = [sum(r["launch"] <= moment * 1000 < r["ts_ns"] + r["dur_ns"] for r in rows) for moment in grid]
    assert row["queue_empty_ns"] == 1000 * depth.count(0)
    if end > begin:
        assert row["queue_depth"] == pytest.approx(sum(depth) / len(depth))
    computing = sum(
        any(r["class"] == "compute" and r["ts_ns"] <= m * 1000 < r["ts_ns"] + r["dur_ns"] for r in rows)
        for m in grid
    )
    by_cause = answer([made], "cause")
    assert sum(r["idle_ns"] for r in by_cause) == row["idle_ns"] == row["window_ns"] - row["busy_ns"]
    assert sum(r["no_compute_ns"] for r in by_cause) == row["window_ns"] - 1000 * computing


# --- windows and grains -------------------------------------------------------------------------------


def test_a_gap_between_steps_belongs_to_the_windows_it_lies_in() -> None:
    rows = [op(0, 10_000), op(60_000, 5_000, launch=50_000), op(100_000, 10_000, launch=93_000)]
    made = trace(rows, steps=[(1, 0, 60_000), (2, 60_000, 50_000)])
    found = {(row["step"], row["cause"]): row["idle_ns"] for row in answer([made], "step", "cause")}
    assert found == {(1, "launch_starved"): 50_000, (2, "launch_starved"): 35_000}


def test_delays_count_each_launch_once() -> None:
    graph: Row = {"by": "cudaGraphLaunch", "launch": 0, "correlation": 9}
    rows = [op(20_000, 1_000, **graph), op(50_000, 1_000, **graph), op(60_000, 1_000, launch=50_000)]
    [row] = answer([trace(rows)])
    assert (row["delay_median_ns"], row["delay_p95_ns"]) == (15_000, 20_000)
    assert (row["graph_launch_count"], row["graph_op_count"], row["op_count"]) == (1, 2, 3)
    assert (row["graph_busy_ns"], row["busy_ns"]) == (2_000, 3_000)


def test_ranks_are_summed_and_one_rank_is_the_same_code() -> None:
    ranks = [
        trace([op(0, 10_000), op(20_000 + 1_000 * rank, 1_000, launch=15_000)], rank=rank)
        for rank in range(3)
    ]
    alone = [answer([one], "rank")[0]["idle_ns"] for one in ranks]
    [together] = answer(ranks)
    assert together["idle_ns"] == sum(alone) == 10_000 + 11_000 + 12_000
    assert together["window_count"] == 3


# --- synthetic runs -----------------------------------------------------------------------------------

MADE = ("ep8-launch-starved", "ep8-item-sync", "ep8-graphs", "ep8-nccl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Row]]:
    runs = {}
    for name in MADE:
        folder: Path = tmp_path_factory.mktemp(name)
        write(name, folder)
        runs[name] = (tv.load(folder), json.loads((folder / "truth.json").read_text()))
    return runs


@pytest.mark.parametrize("name", MADE)
def test_causes_add_up_to_the_idle_time_of_the_truth(name: str, made: dict[str, tuple[Run, Row]]) -> None:
    run, truth = made[name]
    rows = tv.idle(run, by=("rank", "step", "cause")).frame
    for rank in truth["ranks"]:
        for step, known in rank["steps"].items():
            here = rows.filter((pl.col("rank") == rank["rank"]) & (pl.col("step") == int(step)))
            assert here["idle_ns"].sum() == known["idle_ns"]
            assert here["no_compute_ns"].sum() == known["window_ns"] - known["compute_ns"]


@pytest.mark.parametrize("name", MADE)
def test_time_the_host_is_late_is_that_of_the_generator(name: str, made: dict[str, tuple[Run, Row]]) -> None:
    run, truth = made[name]
    rows = tv.idle(run, by=("rank", "step")).frame
    for rank in truth["ranks"]:
        for step, known in rank["steps"].items():
            [row] = rows.filter((pl.col("rank") == rank["rank"]) & (pl.col("step") == int(step))).to_dicts()
            host = known["idle_by_hold_ns"].get("host", 0)
            # a start just after its launch and just after its predecessor may be either's doing
            assert row["host_late_ns"] == pytest.approx(host, rel=0.02, abs=3_000)


def test_a_slow_host_a_planted_item_and_graphs_are_told_apart(made: dict[str, tuple[Run, Row]]) -> None:
    main, items = {}, {}
    for name in MADE:
        run, _ = made[name]
        by_cause = tv.idle(run).frame
        main[name] = by_cause["cause"][0]
        waits = tv.idle(run, by=("sync",)).frame
        items[name] = int(waits.filter(pl.col("operator") == "aten::item")["sync_count"].sum())
    assert main["ep8-launch-starved"] == "launch_starved"
    assert main["ep8-item-sync"] == "host_blocked"
    assert main["ep8-graphs"] == "turnaround"
    plan = PRESETS["ep8-item-sync"]
    planted = plan.ranks * plan.steps * plan.layers * plan.microbatches
    assert items == {"ep8-launch-starved": 0, "ep8-item-sync": planted, "ep8-graphs": 0, "ep8-nccl": 0}
    coverage = {name: tv.idle(made[name][0], by=()).frame["graph_op_ratio"][0] for name in MADE}
    assert coverage["ep8-graphs"] > 0.9
    assert coverage["ep8-nccl"] == 0


def test_waits_last_as_long_as_in_the_generator(made: dict[str, tuple[Run, Row]]) -> None:
    plan = PRESETS["ep8-item-sync"]
    line = simulate(plan)
    lasted = Counter[str]()
    for row, span in enumerate(line.spans):
        if span.kind == "call" and span.name == "cudaStreamSynchronize":
            operator = None if span.operator is None else line.spans[span.operator].name
            is_item = operator == "aten::_local_scalar_dense"
            lasted["item" if is_item else "other"] += int(
                (line.span_end_ns[row] - line.span_start_ns[row]).sum()
            )
    waits = tv.idle(made["ep8-item-sync"][0], by=("sync",)).frame
    item = pl.col("operator") == "aten::item"
    assert waits.filter(item)["sync_wait_ns"].sum() == lasted["item"]
    assert waits.filter(item)["range"].to_list() == ["moe.router"]
    others = waits.filter(~item.fill_null(value=False) & (pl.col("sync") == "cudaStreamSynchronize"))
    assert others["sync_wait_ns"].sum() == lasted["other"]


def test_the_host_waits_for_token_counts_where_it_sizes_the_exchange(
    made: dict[str, tuple[Run, Row]],
) -> None:
    waits = tv.idle(made["ep8-nccl"][0], by=("sync",)).frame
    [row] = waits.filter(pl.col("reason") == "token_counts").to_dicts()
    plan = PRESETS["ep8-nccl"]
    assert row["sync_count"] == plan.ranks * plan.steps * plan.layers * plan.microbatches
    assert (row["copy_bytes"], row["follows"]) == (4 * plan.experts, "all_to_all")
    assert row["idle_ns"] > 0


# --- public traces ------------------------------------------------------------------------------------


def test_graph_launches_and_their_coverage_are_those_of_the_file(traces: Path) -> None:
    folder = traces / "pytorch/facebookresearch-HolisticTraceAnalysis/negative_queue_length_values_check"
    with gzip.open(folder / "rank0.json.gz", "rt") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    calls = [event for event in events if event["name"] == "cudaGraphLaunch"]
    replayed = {event["args"]["correlation"] for event in calls}
    work = [event for event in events if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    inside = [event for event in work if event["args"].get("correlation") in replayed]
    [row] = tv.idle(tv.load(folder), by=(), steps="all").frame.to_dicts()
    assert row["graph_launch_count"] == len(calls) == 70
    assert (row["graph_op_count"], row["op_count"]) == (len(inside), len(work))
    assert row["graph_op_ratio"] == pytest.approx(len(inside) / len(work))
    moments = {moment for event in inside for moment in range(event["ts"], event["ts"] + event["dur"])}
    assert row["graph_busy_ns"] == 1000 * len(moments)


def test_the_one_late_launch_of_the_deepseek_trace_is_found(traces: Path) -> None:
    [file] = (traces / "pytorch/deepseek-ai-profile-data").rglob("train.json*")
    with gzip.open(file, "rt") as stream:
        events = [event for event in json.load(stream)["traceEvents"] if event.get("ph") == "X"]
    kinds = {"kernel", "gpu_memcpy", "gpu_memset"}
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in {"cuda_runtime", "cuda_driver"}}
    run = tv.load(file)
    [window] = tv.breakdown(run, by=("rank",)).frame.to_dicts()
    [begin] = run.traces[0].table("steps")["ts_ns"].to_list()
    late, idle, reach = 0, 0, begin // 1000
    for event in sorted((e for e in events if e.get("cat") in kinds and e["dur"]), key=lambda e: e["ts"]):
        if event["ts"] > reach >= begin // 1000 and event["ts"] * 1000 <= begin + window["window_ns"]:
            idle += event["ts"] - reach
            call = calls[event["args"]["correlation"]]
            late += event["ts"] - reach if call["ts"] + call["dur"] > reach else 0
        reach = max(reach, event["ts"] + event["dur"])
    found = {row["cause"]: row for row in tv.idle(run).frame.to_dicts()}
    assert sum(row["idle_ns"] for row in found.values()) == window["idle_ns"] == 1000 * idle
    assert sum(found[cause]["idle_ns"] for cause in HOST_CAUSES if cause in found) == 1000 * late == 42_000
    assert found["blocking"]["no_compute_ns"] <= window["exposed_comm_ns"] + window["idle_ns"]


NSYS = (
    "nsys/Fuser/df8f397e_report1.nsys2024.6.2.sqlite.gz",
    "nsys/nsys-ai/h100_2gpu_1s.sqlite.gz",
    "nsys/nsys-ai/mock.sqlite.gz",
)


@pytest.mark.parametrize("name", NSYS)
def test_nsight_reports_have_causes_that_add_up(name: str, traces: Path) -> None:
    run = tv.load(traces / name)
    idle = tv.breakdown(run, by=("rank",)).frame.select("rank", "device", "idle_ns")
    rows = tv.idle(run, by=("rank", "cause")).frame
    sums = rows.group_by("rank", "device").agg(pl.col("idle_ns").sum()).sort("rank", "device")
    assert sums.equals(idle.sort("rank", "device"))
    assert set(rows["cause"].cast(pl.String).unique()) <= set(CAUSES)


def test_an_item_in_an_nsight_report_is_named(traces: Path) -> None:
    waits = tv.idle(tv.load(traces / "nsys/nsys-ai/h100_2gpu_1s.sqlite.gz"), by=("sync",)).frame.drop_nulls(
        "sync"
    )
    assert (waits["operator"][0], waits["reason"][0], waits["copy_bytes"][0]) == ("aten::item", "scalar", 1)
