"""Processes of Nsight Systems reports: which they are, where they ran, and on which clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from nsys_reports import (
    COMM_ID,
    COMM_INIT,
    ENTRIES,
    EPOCH,
    OTHER_PID,
    PID,
    Row,
    Strings,
    Tables,
    global_id,
    kernel,
    launch,
    nccl,
    nvtx,
    parse,
    parse_all,
    report,
    texts,
    write_sqlite,
)

from traceview.classify import Classifier
from traceview.parsers.nsys import PARSER
from traceview.prepare import prepare
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path


def test_equal_numbers_of_different_processes_are_never_mixed(tmp_path: Path) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200), kernel(names, 110, 220, pid=OTHER_PID)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            launch(names, 50), launch(names, 60, globalTid=global_id(OTHER_PID, 9)), launch(names, 1, globalTid=global_id(1, 9)),
        ],
        NVTX_EVENTS=[
            nvtx(40, 90, "layer_3f"), nvtx(40, 90, "layer_5f", globalTid=global_id(OTHER_PID, 9)),
            nvtx(10, 11, "mine", domainId=4), nvtx(10, 11, "theirs", domainId=4, globalTid=global_id(OTHER_PID, 9)),
            nvtx(1, None, "A", eventType=75, domainId=4), nvtx(1, None, "B", eventType=75, domainId=4, globalTid=global_id(OTHER_PID, 9)),
        ],
        StringIds=names.rows(),
    )  # fmt: skip
    first, second = (prepare(trace, Classifier.default()) for trace in parse_all(tables, tmp_path))
    assert (first.facts.pid, second.facts.pid) == (PID, OTHER_PID)
    assert first.table("ops")["launch_ts_ns"].to_list() == [EPOCH + 50]
    assert second.table("ops")["launch_ts_ns"].to_list() == [EPOCH + 60]
    assert first.table("ops")["layer"].to_list() == [3]
    assert second.table("ops")["layer"].to_list() == [5]
    assert texts(first.table("ranges"), "domain") == ["A", "default"]
    assert texts(second.table("ranges"), "domain") == ["B", "default"]


def test_a_process_that_used_no_device_is_a_trace_only_where_none_did(tmp_path: Path) -> None:
    names = Strings()
    host_only = launch(names, 5, globalTid=global_id(OTHER_PID, 9))
    tables = report()
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append(host_only | {"nameId": 9})
    assert [trace.facts.pid for trace in parse_all(tables, tmp_path)] == [PID]
    del tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    (tmp_path / "again").mkdir()
    assert [trace.facts.pid for trace in parse_all(tables, tmp_path / "again")] == [PID, OTHER_PID]


def test_devices_are_those_of_the_process_as_it_numbers_them(tmp_path: Path) -> None:
    gpus = [
        {"id": 0, "name": "first", "totalMemory": 10, "smCount": 1, "cuDevice": 1, "computeMajor": 9, "computeMinor": 0},
        {"id": 7, "name": "second", "totalMemory": 20, "smCount": 2, "cuDevice": 0, "computeMajor": 8, "computeMinor": 6},
    ]  # fmt: skip
    by_machine = parse(report(TARGET_INFO_GPU=gpus), tmp_path)
    assert by_machine.facts.device_name == "second"
    told = by_machine.table("devices").sort("device")
    assert told.select("memory_bytes", "sm_count", "compute_capability").rows() == [
        (20, 2, "8.6"),
        (10, 1, "9.0"),
    ]
    own = [
        {"gpuId": 0, "cudaId": 0, "pid": PID, "numMultiprocessors": 99},
        {"gpuId": 7, "cudaId": 0, "pid": OTHER_PID, "numMultiprocessors": 99},
    ]
    (tmp_path / "own").mkdir()
    by_process = parse(report(TARGET_INFO_GPU=gpus, TARGET_INFO_CUDA_DEVICE=own), tmp_path / "own")
    assert by_process.facts.device_name == "first"
    assert len(by_process.table("devices")) == 1


@pytest.mark.parametrize(
    ("tables", "name", "expected"),
    [
        ({"MPI_RANKS": [{"globalTid": global_id(tid=3), "rank": 11}]}, "rank5.sqlite", (11, "MPI_RANKS")),
        ({"MPI_RANKS": [{"globalTid": global_id(OTHER_PID, 3), "rank": 11}]}, "x.sqlite", (None, "none")),
        (
            {"TARGET_INFO_NVTX_CUDA_DEVICE": [{"deviceId": 0, "name": "Xla:#global=6,local=2,process=6#"}]},
            "rank5.sqlite",
            (6, "XLA device name"),
        ),
        ({"NVTX_EVENTS": [nvtx(0, 9, "rank=4; pp=0/2 dp=0/4")]}, "rank5.sqlite", (4, "NVTX label")),
        (
            {"NVTX_EVENTS": [nccl(0, 9, "ncclCommInitRank", COMM_INIT, 5, 2, 1, 0),
                             nccl(0, 9, "ncclCommInitRank", COMM_INIT, COMM_ID, 16, 13, 0)],
             "NVTX_PAYLOAD_SCHEMA_ENTRIES": ENTRIES},
            "rank5.sqlite",
            (13, "largest NCCL communicator"),
        ),
        ({}, "profile_77_rank5.sqlite", (5, "file name")),
        ({}, "report.sqlite", (None, "none")),
    ],
)  # fmt: skip
def test_the_rank_comes_from_the_best_evidence(
    tmp_path: Path, tables: Tables, name: str, expected: tuple[int | None, str]
) -> None:
    path = write_sqlite(report(**tables), tmp_path, name)
    [trace] = PARSER.parse(Source(path))
    assert (trace.facts.rank, trace.facts.rank_source) == expected
    assert set(trace.table("ops")["rank"]) == {expected[0] or 0}


def test_the_folder_names_the_rank_only_where_the_report_has_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "rank_6"
    folder.mkdir()
    assert parse(report(), folder).facts.rank == 6
    names = Strings()
    both = [kernel(names, 100, 200), kernel(names, 110, 220, pid=OTHER_PID)]
    (folder / "node").mkdir()
    tables = report(CUPTI_ACTIVITY_KIND_KERNEL=both, StringIds=names.rows())
    found = PARSER.parse(Source(write_sqlite(tables, folder, "both.sqlite")))
    assert [trace.facts.rank for trace in found] == [None, None]


@pytest.mark.parametrize(
    ("normalize", "shift", "started", "first"),
    [
        ("false", "0", [{"utcEpochNs": EPOCH}], EPOCH + 100),
        ("false", "40", [{"utcEpochNs": EPOCH}], EPOCH + 60),
        ("true", "0", [{"utcEpochNs": EPOCH}], 100),
        (None, None, [], 100),
        ("false", "garbage", [{"utcEpochNs": 1 << 62}], 100),
    ],
)
def test_stamps_count_from_the_unix_epoch_where_the_report_tells(
    tmp_path: Path, normalize: str | None, shift: str | None, started: list[Row], first: int
) -> None:
    said = {"EXPORT_PARAM_TIME_NORMALIZE": normalize, "EXPORT_PARAM_TIME_SHIFT": shift}
    meta = [{"name": name, "value": value} for name, value in said.items() if value is not None]
    tables = report(META_DATA_EXPORT=meta, TARGET_INFO_SESSION_START_TIME=started)
    trace = parse(tables, tmp_path)
    assert trace.table("ops")["ts_ns"].to_list() == [first]
    assert trace.facts.start_ns == first
    assert trace.table("ranges")["ts_ns"].to_list() == [first - 60]


def test_stamps_that_cannot_be_true_are_left_out_and_counted(tmp_path: Path) -> None:
    names = Strings()
    good = [kernel(names, 100 + n, 200 + n) for n in range(5)]
    broken = [
        kernel(names, -(1 << 63), 5),
        kernel(names, 5, (1 << 63) - 1),
        kernel(names, 10**17, 10**17 + 5),
    ]
    broken += [{**kernel(names, 5, 6), "start": None}]
    backwards = [kernel(names, 300, 250)]
    rows = [*good, *broken, *backwards]
    trace = parse(report(CUPTI_ACTIVITY_KIND_KERNEL=rows, StringIds=names.rows()), tmp_path)
    assert trace.table("ops")["dur_ns"].to_list() == [100] * 5 + [0]
    counts = dict(trace.diagnostics.select("code", "count").rows())
    assert counts["nsys.stamp_unusable"] == 4
    assert counts["nsys.duration_negative"] == 1
