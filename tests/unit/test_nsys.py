"""What the Nsight Systems parser makes of every export type, version and damage; reports are built by hand."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import struct
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.classify import Classifier
from traceview.errors import ParseError, UnknownFormatError
from traceview.inputs import parser_for
from traceview.parsers._nsys_columns import TABLES, WORK_TABLES
from traceview.parsers.nsys import PARSER
from traceview.prepare import prepare
from traceview.registry import parsers
from traceview.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]
Tables = dict[str, list[Row]]

EPOCH = 1_779_782_330_176_752_435
PID, OTHER_PID = 144, 145
PRIVATE = "hf_Xo9vTjQ2"


def global_id(pid: int = PID, tid: int = 0, hardware: int = 1) -> int:
    packed = hardware << 56 | 1 << 48 | pid << 24 | tid
    return packed - (1 << 64) if packed >> 63 else packed  # SQLite's numbers are signed


class Strings:
    """The string table of a report under construction."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 7)

    def rows(self) -> list[Row]:
        return [{"id": number, "value": text} for text, number in self.ids.items()]


def kernel(names: Strings, start: int, end: int, *, name: str = "gemm", pid: int = PID, **more: Any) -> Row:
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": global_id(pid),
        "demangledName": names(name), "shortName": names("short"), "mangledName": None,
        "gridX": 4, "gridY": 3, "gridZ": 2, "graphNodeId": 0,
    } | more  # fmt: skip


def launch(
    names: Strings, start: int, *, name: str = "cudaLaunchKernel_v7000", tid: int = 9, **more: Any
) -> Row:
    return {
        "start": start, "end": start + 5, "eventClass": 0, "globalTid": global_id(tid=tid), "correlationId": 1,
        "nameId": names(name), "returnValue": 0,
    } | more  # fmt: skip


def nvtx(start: int, end: int | None, text: str | None = None, *, tid: int = 9, **more: Any) -> Row:
    return {
        "start": start, "end": end, "eventType": 59, "text": text, "globalTid": global_id(tid=tid),
        "endGlobalTid": None, "textId": None, "domainId": 0, "binaryData": None,
    } | more  # fmt: skip


def report(**tables: list[Row]) -> Tables:
    """One kernel launched inside one range, on a host that says who and when it is, plus ``tables``."""
    names = Strings()
    base: Tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(names, 100, 200)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [launch(names, 50)],
        "NVTX_EVENTS": [nvtx(40, 90, "iteration 3")],
        "StringIds": names.rows(),
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH}],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "node7"}],
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.2.1.210"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"},
        ],
        "TARGET_INFO_GPU": [
            {"id": 3, "name": "NVIDIA H100", "totalMemory": 8 << 30, "smCount": 132, "cuDevice": 0}
            | {"computeMajor": 9, "computeMinor": 0}
        ],
    }
    return base | tables


# --- writers, one per export type ---------------------------------------------------------------------


def write_sqlite(tables: Tables, folder: Path, name: str = "report.sqlite") -> Path:
    path = folder / name
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in tables.items():
            columns = list(rows[0]) if rows else list(TABLES[table].columns)
            listed = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
            marks = ", ".join("?" * len(columns))
            values = [tuple(row[column] for column in columns) for row in rows]
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)  # noqa: S608 - test data
        connection.commit()
    return path


def write_sqlite_gz(tables: Tables, folder: Path) -> Path:
    plain = write_sqlite(tables, folder)
    path = plain.with_name("report.sqlite.gz")
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


def _arrow(table: str, rows: list[Row]) -> pa.Table:
    """The table typed as nsys types it: ids are unsigned."""
    unsigned = {"globalPid", "globalTid", "endGlobalTid", "domainId", "streamId", "graphNodeId", "typeId"}
    kinds = {pl.Int64(): pa.int64(), pl.String(): pa.string(), pl.Binary(): pa.binary()}
    fields = []
    columns = []
    for name in rows[0] if rows else TABLES[table].columns:
        values = [row[name] for row in rows]
        kind = kinds[TABLES[table].schema[name]] if name in TABLES[table].columns else pa.int64()
        if name in unsigned:
            kind, values = pa.uint64(), [v if v is None else v % (1 << 64) for v in values]
        fields.append(pa.field(name, kind))
        columns.append(pa.array(values, kind))
    metadata = {"table_name": table, "table_desc": "what it is"}
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))


def write_parquet(tables: Tables, folder: Path) -> Path:
    path = folder / "report_pqtdir"
    path.mkdir()
    for table, rows in tables.items():
        pq.write_table(_arrow(table, rows), path / f"{table}.parquet")
    return path


def write_arrow(tables: Tables, folder: Path) -> Path:
    path = folder / "report_arwdir"
    path.mkdir()
    for table, rows in tables.items():
        data = _arrow(table, rows)
        with (
            pa.OSFile(str(path / f"{table}.arrow"), "wb") as file,
            pa.ipc.new_stream(file, data.schema) as out,
        ):
            out.write_table(data)
    return path


def write_arrows(tables: Tables, folder: Path) -> Path:
    path = folder / "report.arrows"
    with path.open("wb") as file:
        for table, rows in (tables | {"OSRT_API": []}).items():
            data = _arrow(table, rows) if table in TABLES else pa.table({"nested": [1, 2]})
            with pa.ipc.new_stream(file, data.schema) as out:
                out.write_table(data)
        file.write(b"\xff\xff\xff\xff\0\0\0\0")  # the end mark that some writers add
    return path


def write_json_lines(tables: Tables, folder: Path) -> Path:
    path = folder / "report.jsonl"
    lines = [
        json.dumps({name: value for name, value in row.items() if value is not None} | {"table": table})
        for table, rows in tables.items()
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


WRITERS: Mapping[str, Callable[[Tables, Path], Path]] = {
    "sqlite": write_sqlite,
    "sqlite_gz": write_sqlite_gz,
    "pqtdir": write_parquet,
    "arwdir": write_arrow,
    "arrows": write_arrows,
    "jsonlines": write_json_lines,
}


def parse_all(tables: Tables, folder: Path) -> list[Trace]:
    return PARSER.parse(Source(write_sqlite(tables, folder)))


def parse(tables: Tables, folder: Path) -> Trace:
    [trace] = parse_all(tables, folder)
    return trace


def texts(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


def codes(trace: Trace) -> set[str]:
    return set(trace.diagnostics["code"])


def everything_said(trace: Trace) -> str:
    """All text of a trace: tables, facts, diagnostics."""
    frames = [*trace.tables.values(), trace.diagnostics]
    return repr(trace.facts) + "".join(json.dumps(frame.to_dicts(), default=str) for frame in frames)


# --- export types -------------------------------------------------------------------------------------


def _rich() -> Tables:
    names = Strings()
    return report(
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(names, 100, 200),
            kernel(names, 150, 260, name="ncclDevKernel_SendRecv", streamId=20, correlationId=2, graphNodeId=5),
            kernel(names, 110, 220, pid=OTHER_PID, deviceId=1),
        ],
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            {"start": 300, "end": 330, "deviceId": 0, "streamId": 7, "correlationId": 3, "graphNodeId": None}
            | {"globalPid": global_id(), "bytes": 4096, "copyKind": 1, "srcKind": 1, "dstKind": 2}
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            launch(names, 50), launch(names, 60, correlationId=2),
            launch(names, 70, name="cudaMemcpyAsync_v3020", correlationId=3),
            launch(names, 55, globalTid=global_id(OTHER_PID, 9)),
        ],
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[
            {"start": 400, "end": 420, "deviceId": 0, "streamId": 4294967295, "correlationId": 4}
            | {"globalPid": global_id(), "syncType": 4}
        ],
        NVTX_EVENTS=[
            nvtx(40, 90, "iteration 3"), nvtx(45, 80, textId=names("ncclAllGather"), domainId=2),
            nvtx(55, 65, 'naïve "quoted" {name}\n'),
        ],
        StringIds=names.rows(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_every_export_type_of_one_report_gives_the_same_traces(tmp_path: Path, kind: str) -> None:
    (tmp_path / "reference").mkdir()
    expected = parse_all(_rich(), tmp_path / "reference")
    assert [len(trace.table("ops")) for trace in expected] == [3, 1]
    source = Source(WRITERS[kind](_rich(), tmp_path))
    found = parser_for(source, parsers()).parse(source)
    assert len(found) == len(expected)
    for trace, reference in zip(found, expected, strict=True):
        assert trace.facts.versions == reference.facts.versions
        assert trace.tables.keys() == reference.tables.keys()
        for name, table in reference.tables.items():
            assert_frame_equal(trace.table(name), table)


@pytest.mark.parametrize("kind", WRITERS)
def test_ids_with_their_highest_bit_set_still_meet(tmp_path: Path, kind: str) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, globalPid=global_id(hardware=200))],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50, globalTid=global_id(tid=9, hardware=200))],
        StringIds=names.rows(),
    )
    if kind == "jsonlines":  # written as the unsigned numbers they are
        for rows in tables.values():
            for row in rows:
                for column in row.keys() & {"globalPid", "globalTid"}:
                    row[column] %= 1 << 64
    [trace] = PARSER.parse(Source(WRITERS[kind](tables, tmp_path)))
    assert trace.facts.pid == PID
    assert trace.table("launches")["correlation"].to_list() == [1]


def test_a_database_is_read_without_a_trace_of_reading_and_with_its_log(tmp_path: Path) -> None:
    path = write_sqlite(report(), tmp_path)
    PARSER.parse(Source(path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 250")
        writer.commit()
        [trace] = PARSER.parse(Source(path))
    assert trace.table("ops")["dur_ns"].to_list() == [150]


def test_unpacked_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    PARSER.parse(Source(write_sqlite_gz(report(), tmp_path)))
    assert list(scratch.iterdir()) == []


# --- device work --------------------------------------------------------------------------------------


def test_a_kernel_keeps_its_full_name_grid_and_launch(tmp_path: Path) -> None:
    names = Strings()
    rows = [
        kernel(names, 100, 200, name="void f<int>(T1)", graphNodeId=12),
        kernel(names, 300, 300, demangledName=None, correlationId=0),
        kernel(names, 400, 410, demangledName=999, shortName=999, streamId=None, gridX=None),
    ]
    trace = parse(report(CUPTI_ACTIVITY_KIND_KERNEL=rows, StringIds=names.rows()), tmp_path)
    ops = trace.table("ops")
    assert texts(ops, "name") == ["void f<int>(T1)", "short", "(unnamed kernel)"]
    assert ops["ts_ns"].to_list() == [EPOCH + 100, EPOCH + 300, EPOCH + 400]
    assert ops["dur_ns"].to_list() == [100, 0, 10]
    assert ops["grid_blocks"].to_list() == [24, 24, None]
    assert ops["correlation"].to_list() == [1, None, 1]
    assert ops["graph_node_id"].to_list() == [12, None, None]
    assert ops["stream"].to_list() == [7, 7, None]


@pytest.mark.parametrize(
    ("copy_kind", "ends", "short", "name"),
    [
        (1, (1, 2), "HtoD", "Memcpy HtoD (Pinned -> Device)"),
        (2, (2, 0), "DtoH", "Memcpy DtoH (Device -> Pageable)"),
        (8, (2, 2), "DtoD", "Memcpy DtoD (Device -> Device)"),
        (10, (2, 2), "PtoP", "Memcpy PtoP (Device -> Device)"),
        (11, (4, 4), "HtoD", "Memcpy HtoD (Managed -> Managed)"),
        (1, (None, 2), "HtoD", "Memcpy HtoD"),
        (99, (1, 2), None, "Memcpy of unknown kind (Pinned -> Device)"),
    ],
)
def test_a_copy_says_from_where_to_where(
    tmp_path: Path, copy_kind: int, ends: tuple[int | None, int], short: str | None, name: str
) -> None:
    row = {"start": 1, "end": 9, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": global_id()}
    copy = row | {
        "bytes": 64,
        "copyKind": copy_kind,
        "srcKind": ends[0],
        "dstKind": ends[1],
        "graphNodeId": None,
    }
    ops = parse(report(CUPTI_ACTIVITY_KIND_MEMCPY=[copy]), tmp_path).table("ops")
    assert (texts(ops, "kind")[0], texts(ops, "copy_kind")[0], texts(ops, "name")[0]) == (
        "memcpy",
        short,
        name,
    )
    assert ops["bytes"].to_list() == [64, None]


def _graph(start: int, end: int) -> Row:
    return {"start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": 5, "graphId": 31} | {
        "globalPid": global_id()
    }


def test_a_graph_traced_as_a_whole_is_an_opaque_block_and_says_so(tmp_path: Path) -> None:
    trace = parse(report(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[_graph(300, 900), _graph(1000, 1400)]), tmp_path)
    assert texts(trace.table("ops"), "kind") == ["kernel", "graph", "graph"]
    assert texts(trace.table("ops"), "name")[1:] == ["CUDA graph 31"] * 2
    [text] = trace.diagnostics.filter(pl.col("code") == "nsys.graph_opaque")["text"]
    assert "2 graph replays (1.00 µs together)" in text
    assert "--cuda-graph-trace=node" in text


@pytest.mark.parametrize("key", ["CUDA_GRAPH_TRACE_OPTIONS:MODE", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"])
@pytest.mark.parametrize(("mode", "expected"), [("Graph", {"nsys.graph_unseen"}), ("Node", set())])
def test_replays_whose_work_is_missing_are_told_from_a_capture_by_nodes(
    tmp_path: Path, key: str, mode: str, expected: set[str]
) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50, name="cudaGraphLaunch_v10000", correlationId=8)],
        META_DATA_CAPTURE=[{"name": key, "value": mode}],
        StringIds=names.rows(),
    )
    assert codes(parse(tables, tmp_path)) == expected


def test_calls_are_kept_if_they_launch_or_wait_and_lose_only_the_version_of_the_runtime(
    tmp_path: Path,
) -> None:
    names = Strings()
    called = {
        "cudaLaunchKernel_v7000": 1, "cuLaunchKernelEx": 2, "cudaStreamSynchronize_v3020": 3, "cudaGraphLaunch_v10000": 4,
        "cuGetProcAddress_v2": 5, "cudaMalloc_v3020": 6, "cuMemcpyDtoD_v2": 0, "ncclStrange": 9,
    }  # fmt: skip
    calls = [launch(names, 10 * n, name=name, correlationId=n) for name, n in called.items()]
    rows = [kernel(names, 500, 600, correlationId=9)]
    tables = report(
        CUPTI_ACTIVITY_KIND_RUNTIME=calls, CUPTI_ACTIVITY_KIND_KERNEL=rows, StringIds=names.rows()
    )
    launches = parse(tables, tmp_path).table("launches")
    kept = dict(zip(texts(launches, "name"), launches["correlation"].to_list(), strict=True))
    assert kept == {
        "cudaLaunchKernel": 1, "cuLaunchKernelEx": 2, "cudaStreamSynchronize": 3, "cudaGraphLaunch": 4,
        "cuMemcpyDtoD_v2": None, "ncclStrange": 9,
    }  # fmt: skip
    assert set(launches["pid"]) == {PID}
    assert set(launches["tid"]) == {9}


@pytest.mark.parametrize(
    ("sync_type", "stream", "expected"),
    [(1, 4294967295, ("Event Sync", None)), (2, 7, ("Stream Wait Event", 7)), (3, 7, ("Stream Sync", 7)),
     (4, 4294967295, ("Context Sync", None)), (77, 7, ("Sync", 7))],
)  # fmt: skip
def test_waits_are_no_device_work(
    tmp_path: Path, sync_type: int, stream: int, expected: tuple[str, int | None]
) -> None:
    row = {
        "start": 5,
        "end": 6,
        "deviceId": 0,
        "streamId": stream,
        "correlationId": 2,
        "globalPid": global_id(),
    }
    trace = parse(report(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[row | {"syncType": sync_type}]), tmp_path)
    syncs = trace.table("syncs")
    assert (texts(syncs, "name")[0], syncs["stream"][0]) == expected
    assert len(trace.table("ops")) == 1


# --- processes ----------------------------------------------------------------------------------------


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


COMM_INIT, ALL_GATHER, SEND, RECV = (16_777_216 + n for n in (0, 4, 9, 10))
_COMM, _RANKS, _RANK = "NCCL communicator ID", "No. of ranks", "Rank"
SCHEMAS = {
    COMM_INIT: [(_COMM, 18, None), (_RANKS, 5, 8), (_RANK, 5, 12), ("CUDA device", 5, 16)],
    ALL_GATHER: [(_COMM, 18, None), ("Message size [bytes]", 22, 8)],
    SEND: [(_COMM, 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)],
    RECV: [(_COMM, 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)],
}
ENTRIES = [
    {"domainId": 1, "schemaId": schema, "type": kind, "name": name, "offset": offset}
    for schema, fields in SCHEMAS.items()
    for name, kind, offset in fields
] * 2  # once per process
COMM_ID = 0xF123_4567_89AB_CDEF


def payload(schema: int, *values: int) -> bytes:
    layout = {5: "i", 18: "Q", 22: "Q"}
    body = struct.pack("<" + "".join(layout[kind] for _, kind, _ in SCHEMAS[schema]), *values)
    return struct.pack("<4Q", 1, schema, len(body), 32) + body


def nccl(start: int, end: int, name: str, schema: int | None = None, *values: int) -> Row:
    blob = None if schema is None else payload(schema, *values)
    return nvtx(start, end, name, domainId=1, binaryData=blob)


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


# --- clock --------------------------------------------------------------------------------------------


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


# --- ranges -------------------------------------------------------------------------------------------


def test_ranges_of_all_kinds_and_nothing_else_become_ranges(tmp_path: Path) -> None:
    names = Strings()
    names("unused")
    rows = [
        nvtx(-50, 10, "opened before"),
        nvtx(20, 30, textId=names("registered"), domainId=5),
        nvtx(20, None, "MyDomain", eventType=75, domainId=5),
        nvtx(31, 39, "no create row", domainId=6),
        nvtx(40, None, "left open"),
        nvtx(41, 45, "start/end", eventType=60, endGlobalTid=global_id(tid=9)),
        nvtx(42, 46, "start/end across", eventType=60, endGlobalTid=global_id(tid=10)),
        nvtx(43, 47, "imported", eventType=70),
        nvtx(44, 48, "imported start/end", eventType=71),
        nvtx(1, None, "mark", eventType=34),
        nvtx(2, None, "category", eventType=33),
        nvtx(3, None, "thread name", eventType=39),
        nvtx(60, 70, textId=4711),
    ]
    trace = parse(report(NVTX_EVENTS=rows, StringIds=names.rows()), tmp_path)
    found = {
        name: row
        for name, *row in trace.table("ranges")
        .with_columns(pl.col("ts_ns") - EPOCH)
        .select(pl.col("raw_name", "domain").cast(pl.String), "tid", "ts_ns", "dur_ns")
        .rows()
    }
    assert found == {
        "opened before": ["default", 9, -50, 60],
        "registered": ["MyDomain", 9, 20, 10],
        "no create row": ["domain6", 9, 31, 8],
        "left open": ["default", 9, 40, 160],  # the last stamp of the report is 200
        "start/end": ["default", 9, 41, 4],
        "start/end across": ["default", None, 42, 4],
        "imported": ["default", 9, 43, 4],
        "imported start/end": ["default", 9, 44, 4],
        "": ["default", 9, 60, 10],
    }
    assert dict(trace.diagnostics.select("code", "count").rows())["nsys.range_open"] == 1


def test_emit_nvtx_loses_its_running_numbers_and_most_operators(tmp_path: Path) -> None:
    rows = [
        nvtx(1, 2, "aten::add, op_id = 17"),
        nvtx(
            3, 4, "aten::_grouped_mm, seq = 4, op_id = 18, sizes = [[8, 16], [2, 16, 4]], input_op_ids = [3]"
        ),
        nvtx(5, 6, "aten::_grouped_mm, op_id = 19"),
        nvtx(7, 8, "nccl:all_to_all, op_id = 20"),
        nvtx(9, 10, "AddmmBackward0, seq = 7, op_id = 21"),
    ]
    trace = parse(report(NVTX_EVENTS=rows), tmp_path)
    assert texts(trace.table("ranges"), "raw_name") == ["nccl:all_to_all", "AddmmBackward0"]
    host = trace.table("host_ops")
    assert texts(host, "name") == ["aten::_grouped_mm"] * 2
    assert host["shapes"].to_list() == ["[[8, 16], [2, 16, 4]]", None]


def test_work_is_attributed_through_ranges_of_its_launching_thread(tmp_path: Path) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, name="ncclDevKernel_SendRecv")],
        NVTX_EVENTS=[
            nvtx(30, 90, "iteration 3"), nvtx(40, 80, "moe_dispatch forward"),
            nvtx(45, 60, "nccl:all_to_all"), nvtx(48, 56, "ncclGroupEnd", domainId=1), nvtx(49, 55, "backward", tid=10),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50)],
        StringIds=names.rows(),
    )  # fmt: skip
    trace = prepare(parse(tables, tmp_path), Classifier.default())
    [op] = trace.table("ops").to_dicts()
    assert (op["step"], op["phase"]) == (3, "forward")
    [exchange] = trace.table("collectives").to_dicts()
    assert (exchange["collective"], exchange["resolved_by"], exchange["role"]) == (
        "all_to_all",
        "annotation",
        "dispatch",
    )


# --- NCCL payloads ------------------------------------------------------------------------------------


def _exchange(tmp_path: Path, ranges: list[Row], ranks: int = 4) -> list[Row]:
    """`COMM_CALLS` of one NCCL kernel that was launched at 50, within ``ranges``."""
    names = Strings()
    created = nccl(0, 9, "ncclCommInitRank", COMM_INIT, COMM_ID, ranks, 1, 0)
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, name="ncclDevKernel_X")],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50)],
        NVTX_EVENTS=[created, *ranges],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=ENTRIES,
        StringIds=names.rows(),
    )
    return parse(tables, tmp_path).table("comm_calls").to_dicts()


def test_a_call_tells_its_bytes_and_its_communicator(tmp_path: Path) -> None:
    [call] = _exchange(tmp_path, [nccl(45, 60, "ncclAllGather", ALL_GATHER, COMM_ID, 1000)])
    assert call["collective_name"] == "AllGather"
    assert (call["in_elements"], call["out_elements"], call["dtype"]) == (1000, 4000, "byte")
    assert (call["group_size"], call["comm_id"]) == (4, str(COMM_ID))
    assert call["source"] == "host_op"


def _group(sends: list[tuple[int, int]], receives: list[tuple[int, int]]) -> list[Row]:
    """A group of sends and receives of (peer, bytes); its end is where the kernel is launched."""
    before = [nccl(20, 21, "ncclGroupStart")]
    inside = [
        nccl(22 + n, 23 + n, "ncclSend", SEND, COMM_ID, size, peer) for n, (peer, size) in enumerate(sends)
    ]
    inside += [nccl(35, 36, "ncclRecv", RECV, COMM_ID, size, peer) for peer, size in receives]
    return [*before, *inside, nccl(48, 56, "ncclGroupEnd")]


@pytest.mark.parametrize(
    ("ranks", "peers", "name"),
    [(4, range(4), "all_to_all"), (4, [0, 2, 3], "all_to_all"), (2, [0, 1], "all_to_all"), (2, [0], None),
     (4, [2], None)],
)  # fmt: skip
def test_a_group_of_sends_is_an_all_to_all_if_it_reaches_everyone(
    tmp_path: Path, ranks: int, peers: list[int], name: str | None
) -> None:
    sends = [(peer, 100 + peer) for peer in peers]
    [call] = _exchange(tmp_path, _group(sends, [(peer, 7) for peer in peers]), ranks)
    assert call["collective_name"] == name
    assert call["in_elements"] == sum(size for _, size in sends)
    assert call["out_elements"] == 7 * len(sends)


def test_a_report_that_begins_inside_of_a_group_still_tells_the_next_ones_apart(tmp_path: Path) -> None:
    cut = [nccl(10, 11, "ncclSend", SEND, COMM_ID, 1, 2), nccl(12, 14, "ncclGroupEnd")]
    nested = [nccl(21, 22, "ncclGroupStart"), nccl(40, 41, "ncclGroupEnd")]
    whole = sorted([*_group([(peer, 10) for peer in range(4)], []), *nested], key=lambda row: row["start"])
    [call] = _exchange(tmp_path, [*cut, *whole])
    assert (call["collective_name"], call["in_elements"]) == ("all_to_all", 40)


def test_a_group_of_several_kinds_or_an_empty_payload_tells_nothing(tmp_path: Path) -> None:
    mixed = _group([(0, 5)], [])
    mixed.insert(1, nccl(21, 22, "ncclAllGather", ALL_GATHER, COMM_ID, 1000))
    assert _exchange(tmp_path, mixed) == []
    (tmp_path / "bare").mkdir()
    assert _exchange(tmp_path / "bare", [nccl(45, 60, "ncclAllGather")]) == []
    (tmp_path / "cut").mkdir()
    short = nccl(45, 60, "ncclAllGather", ALL_GATHER, COMM_ID, 1000)
    assert _exchange(tmp_path / "cut", [short | {"binaryData": short["binaryData"][:41]}]) == []


# --- counters and messages ----------------------------------------------------------------------------


def test_gpu_metrics_of_the_devices_in_use_are_counters(tmp_path: Path) -> None:
    metrics = {1: "SMs Active [Throughput %]", 2: "GPC Clock Frequency [MHz]", 3: "Plain"}
    kinds = {0x0001_0000_0003: 3, 0x0001_0000_0005: 5}  # GPU 3 is the device in use
    described = [
        {"typeId": kind, "metricId": n, "metricName": name} for kind in kinds for n, name in metrics.items()
    ]
    samples = [
        {"timestamp": 100 + n, "typeId": kind, "metricId": n, "value": 10 * n}
        for kind in kinds
        for n in metrics
    ]
    trace = parse(report(GPU_METRICS=samples, TARGET_INFO_GPU_METRICS=described), tmp_path)
    counters = trace.table("counters").with_columns(
        pl.col("ts_ns") - EPOCH, pl.col("metric", "unit").cast(pl.String)
    )
    assert counters.select("device", "ts_ns", "metric", "unit", "value").rows() == [
        (0, 101, "SMs Active", "%", 10.0),
        (0, 102, "GPC Clock Frequency", "MHz", 20.0),
        (0, 103, "Plain", "as recorded", 30.0),
    ]
    assert "nsys.device_assumed" in codes(trace)


def test_what_nsys_complained_about_is_passed_on_without_paths(tmp_path: Path) -> None:
    events = [
        {"severity": 1, "text": "Profiling has started."},
        {"severity": 2, "text": f"Dropped 12 events, see /home/ana/{PRIVATE}.log TOKEN={PRIVATE}"},
        {"severity": 3, "text": "Not all data was collected."},
    ] * 2
    trace = parse(report(DIAGNOSTIC_EVENT=events), tmp_path)
    said = (
        trace.diagnostics.filter(pl.col("code") == "nsys.recording")
        .select("severity", "text", "count")
        .rows()
    )
    assert said == [
        ("warning", "nsys said: Dropped 12 events, see … …", 2),
        ("error", "nsys said: Not all data was collected.", 2),
    ]


# --- what may be missing, broken or hostile -----------------------------------------------------------


@pytest.mark.parametrize("absent", TABLES)
def test_a_report_without_one_of_its_tables_is_still_answered(tmp_path: Path, absent: str) -> None:
    tables = _rich()
    tables.pop(absent, None)
    path = write_sqlite(tables, tmp_path)
    run = tv.load(path)
    assert ("nsys.table_absent" in set(run.diagnostics["code"])) is (absent in WORK_TABLES)
    busy = tv.breakdown(run, steps="all").frame["compute_ns"].sum()
    # two overlapping kernels on rank 0, of which one is communication where its name is known
    expected = {"CUPTI_ACTIVITY_KIND_KERNEL": 0, "StringIds": 160 + 110}.get(absent, 100 + 110)
    assert busy == expected
    tv.all_to_all(run)


@pytest.mark.parametrize("absent", TABLES)
def test_an_empty_table_is_no_absent_one(tmp_path: Path, absent: str) -> None:
    trace = parse_all(_rich() | {absent: []}, tmp_path)[0]
    assert "nsys.table_absent" not in codes(trace)
    assert ("counters" in trace.tables) is (absent == "GPU_METRICS")


def test_columns_of_other_versions_may_be_absent_unless_the_table_is_useless_without(tmp_path: Path) -> None:
    for table, spec in TABLES.items():
        for column, wanted in spec.columns.items():
            tables = _rich()
            if table not in tables or column not in tables[table][0]:
                continue
            for row in tables[table]:
                del row[column]
                row["another"] = 1
            path = write_sqlite(tables, tmp_path, f"{table}.{column}.sqlite")
            if wanted.required:
                with pytest.raises(ParseError, match=f"table {table}.*lacks the column {column}"):
                    PARSER.parse(Source(path))
            else:
                assert PARSER.parse(Source(path))


def test_exports_of_2022_name_their_metadata_table_otherwise(tmp_path: Path) -> None:
    tables = report()
    tables["EXPORT_META_DATA"] = tables.pop("META_DATA_EXPORT")
    trace = parse(tables, tmp_path)
    assert trace.facts.versions["nsys_schema_version"] == "3.25.0"


_VALUES = st.one_of(
    st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)


@settings(max_examples=25)
@given(data=st.data())
def test_values_of_any_type_in_any_column_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tables = _rich()
    for rows in tables.values():
        row = data.draw(st.sampled_from(rows))
        column = data.draw(st.sampled_from(sorted(row)))
        row[column] = data.draw(_VALUES)
    path = write_sqlite(tables, tmp_path_factory.mktemp("any"))
    try:
        found = PARSER.parse(Source(path))
    except tv.TraceViewError as error:
        assert "nsys" in str(error).lower() or "table" in str(error)  # noqa: PT017 - any of two errors will do
        return
    for trace in found:
        assert (trace.table("ops")["dur_ns"] >= 0).all()
        prepare(trace, Classifier.default())


@pytest.mark.parametrize(
    "name", ["\x00tail", "a\x00b", "\x1b[31mred\x1b[0m", "<script>", "x" * 10_000, "", "\udc80", "%s{}"]
)
def test_hostile_names_pass_bounded_and_end_at_a_nul(tmp_path: Path, name: str) -> None:
    names = Strings()
    rows = [kernel(names, 100, 200, name="KERNEL")]
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=rows, NVTX_EVENTS=[nvtx(0, 9, name.encode("utf-8", "replace").decode())]
    )
    tables["StringIds"] = [
        row | {"value": name.encode("utf-8", "replace").decode()} if row["value"] == "KERNEL" else row
        for row in names.rows()
    ]
    trace = parse(tables, tmp_path)
    expected = name.encode("utf-8", "replace").decode().split("\0")[0][:4096]
    assert texts(trace.table("ops"), "name") == [expected]
    assert texts(trace.table("ranges"), "raw_name") == [expected]


def test_text_that_is_no_unicode_is_replaced(tmp_path: Path) -> None:
    path = write_sqlite(report(), tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'67ff' AS TEXT) WHERE value = 'gemm'")
        connection.commit()
    [trace] = PARSER.parse(Source(path))
    assert texts(trace.table("ops"), "name") == ["g\ufffd"]


@pytest.mark.parametrize("kind", WRITERS)
def test_secrets_of_the_job_reach_no_table_and_no_message(tmp_path: Path, kind: str) -> None:
    tables = _rich()
    tables["StringIds"] += [
        {"id": 900, "value": f"PATH=/bin\0HF_TOKEN={PRIVATE}"},
        {"id": 901, "value": PRIVATE},
    ]
    tables["TARGET_INFO_SYSTEM_ENV"] += [
        {"name": "DeviceEnvironment", "value": f"TOKEN={PRIVATE}"}, {"name": "Hostname2", "value": PRIVATE},
    ]  # fmt: skip
    tables["META_DATA_CAPTURE"] = [
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE_3", "value": f"HF_TOKEN={PRIVATE}"},
        {"name": "PROCESS_0:ARGUMENT_1", "value": f"--token={PRIVATE}"},
        {"name": "CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Graph"},
    ]
    tables["META_DATA_EXPORT"] += [{"name": "EXPORT_PARAM_INPUT_PATH", "value": f"/home/{PRIVATE}"}]
    for trace in PARSER.parse(Source(WRITERS[kind](tables, tmp_path))):
        assert PRIVATE not in everything_said(trace)
        assert PRIVATE not in everything_said(prepare(trace, Classifier.default()))


def test_errors_quote_no_value(tmp_path: Path) -> None:
    tables = report()
    for row in tables["TARGET_INFO_SYSTEM_ENV"]:
        row["secret"] = PRIVATE
        del row["value"]
    with pytest.raises(ParseError) as refused:
        parse(tables, tmp_path)
    assert PRIVATE not in str(refused.value)


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=8)
def test_row_order_says_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("shuffled")
    expected = parse_all(_rich(), folder)
    shuffled = _rich()
    for rows in shuffled.values():
        random.Random(seed).shuffle(rows)
    found = PARSER.parse(Source(write_sqlite(shuffled, folder, "again.sqlite")))
    for trace, reference in zip(found, expected, strict=True):
        for name, table in reference.tables.items():
            assert_frame_equal(trace.table(name), table)


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (b"2024@6@2@25-24623492458v0.\n", "Nsight Systems 2024.6.2"),
        (b"1.\n\x0bLocal", "Nsight Systems 2021 to 2023"),
    ],
)
def test_a_closed_report_is_refused_with_its_version_and_the_command_that_exports_it(
    tmp_path: Path, version: bytes, says: str
) -> None:
    path = tmp_path / "my run.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report " + version)
    with pytest.raises(UnknownFormatError, match=says) as refused:
        tv.load(path)
    exported = tmp_path / "my run.sqlite"
    assert f"nsys export --type sqlite --output '{exported}' '{path}'" in str(refused.value)


def test_other_databases_and_reports_of_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE users (name)")
        connection.commit()
    with pytest.raises(UnknownFormatError, match="without any table of an Nsight Systems export"):
        tv.load(path)
    nothing = report()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
        del nothing[table]
    with pytest.raises(UnknownFormatError, match="--trace=cuda,nvtx"):
        tv.load(write_sqlite(nothing, tmp_path))


def test_one_table_of_a_directory_is_refused_in_favour_of_the_directory(tmp_path: Path) -> None:
    folder = write_parquet(report(), tmp_path)
    with pytest.raises(UnknownFormatError, match="pass its directory"):
        tv.load(folder / "StringIds.parquet")
    assert len(tv.load(folder).ops.collect()) == 1


@pytest.mark.parametrize("kind", ["sqlite_gz", "arrows", "jsonlines"])
def test_compressed_files_that_end_early_are_damaged(tmp_path: Path, kind: str) -> None:
    whole = WRITERS[kind](report(), tmp_path).read_bytes()
    packed = whole if kind == "sqlite_gz" else gzip.compress(whole)
    path = tmp_path / "cut.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    source = Source(path)
    with pytest.raises(ParseError, match="ends early"):
        parser_for(source, parsers()).parse(source)


def test_damaged_tables_are_errors_that_name_the_file(tmp_path: Path) -> None:
    names = Strings()
    many = [kernel(names, n, n + 5) for n in range(2000)]
    path = write_sqlite(report(CUPTI_ACTIVITY_KIND_KERNEL=many, StringIds=names.rows()), tmp_path)
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(tv.TraceViewError, match=r"report\.sqlite"):
        PARSER.parse(Source(path))
    for writer, name in ((write_parquet, "StringIds.parquet"), (write_arrow, "StringIds.arrow")):
        folder = writer(report(), tmp_path)
        (folder / name).write_bytes(b"PAR1 garbage")
        with pytest.raises(ParseError, match="table StringIds"):
            PARSER.parse(Source(folder))


def test_json_lines_beside_the_rows_are_passed_over(tmp_path: Path) -> None:
    path = write_json_lines(report(), tmp_path)
    row = nvtx(1, 2, '"table":"StringIds"') | {"table": "NVTX_EVENTS", "nested": {"a": [1]}}
    path.write_text(f'{path.read_text()}{json.dumps(row)}\n{{"table":"OSRT_API"\nnot json\n[]\n\n')
    [trace] = PARSER.parse(Source(path))
    assert texts(trace.table("ranges"), "raw_name") == ['"table":"StringIds"', "iteration 3"]
    path.write_text(path.read_text() + '{"table":"NVTX_EVENTS", "start":')
    with pytest.raises(ParseError, match=r"table NVTX_EVENTS.*no JSON"):
        PARSER.parse(Source(path))


# --- projections --------------------------------------------------------------------------------------


def _projection(layout: str) -> pl.DataFrame:
    scope = "jit(step)/transpose(jvp(model))/layers_3/moe/dispatch/mul"
    texts_ = [
        "XlaModule:#hlo_module=jit_step#",
        f"Thunk:#name={scope},hlo_op=fusion.7#",
        "Thunk:#hlo_op=all-gather-start.2#",
        "ncclGroupEnd",
    ]
    domains = ["TSL", "TSL", "TSL", "NCCL"]
    frame = pl.DataFrame(
        {
            "start": [100, 100, 150, 150, 7], "duration": [90, 30, 40, 40, 500],
            "host_start": [10.0, 11.0, 21.0, 22.0, None], "host_duration": [40.0, 5.0, 9.0, 2.0, None],
            "PID": [5] * 5, "TID": [6] * 5, "ops": [2, 1, 1, 1, 9],
            "id": [1.0, 2.0, 3.0, 4.0, None], "parent": [None, 1.0, 1.0, 3.0, None],
        }
    )  # fmt: skip
    joined = pl.Series([f"{d}:{t}" for d, t in zip(domains, texts_, strict=True)] + [None])
    if layout == "2024.4":
        spelled = {"start": "Projected Start", "duration": "Projected Duration", "host_start": "Orig Start",
                   "host_duration": "Orig Duration", "ops": "NumGPUOps", "id": "RangeId", "parent": "ParentId"}  # fmt: skip
        return frame.rename(spelled).with_columns(Name=joined)
    frame = frame.with_columns(end=pl.col("start") + pl.col("duration")).drop("duration").rename(
        {"start": "Projected Start", "end": "Projected End", "host_start": "Orig Start", "host_duration": "Orig Duration",
         "ops": "GPU Ops", "id": "Range ID", "parent": "Parent ID"}
    )  # fmt: skip
    if layout == "2024.5":
        return frame.with_columns(Text=joined)
    return frame.with_columns(Text=pl.Series([*texts_, None]), Domain=pl.Series([*domains, None]))


@pytest.mark.parametrize("layout", ["2024.4", "2024.5", "2026.1"])
def test_the_innermost_ranges_of_a_projection_stand_for_its_device_work(tmp_path: Path, layout: str) -> None:
    _projection(layout).write_parquet(tmp_path / "trace.parquet")
    [parsed] = PARSER.parse(Source(tmp_path / "trace.parquet"))
    trace = prepare(parsed, Classifier.default())
    ops = trace.table("ops")
    assert texts(ops, "name") == ["fusion.7", "all-gather-start.2"]
    assert ops.select("ts_ns", "dur_ns", "launch_ts_ns").rows() == [(100, 30, 11), (150, 40, 21)]
    assert texts(ops, "phase")[0] == "backward"
    assert ops["layer"].to_list() == [3, None]
    assert texts(trace.table("collectives"), "collective") == ["all_gather"]
    counts = dict(trace.diagnostics.select("code", "count").rows())
    assert counts["nsys.projection_outside"] == 9
