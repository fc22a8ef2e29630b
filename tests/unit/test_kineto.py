"""What the Kineto parser makes of every shape and damage seen in the wild; inputs are written by hand."""

from __future__ import annotations

import gzip
import json
import zipfile
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from traceview import schema
from traceview.errors import ParseError, UnknownFormatError
from traceview.parsers import _json_stream
from traceview.parsers._numbers import nanoseconds
from traceview.parsers.kineto import PARSER
from traceview.source import Source

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from traceview.trace import Trace

EPOCH_US = 1_712_345_678_901_234


def kernel(ts: Any, dur: Any, *, name: Any = "gemm", correlation: Any = 1, **args: Any) -> dict[str, Any]:
    """A CUDA kernel row as PyTorch 2.x writes it."""
    details = {"External id": 7, "device": 0, "context": 1, "stream": 7, "correlation": correlation} | args
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": ts,
        "dur": dur,
        "args": details,
    }


def launch(ts: Any, *, correlation: int = 1, tid: int = 42) -> dict[str, Any]:
    args = {"External id": 7, "cbid": 211, "correlation": correlation}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 42, "tid": tid,
        "ts": ts, "dur": 5.0, "args": args,
    }  # fmt: skip


def annotation(ts: Any, dur: Any, name: str, *, tid: int = 42) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 42,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {},
    }


def document(events: list[dict[str, Any]], **header: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **header, "traceEvents": events, "traceName": "t.json"}


def parse(folder: Path, content: bytes | dict[str, Any] | list[Any], name: str = "t.json") -> Trace:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    [trace] = PARSER.parse(Source(path))
    return trace


def codes(trace: Trace) -> set[str]:
    return set(trace.diagnostics["code"])


# --- containers and layouts ---------------------------------------------------------------------------


def _zip(data: bytes, folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "scratch.zip", "w") as archive:
        archive.writestr("trace.json", data)
    return (folder / "scratch.zip").read_bytes()


@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "zip", "bom"])
def test_the_container_is_told_by_its_bytes_and_not_by_its_name(tmp_path: Path, form: str) -> None:
    text = json.dumps(document([kernel(10.5, 2.25)])).encode()
    data = {
        "plain": lambda: text,
        "gzip": lambda: gzip.compress(text),
        "zstd": lambda: zstandard.ZstdCompressor().compress(text),
        "zip": lambda: _zip(text, tmp_path),
        "bom": lambda: b"\xef\xbb\xbf" + text,
    }[form]()
    ops = parse(tmp_path, data, name="no_suffix_at_all").table("ops")
    assert ops.select("ts_ns", "dur_ns").row(0) == (10_500, 2_250)


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : ")])
def test_the_layout_of_the_text_does_not_matter(
    tmp_path: Path, indent: int | None, separators: tuple[str, str]
) -> None:
    events = [kernel(n, 1, name=f'k"}}, {{"ph": "X", "name": "fake{n}') for n in range(50)]
    text = json.dumps(document(events), indent=indent, separators=separators).encode()
    assert len(parse(tmp_path, text).table("ops")) == 50


def test_a_top_level_array_is_a_trace_too(tmp_path: Path) -> None:
    assert len(parse(tmp_path, [kernel(1, 2), kernel(5, 2)]).table("ops")) == 2


def test_keys_before_and_after_the_events_count_alike(tmp_path: Path) -> None:
    events = json.dumps([kernel(1, 2)])
    info = '{"rank": 5, "world_size": 8, "pg_config": [{"pg_name": "3", "pg_desc": "mesh_ep", "ranks": "[4, 5]"}]}'
    before = f'{{"distributedInfo": {info}, "traceEvents": {events}}}'.encode()
    after = f'{{"traceEvents": {events}, "traceName": "x]y", "distributedInfo": {info}}}'.encode()
    for text in (before, after):
        trace = parse(tmp_path, text)
        assert (trace.facts.rank, trace.facts.world_size) == (5, 8)
        assert trace.table("groups")["group_ranks"].to_list() == [[4, 5]]


def test_an_event_list_inside_a_header_value_is_not_the_event_list(tmp_path: Path) -> None:
    text = b'{"note": "\\"traceEvents\\": [", "deep": {"traceEvents": [1]}, "traceEvents": [' + (
        json.dumps(kernel(1, 2)).encode() + b"]}"
    )
    assert len(parse(tmp_path, text).table("ops")) == 1


@given(chunk=st.integers(40, 400), padding=st.integers(0, 60))
def test_where_the_stream_is_cut_never_matters(
    tmp_path_factory: pytest.TempPathFactory, chunk: int, padding: int
) -> None:
    events = [kernel(n, 1, grid=[{"a": n}, {"b": 1}], note="x" * padding) for n in range(12)]
    folder = tmp_path_factory.mktemp("cuts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_json_stream, "CHUNK_BYTES", chunk)
        patch.setattr(_json_stream, "_OVERLAP", 50)
        trace = parse(folder, document(events))
    assert trace.table("ops")["ts_ns"].to_list() == [1000 * n for n in range(12)]
    assert "kineto.unreadable_events" not in codes(trace)


# --- stamps -------------------------------------------------------------------------------------------


@given(st.lists(st.decimals(min_value=0, max_value=EPOCH_US, places=3), min_size=1, max_size=20))
def test_decimal_microseconds_become_exact_nanoseconds(stamps: list[Decimal]) -> None:
    expected = [int(stamp * 1000) for stamp in stamps]
    assert nanoseconds([str(stamp) for stamp in stamps]).to_list() == expected
    relative = [stamp for stamp in stamps if stamp < 2**43]
    assert nanoseconds([float(stamp) for stamp in relative]).to_list() == [
        int(stamp * 1000) for stamp in relative
    ]


def test_epoch_stamps_with_decimals_survive_although_no_float_can_hold_them(tmp_path: Path) -> None:
    text = json.dumps(document([kernel(0, 1)])).replace('"ts": 0', f'"ts": {EPOCH_US}.567').encode()
    assert parse(tmp_path, text).table("ops")["ts_ns"][0] == EPOCH_US * 1000 + 567


def test_stamps_may_be_text(tmp_path: Path) -> None:
    trace = parse(tmp_path, document([kernel(f"{EPOCH_US}.25", "1.5")]))
    assert trace.table("ops").select("ts_ns", "dur_ns").row(0) == (EPOCH_US * 1000 + 250, 1500)


def test_the_base_time_is_added_wherever_it_stands(tmp_path: Path) -> None:
    text = (
        b'{"traceEvents": ['
        + json.dumps(kernel(1.001, 1)).encode()
        + b'], "baseTimeNanoseconds": 1759300074000000000}'
    )
    assert parse(tmp_path, text).table("ops")["ts_ns"][0] == 1759300074000000000 + 1001


def test_stamps_far_from_all_others_are_left_out_and_counted(tmp_path: Path) -> None:
    events = [kernel(6e12 + n, 1) for n in range(5)] + [kernel(0.0, 1) for _ in range(5)]
    trace = parse(tmp_path, document(events))
    assert len(trace.table("ops")) == 5
    assert trace.diagnostics.filter(pl.col("code") == "kineto.stamp_far_away")["count"].to_list() == [5]


def test_missing_and_negative_durations_become_zero_and_are_counted(tmp_path: Path) -> None:
    unfinished = kernel(3, 1)
    del unfinished["dur"]
    trace = parse(tmp_path, document([kernel(1, -1), unfinished, kernel(9, 4)]))
    assert trace.table("ops")["dur_ns"].to_list() == [0, 0, 4000]
    assert trace.diagnostics.filter(pl.col("code") == "kineto.duration_missing")["count"].to_list() == [2]


def test_a_duration_longer_than_a_day_is_a_counter_overflow(tmp_path: Path) -> None:
    trace = parse(tmp_path, document([kernel(1, 1), kernel(2, 9e15)]))
    assert len(trace.table("ops")) == 1
    assert "kineto.duration_overflow" in codes(trace)


def test_kernels_that_overlap_on_one_stream_are_all_kept(tmp_path: Path) -> None:
    trace = parse(tmp_path, document([kernel(0, 100), kernel(10, 20), kernel(10, 0)]))
    assert trace.table("ops")["dur_ns"].to_list() == [100_000, 20_000, 0]


# --- damage -------------------------------------------------------------------------------------------


@given(cut=st.integers(1, 900))
def test_a_file_cut_anywhere_gives_every_whole_event_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    events = [kernel(n, 1) for n in range(30)]
    text = json.dumps(document(events)).encode()
    head = text.index(b"[{")
    shortened = text[: head + 1 + len(json.dumps(events[0])) + cut]
    whole = shortened.count(b'"correlation": 1}}')
    trace = parse(tmp_path_factory.mktemp("cut"), shortened)
    assert trace.table("ops")["ts_ns"].to_list() == [1000 * n for n in range(whole)]
    assert "kineto.truncated" in codes(trace)


def test_a_gzip_stream_that_ends_early_gives_what_it_holds(tmp_path: Path) -> None:
    text = json.dumps(document([kernel(n, 1, name=f"k{n * 7919 % 1009}") for n in range(3000)])).encode()
    data = gzip.compress(text)
    trace = parse(tmp_path, data[: len(data) // 2])
    assert 500 < len(trace.table("ops")) < 3000
    assert {"kineto.stream_damaged", "kineto.truncated"} <= codes(trace)


def test_one_broken_event_costs_one_event(tmp_path: Path) -> None:
    events = [json.dumps(kernel(n, 1)) for n in range(40)]
    events[17] = events[17].replace('"gemm"', '"co_filename "quoted" here"')
    trace = parse(
        tmp_path, ('{"traceEvents": [' + ", ".join(events) + '], "distributedInfo": {"rank": 3}}').encode()
    )
    assert trace.table("ops")["ts_ns"].to_list() == [1000 * n for n in range(40) if n != 17]
    assert trace.diagnostics.filter(pl.col("code") == "kineto.unreadable_events")["count"].to_list() == [1]
    assert trace.facts.rank == 3


@pytest.mark.parametrize(
    "name",
    [b"ctrl\x01\x1f", b"latin\xff\xfe", b"C:\\windows\\kernel", b"lone \\ slash"],
    ids=["control", "utf8", "path", "slash"],
)
def test_names_with_forbidden_bytes_do_not_lose_the_event(tmp_path: Path, name: bytes) -> None:
    text = (
        json.dumps(document([kernel(n, 1) for n in range(3)]))
        .encode()
        .replace(b'"gemm"', b'"' + name + b'"', 1)
    )
    assert len(parse(tmp_path, text).table("ops")) == 3


@pytest.mark.parametrize("value", ["N/A", "NaN", "-Infinity", '"inf"', '"0x7f"', "[1, 2]", "true"])
def test_values_that_are_no_numbers_are_nulls_and_not_failures(tmp_path: Path, value: str) -> None:
    text = json.dumps(document([kernel(1, 1), kernel(2, 1)])).replace(
        '"correlation": 1', f'"correlation": {value}', 1
    )
    ops = parse(tmp_path, text.encode()).table("ops")
    assert len(ops) == 2
    assert ops["correlation"].to_list() in ([None, 1], [127, 1])


def test_two_writers_in_one_file_lose_only_what_is_torn(tmp_path: Path) -> None:
    first, second = (json.dumps(document([kernel(n + shift, 1) for n in range(20)])) for shift in (0, 100))
    trace = parse(tmp_path, (first[:-200] + second).encode())
    assert len(trace.table("ops")) >= 30
    assert "kineto.unreadable_events" in codes(trace)


# --- what it is instead -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"schema": "1.0", "pid": 1, "nodes": [{"id": 1}]}, "execution trace"),
        ({"segments": [], "device_traces": []}, "memory snapshot"),
        ([], "without trace events"),
        ({"traceEvents": []}, "without trace events"),
        ([{"ph": "M", "name": "process_name", "pid": 1}], "without complete"),
        ([{"ph": "X", "name": "aten::add", "ts": 1, "dur": 1, "pid": "CPU functions"}], "legacy autograd"),
        ([{"ph": "X", "cat": "browser", "name": "paint", "ts": 1, "dur": 1}], "another tool"),
        ([[1, 2, 3]], "without trace events"),
    ],
)
def test_other_json_is_refused_by_its_name(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(UnknownFormatError, match=says):
        parse(tmp_path, content)


def test_a_refusal_never_quotes_metadata(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse(tmp_path, {"HF_TOKEN": "hf_secret", "traceEvents": []})
    assert "hf_secret" not in str(refused.value)


def test_metadata_outside_the_known_keys_reaches_no_table(tmp_path: Path) -> None:
    trace = parse(
        tmp_path,
        document([kernel(1, 1)], env={"HF_TOKEN": "hf_secret"}, command_line="train --key=hf_secret"),
    )
    everything = repr(trace.facts) + "".join(frame.write_json() for frame in trace.tables.values())
    assert "hf_secret" not in everything


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.json", "{}")
        archive.writestr("b.json", "{}")
    with pytest.raises(ParseError, match="2 files"):
        PARSER.parse(Source(tmp_path / "two.zip"))


# --- rows ---------------------------------------------------------------------------------------------


def test_host_rows_with_a_stream_argument_are_not_device_work(tmp_path: Path) -> None:
    triton = {"ph": "X", "cat": "cpu_op", "name": "triton_poi_fused", "pid": 42, "tid": 42, "ts": 1, "dur": 9,
              "args": {"stream": 0, "kernel_backend": "triton"}}  # fmt: skip
    assert len(parse(tmp_path, document([triton, kernel(3, 1)])).table("ops")) == 1


def test_gpu_copies_of_annotations_are_neither_work_nor_ranges(tmp_path: Path) -> None:
    copy = {
        "ph": "X",
        "cat": "gpu_user_annotation",
        "name": "ProfilerStep#1",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 9,
    }
    trace = parse(tmp_path, document([copy, kernel(3, 1), annotation(0, 20, "ProfilerStep#1")]))
    assert (len(trace.table("ops")), len(trace.table("ranges"))) == (1, 1)


def test_old_categories_and_text_thread_ids_read_like_new_ones(tmp_path: Path) -> None:
    old = {"ph": "X", "cat": "Kernel", "name": "k", "pid": 2, "tid": "stream 7", "ts": EPOCH_US, "dur": 3,
           "args": {"device": 2, "stream": 7, "correlation": 60031, "external id": 9}}  # fmt: skip
    call = {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "4093687616", "ts": EPOCH_US - 9,
            "dur": 3, "args": {"correlation": 60031}}  # fmt: skip
    trace = parse(tmp_path, [old, call])
    assert trace.table("ops").select("device", "stream", "ts_ns").row(0) == (2, 7, EPOCH_US * 1000)
    assert trace.table("launches")["tid"][0] == 4093687616


def test_rocm_rows_keep_stream_zero_and_hex_streams(tmp_path: Path) -> None:
    zero = kernel(1, 1) | {"args": {"device": 2, "stream": 0, "correlation": 5, "kind": "Dispatch Kernel"}}
    hexed = kernel(2, 1) | {"args": {"device": 2, "stream": "0x0", "correlation": 6}}
    copied = kernel(3, 1, name="CopyHostToDevice") | {
        "cat": "gpu_memcpy",
        "args": {"device": 2, "kind": "HtoD"},
    }
    ops = parse(tmp_path, document([zero, hexed, copied])).table("ops")
    assert ops["stream"].to_list()[:2] == [0, 0]
    assert ops["copy_kind"].to_list() == [None, None, "HtoD"]


def test_peer_copies_without_a_device_belong_to_the_sending_one(tmp_path: Path) -> None:
    copy = kernel(1, 1, name="Memcpy PtoP (Device -> Device)") | {
        "cat": "gpu_memcpy", "pid": 3, "args": {"fromDevice": 1, "toDevice": 2, "stream": 20, "bytes": 4096},
    }  # fmt: skip
    ops = parse(tmp_path, document([copy])).table("ops")
    assert ops.select("device", "kind", "copy_kind", "bytes").row(0) == (1, "memcpy", "PtoP", 4096)


def test_waits_of_the_device_are_syncs_and_not_work(tmp_path: Path) -> None:
    sync = {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 1000007, "ts": 1, "dur": 5,
            "args": {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 3}}  # fmt: skip
    wait = kernel(2, 6, name="event_wait") | {"cat": "mtia_ccp_events"}
    trace = parse(tmp_path, document([sync, wait, kernel(9, 1)]))
    assert len(trace.table("ops")) == 1
    assert sorted(trace.table("syncs")["name"].cast(pl.String)) == ["Stream Sync", "event_wait"]


def test_thread_ids_beyond_int64_and_negative_ones_stay_distinct(tmp_path: Path) -> None:
    calls = [launch(1, tid=tid) | {"tid": tid} for tid in (15514734831341844875, -71, 139_000_000_000_000)]
    tids = parse(tmp_path, document([*calls, kernel(2, 1)])).table("launches")["tid"]
    assert tids.to_list() == [15514734831341844875 - 2**64, -71, 139_000_000_000_000]


def test_python_rows_are_dropped_except_modules(tmp_path: Path) -> None:
    frame = {"ph": "X", "cat": "python_function", "pid": 42, "tid": 42, "ts": 1, "dur": 9, "args": {}}
    rows = [frame | {"name": "train.py(3): step"}, frame | {"name": "nn.Module: MoELayer_3"}]
    ranges = parse(tmp_path, document([*rows, kernel(3, 1)])).table("ranges")
    assert ranges["raw_name"].to_list() == ["nn.Module: MoELayer_3"]


def test_long_names_are_bounded(tmp_path: Path) -> None:
    ops = parse(tmp_path, document([kernel(1, 1, name="x" * 100_000)])).table("ops")
    assert ops["name"].cast(pl.String).str.len_chars()[0] == 4096


def test_counters_become_one_row_per_series(tmp_path: Path) -> None:
    sample = {
        "ph": "C",
        "name": "GPU 0 Utilization",
        "pid": 0,
        "ts": 5,
        "args": {"": 0.5, "SM": 3, "label": "text"},
    }
    counters = parse(tmp_path, document([sample, kernel(1, 1)])).table("counters")
    assert counters.select("metric", "value").rows() == [
        ("GPU 0 Utilization", 0.5),
        ("GPU 0 Utilization SM", 3.0),
    ]


def memory(ts: float, kind: int, device: int, **totals: int) -> dict[str, Any]:
    """An event of an allocator."""
    args = {"Device Type": kind, "Device Id": device, "Addr": 1, "Bytes": 4}
    named = {name.replace("_", " "): total for name, total in totals.items()}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args | named}


def test_what_the_allocators_of_devices_hold_are_levels(tmp_path: Path) -> None:
    events = [
        memory(5.25, 1, 3, Total_Allocated=100, Total_Reserved=200),
        memory(6, 1, 3, Total_Allocated=60),
        memory(7, 0, -1, Total_Allocated=9),  # host memory
        memory(8, 1, 3),  # before PyTorch 1.10
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
        kernel(1, 1),
    ]
    counters = parse(tmp_path, document(events)).table("counters").sort("metric", "ts_ns")
    shown = counters.select("device", "ts_ns", "metric", "unit", "value", "holds")
    assert shown.with_columns(pl.col("ts_ns") - shown["ts_ns"].min()).rows() == [
        (3, 0, "memory allocated", "bytes", 100.0, "after"),
        (3, 750, "memory allocated", "bytes", 60.0, "after"),
        (3, 0, "memory reserved", "bytes", 200.0, "after"),
    ]


def test_allocator_events_keep_stamps_that_a_float_would_round(tmp_path: Path) -> None:
    text = json.dumps(document([memory(EPOCH_US, 1, 0, Total_Allocated=7), kernel(EPOCH_US, 1)])).encode()
    # the kernel's stamps are whole microseconds, so that nothing else calls for exact ones
    stamped = text.replace(b"%d" % EPOCH_US, b"%d.123" % EPOCH_US, 1)
    counters = parse(tmp_path, stamped).table("counters")
    assert counters["ts_ns"].to_list() == [EPOCH_US * 1000 + 123]


# --- communication metadata ---------------------------------------------------------------------------

A2A = {
    "Collective name": "all_to_allv", "In msg nelems": 4096, "Out msg nelems": 8192, "Group size": 2, "dtype": "BFloat16",
    "In split size": "[1, 3]", "Out split size": "[4, 4]", "Process Group Name": "7", "Process Group Description": "ep",
    "Process Group Ranks": "[0, 1]", "Seq": 12,
}  # fmt: skip


def test_metadata_on_the_kernel_is_read_whole(tmp_path: Path) -> None:
    call = parse(tmp_path, document([kernel(1, 1, **A2A)])).table("comm_calls").row(0, named=True)
    assert call["source"] == "kernel_args"
    assert (call["in_elements"], call["out_elements"], call["seq"]) == (4096, 8192, 12)
    assert (call["in_splits"], call["out_splits"], call["splits_complete"]) == ([1, 3], [4, 4], True)
    assert call["group_ranks"] == [0, 1]


def test_lists_that_the_profiler_cut_are_never_taken_for_whole_ones(tmp_path: Path) -> None:
    cut = "[" + ", ".join(map(str, range(30))) + ", ...]"
    args = A2A | {"In split size": cut, "Process Group Ranks": cut, "Group size": 64}
    groups = [{"pg_name": "7", "pg_desc": "ep", "pg_size": 64, "ranks": list(range(64))}]
    trace = parse(
        tmp_path, document([kernel(1, 1, **args)], distributedInfo={"rank": 0, "pg_config": groups})
    )
    call = trace.table("comm_calls").row(0, named=True)
    assert (call["in_splits"], call["splits_complete"]) == (None, False)
    assert call["group_ranks"] == list(range(64)), "the group table has what the event cut"


def host_call(ts: float, dur: float, external_id: int, **args: Any) -> dict[str, Any]:
    details = (
        {"External id": external_id, "Rank": 3, "Global rank start": 0, "Global rank stride": 1} | A2A | args
    )
    return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 42, "tid": 42, "ts": ts, "dur": dur,
            "args": details}  # fmt: skip


def test_a_bare_kernel_takes_the_metadata_of_the_host_call_with_its_external_id(tmp_path: Path) -> None:
    events = [
        host_call(0, 10, 55),
        kernel(20, 5, **{"External id": 55}),
        kernel(40, 5, **{"External id": 56}),
    ]
    trace = parse(tmp_path, document(events))
    assert trace.table("comm_calls").select("op", "source", "seq").rows() == [(0, "host_op", 12)]


def test_a_bare_kernel_takes_the_metadata_of_the_host_call_around_its_launch(tmp_path: Path) -> None:
    events = [
        host_call(0, 10, 55, Seq=1),
        host_call(20, 10, 58, Seq=2),
        launch(23, correlation=9),
        kernel(60, 5, correlation=9) | {"args": {"device": 0, "stream": 7, "correlation": 9}},
    ]
    for event in events:
        event["args"].pop("External id", None) if event["cat"] != "cpu_op" else None
    trace = parse(tmp_path, document(events))
    assert trace.table("comm_calls").select("op", "seq").rows() == [(0, 2)]


def test_the_rank_comes_from_the_best_evidence_there_is(tmp_path: Path) -> None:
    plain, told = [kernel(1, 1)], [kernel(1, 1), host_call(0, 1, 5)]
    assert (
        parse(tmp_path, document(told, distributedInfo={"rank": 9}), "rank4.json").facts.rank_source
        == "distributedInfo"
    )
    by_call = parse(tmp_path, document(told), "rank4.json").facts
    assert (by_call.rank, by_call.rank_source) == (3, "record_param_comms")
    by_name = parse(tmp_path, document(plain), "trace_rank4_step4.json").facts
    assert (by_name.rank, by_name.rank_source) == (4, "file name")
    (tmp_path / "rank_11").mkdir()
    by_folder = parse(tmp_path / "rank_11", document(plain)).facts
    assert (by_folder.rank, by_folder.rank_source) == (11, "folder name")
    assert parse(tmp_path, document(plain), "trace.json").facts.rank is None


def test_every_table_has_exactly_the_promised_columns(tmp_path: Path) -> None:
    trace = parse(tmp_path, document([kernel(1, 1, **A2A), launch(0), annotation(0, 1, "x")]))
    promised = schema.TABLES | {
        table.name: table for table in (schema.PARSED_OPS, schema.PARSED_RANGES, schema.PARSED_GROUPS)
    }
    for name, frame in trace.tables.items():
        assert frame.schema == promised[name].schema(), name


@pytest.mark.parametrize("huge", [2**31, 2**63, 2**64 + 5, 10**30, -(10**30), 1e300])
def test_gigantic_numbers_anywhere_are_unknown_and_never_a_failure(tmp_path: Path, huge: float) -> None:
    text = f"[{huge}, 1]" if isinstance(huge, int) else "[1, 1]"
    numbers = dict.fromkeys(
        ("Group size", "In msg nelems", "Src Rank", "Seq", "bytes", "device", "stream"), huge
    )
    args = A2A | numbers | {"In split size": text, "Process Group Ranks": text, "grid": [2**40, 2**40, 2**40]}
    info = {
        "rank": huge,
        "world_size": huge,
        "pg_config": [{"pg_name": huge, "pg_size": huge, "ranks": [huge]}],
    }
    devices = [{"id": 0, "totalGlobalMem": huge, "numSms": huge}, {"id": huge, "name": "x"}]
    counter = {"ph": "C", "name": "c", "pid": huge, "ts": 5, "args": {"v": huge}}
    good, odd = (
        kernel(1, 1, **args),
        kernel(1, 1) | {"pid": huge, "tid": huge, "ts": huge * 1000, "dur": huge},
    )
    events = [good, good, good, odd, counter, launch(0)]
    trace = parse(tmp_path, document(events, distributedInfo=info, deviceProperties=devices))
    call = trace.table("comm_calls").row(0, named=True)
    assert call["group_size"] is None
    assert trace.table("ops")["ts_ns"].to_list() == [1000] * 3
    assert trace.facts.rank is None
