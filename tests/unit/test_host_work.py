"""Runs without any accelerator: which host operators are work, and which call queued which exchange."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.classify import Classifier
from traceview.parsers.kineto import PARSER
from traceview.prepare import prepare
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.trace import Trace

MAIN, BACKEND = 42, 43
ONE_GROUP = {
    "rank": 1,
    "world_size": 2,
    "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}],
}


def operator(ts: int, dur: int, name: str, *, tid: int = MAIN) -> dict[str, Any]:
    """A host operator; times in µs."""
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 42,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {},
    }


def annotation(ts: int, dur: int, name: str, *, tid: int = MAIN) -> dict[str, Any]:
    row = operator(ts, dur, name, tid=tid)
    return row | {"cat": "user_annotation"}


def exchange(ts: int, *, sent: str = "[3, 5]", received: str = "[4, 2]") -> dict[str, Any]:
    """The call of an all-to-all of rows of four floats: output, input, group, splits out, splits in."""
    arguments = {
        "Input Dims": [[6, 4], [8, 4], [], [], [], [], []],
        "Input type": ["float", "float", "", "ScalarList", "ScalarList", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "", received, sent, "False", "-1"],
    }
    return operator(ts, 2, "c10d::alltoall_base_") | {"args": arguments}


def parsed(folder: Path, *events: dict[str, Any], **header: Any) -> Trace:
    path = folder / "rank1.json"
    path.write_text(json.dumps({"distributedInfo": ONE_GROUP, **header, "traceEvents": list(events)}))
    [trace] = PARSER.parse(Source(path))
    return trace


def named(trace: Trace) -> list[str]:
    return trace.table("ops")["name"].cast(pl.String).to_list()


def test_an_operator_without_another_inside_is_work_and_a_product_is_one_piece(tmp_path: Path) -> None:
    trace = parsed(
        tmp_path,
        operator(0, 100, "aten::linear"),
        operator(1, 2, "aten::t"),
        operator(10, 80, "aten::addmm"),
        operator(11, 1, "aten::resolve_conj"),
        operator(20, 5, "aten::copy_"),
        operator(100, 10, "aten::gelu"),
    )
    ops = trace.table("ops")
    assert named(trace) == ["aten::addmm", "aten::gelu"]
    assert ops.select("ts_ns", "dur_ns").rows() == [(10_000, 80_000), (100_000, 10_000)]
    assert trace.table("devices")["name"].to_list() == ["CPU (host operators)"]
    assert trace.diagnostics["code"].to_list() == ["kineto.host_only"]


def test_threads_are_streams_and_do_not_nest_in_each_other(tmp_path: Path) -> None:
    trace = parsed(tmp_path, operator(0, 50, "aten::mm"), operator(10, 5, "aten::add", tid=BACKEND))
    assert trace.table("ops").select("stream", "device").rows() == [(MAIN, 0), (BACKEND, 0)]


def test_an_exchange_is_launched_by_its_call_with_the_sizes_the_call_recorded(tmp_path: Path) -> None:
    trace = prepare(
        parsed(
            tmp_path,
            annotation(0, 100, "ProfilerStep#3"),
            annotation(5, 30, "tv:moe.dispatch|l=2|phase=fwd"),
            exchange(10),
            annotation(13, 15, "gloo:all_to_all", tid=BACKEND),
            operator(40, 20, "aten::mm"),
        ),
        Classifier.default(),
    )
    [row] = trace.table("collectives").to_dicts()
    assert (row["collective"], row["role"], row["axis"]) == ("all_to_all", "dispatch", "ep")
    assert (row["in_bytes"], row["out_bytes"]) == (8 * 4 * 4, 6 * 4 * 4)
    assert (row["in_splits"], row["out_splits"]) == ([3, 5], [4, 2])
    assert (row["group_ranks"], row["group_size"]) == ([0, 1], 2)
    assert (row["ts_ns"], row["dur_ns"], row["step"], row["layer"]) == (13_000, 15_000, 3, 2)
    launched = trace.table("ops").filter(pl.col("class") == "comm")["launch_ts_ns"]
    assert launched.to_list() == [10_000]


def test_what_waits_for_an_exchange_is_not_work(tmp_path: Path) -> None:
    trace = parsed(
        tmp_path,
        operator(0, 90, "Exchange"),
        exchange(10),
        annotation(13, 60, "gloo:all_to_all", tid=BACKEND),
    )
    assert named(trace) == ["gloo:all_to_all"]


def test_calls_and_exchanges_are_paired_in_order_within_their_kind(tmp_path: Path) -> None:
    reduce = operator(20, 1, "c10d::allreduce_")
    trace = parsed(
        tmp_path,
        exchange(10),
        reduce,
        exchange(30, sent="[1, 7]"),
        annotation(21, 50, "gloo:all_reduce", tid=BACKEND),
        annotation(22, 5, "gloo:all_to_all", tid=BACKEND + 1),
        annotation(40, 5, "gloo:all_to_all", tid=BACKEND + 1),
    )
    calls = trace.table("launches").select("correlation", "ts_ns")
    ops = trace.table("ops").join(calls, on="correlation", suffix="_call").sort("ts_ns")
    assert ops["ts_ns_call"].to_list() == [20_000, 10_000, 30_000]
    splits = trace.table("comm_calls").join(trace.table("ops"), on="op").sort("ts_ns")["in_splits"]
    assert splits.to_list() == [None, [3, 5], [1, 7]]


def test_kinds_with_a_call_too_few_are_left_unpaired_and_say_so(tmp_path: Path) -> None:
    trace = parsed(
        tmp_path,
        exchange(10),
        annotation(11, 5, "gloo:all_to_all", tid=BACKEND),
        annotation(21, 5, "gloo:all_to_all", tid=BACKEND),
    )
    assert trace.table("ops")["correlation"].to_list() == [None, None]
    assert trace.table("comm_calls")["collective_name"].to_list() == ["alltoall", "alltoall"]
    assert "kineto.exchange_unpaired" in trace.diagnostics["code"].to_list()


def test_arguments_that_are_odd_or_missing_leave_the_sizes_unknown(tmp_path: Path) -> None:
    for arguments in (
        {},
        {"Input Dims": [[6, 4], [8, 4]]},
        {"Input Dims": "x", "Input type": 3, "Concrete Inputs": None},
        {"Input Dims": [[-6, 4], ["a"]], "Input type": ["float"], "Concrete Inputs": []},
        {"Input Dims": [[10**18, 10**18]], "Input type": ["float"], "Concrete Inputs": []},
    ):
        call = operator(10, 2, "c10d::alltoall_base_") | {"args": arguments}
        trace = parsed(tmp_path, call, annotation(13, 15, "gloo:all_to_all", tid=BACKEND))
        [row] = trace.table("comm_calls").to_dicts()
        assert (row["in_elements"], row["in_splits"]) == (None, None), arguments
        assert row["collective_name"] == "alltoall"


def test_a_trace_with_device_work_keeps_its_host_operators_out_of_it(tmp_path: Path) -> None:
    kernel = operator(5, 5, "gemm") | {"cat": "kernel", "args": {"device": 0, "stream": 7}}
    trace = parsed(tmp_path, operator(0, 50, "aten::mm"), kernel)
    assert named(trace) == ["gemm"]
