"""Nsight Systems reports built by hand, and what writes them as each type of export."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from traceview.parsers._nsys_columns import TABLES
from traceview.parsers.nsys import PARSER
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


def mpi(names: Strings, start: int, end: int, name: str, **more: Any) -> Row:
    return {"start": start, "end": end, "globalTid": global_id(tid=9), "textId": names(name)} | more


def memory(start: int, size: int, *, address: int = 1, freed: bool = False, **more: Any) -> Row:
    return {
        "start": start, "globalPid": global_id(), "deviceId": 0, "address": address, "bytes": size, "memKind": 2,
        "memoryOperationType": int(freed),
    } | more  # fmt: skip


def network(start: int, end: int, value: int, *, nic: int = 5, **more: Any) -> Row:
    return {
        "start": start, "end": end, "globalId": nic, "metricsListId": 1, "metricsIdx": 0, "value": value, "portId": None,
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


def rich() -> Tables:
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
        NVTX_EVENTS_PAYLOAD_SCHEMAS=[{"eventId": 1}],
        MPI_RANKS=[{"globalTid": global_id(tid=9), "rank": 0}, {"globalTid": global_id(OTHER_PID, 9), "rank": 1}],
        MPI_P2P_EVENTS=[mpi(names, 10, 12, "MPI_Isend")],
        MPI_COLLECTIVES_EVENTS=[mpi(names, 13, 19, "MPI_Barrier")],
        MPI_START_WAIT_EVENTS=[mpi(names, 20, 21, "MPI_Wait")],
        MPI_OTHER_EVENTS=[mpi(names, 1, 3, "MPI_Init")],
        PROFILER_OVERHEAD=[{"start": 120, "end": 130, "globalTid": global_id(tid=11)}],
        CUDA_GPU_MEMORY_USAGE_EVENTS=[memory(20, 512, address=1), memory(500, 512, address=1, freed=True)],
        NET_NIC_METRIC=[network(100, 200, 900, nic=5)],
        NET_IB_SWITCH_METRIC=[network(100, 200, 901, nic=6)],
        NET_ETH_SWITCH_METRIC=[network(100, 200, 902, nic=7)],
        TARGET_INFO_NETWORK_METRICS=[
            {"metricsListId": 1, "metricsIdx": 0, "name": "IB: Bytes sent", "unit": "bytes"}
        ],
        NIC_ID_MAP=[{"nicId": 2, "globalId": 5}],
        TARGET_INFO_NIC_INFO=[{"nicId": 2, "name": "mlx5_0", "globalId": None}],
        StringIds=names.rows(),
    )  # fmt: skip


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
