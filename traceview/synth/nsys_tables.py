"""Tables of an Nsight Systems export: their columns, and the types these have in each kind of export.

Source: names and types of the columns as nsys exports them (schema 3.7 as Parquet and Arrow, 3.25 as SQLite),
less those that say nothing about when and what a process ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

Row = dict[str, int | str | bytes | None]
Tables = dict[str, list[Row]]
"""Rows by table; columns that a row lacks are null in it, and tables without rows are left out."""

Kind = Literal["int32", "int64", "uint32", "uint64", "text", "blob"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``kind`` is its type as Arrow exports have it, and ``required`` forbids null."""

    name: str
    kind: Kind
    required: bool


def _columns(listed: str) -> tuple[Column, ...]:
    """Columns from their names and kinds, an exclamation mark behind those that are never null."""
    pairs = (column.split(":") for column in listed.split())
    return tuple(
        Column(name, cast("Kind", kind.removesuffix("!")), kind.endswith("!")) for name, kind in pairs
    )


_PLACE = "start:int64! end:int64! deviceId:uint32! contextId:uint64! streamId:uint64! correlationId:uint32 "
_WORK = _PLACE + "globalPid:uint64 graphNodeId:uint64 "

COLUMNS: dict[str, tuple[Column, ...]] = {
    table: _columns(listed)
    for table, listed in {
        "StringIds": "id:int32! value:text!",
        "CUPTI_ACTIVITY_KIND_KERNEL": _WORK
        + "demangledName:uint64! shortName:uint64! mangledName:uint64 registersPerThread:uint32! "
        "dynamicSharedMemory:int32! gridX:int32! gridY:int32! gridZ:int32! blockX:int32! blockY:int32! "
        "blockZ:int32!",
        "CUPTI_ACTIVITY_KIND_MEMCPY": _WORK + "bytes:uint64! copyKind:uint64! srcKind:uint32 dstKind:uint32",
        "CUPTI_ACTIVITY_KIND_MEMSET": _WORK + "value:uint32! bytes:uint64! memKind:uint32",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _PLACE + "globalPid:uint64 graphId:uint64! graphExecId:uint64!",
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start:int64! end:int64! eventClass:uint32! globalTid:uint64 correlationId:uint32 nameId:uint64! "
            "returnValue:uint32!"
        ),
        "NVTX_EVENTS": (
            "start:int64! end:int64 eventType:uint32! text:text globalTid:uint64 endGlobalTid:uint64 "
            "textId:uint32 domainId:uint64 binaryData:blob"
        ),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
            "domainId:uint64! schemaId:uint64! idx:uint32! type:uint64 name:text offset:uint64"
        ),
        "GPU_METRICS": "rawTimestamp:int64 timestamp:int64 typeId:uint64! metricId:uint32! value:int64!",
        "TARGET_INFO_GPU_METRICS": (
            "typeId:uint64! sourceId:uint64! typeName:text! metricId:uint32! metricName:text!"
        ),
        "TARGET_INFO_GPU": (
            "vmId:int64! id:uint32! name:text totalMemory:uint64 smCount:uint32 cuDevice:int32 "
            "computeMajor:uint32 computeMinor:uint32"
        ),
        "TARGET_INFO_CUDA_DEVICE": "gpuId:uint32! cudaId:uint32! pid:uint32! numMultiprocessors:uint32",
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs:uint64",
        "TARGET_INFO_SYSTEM_ENV": "globalVid:uint64 name:text! value:text!",
        "META_DATA_CAPTURE": "name:text! value:text",
        "META_DATA_EXPORT": "name:text! value:text",
    }.items()
}
"""Columns by table, in order."""


def values(table: str, rows: list[Row]) -> dict[str, list[int | str | bytes | None]]:
    """The rows of a table as columns, all of its columns among them."""
    return {column.name: [row.get(column.name) for row in rows] for column in COLUMNS[table]}
