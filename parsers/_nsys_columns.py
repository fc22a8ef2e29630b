"""The tables and columns of Nsight Systems exports that traceview reads, and nothing else.

Exports differ by version: columns come and go, tables are renamed, and a table nobody filled is mostly left
out. So each column says whether its table is useless without it. What is not listed here is not read; in
particular nothing that holds a job's environment, its command line or its output.

Source: exports written by nsys 2022.4 to 2026.2 (schema 3.0 to 3.25), and the schema reference in NVIDIA's
user guide. No public report has rows of networks, MPI or device memory: those tables are read as documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT, _TEXT, _REAL, _BLOB = pl.Int64(), pl.String(), pl.Float64(), pl.Binary()


@dataclass(frozen=True, slots=True)
class Wanted:
    """One column: the type it is read as, and whether its table is useless without it.

    Unsigned 64-bit ids are read as the signed number of the same bits, which is how SQLite stores them.
    """

    dtype: pl.DataType
    required: bool = False


@dataclass(frozen=True, slots=True)
class ExportTable:
    """One table of an export: its wanted columns, and names it had in other versions."""

    columns: Mapping[str, Wanted]
    aliases: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Types of the columns."""
        return {name: column.dtype for name, column in self.columns.items()}

    def empty(self) -> pl.DataFrame:
        """The table without any row."""
        return pl.DataFrame(schema=self.schema)


def _table(*, needs: str, **optional: pl.DataType | Wanted) -> ExportTable:
    """A table with the required integer columns ``needs`` (separated by blanks) and further ones."""
    required = {name: Wanted(_INT, required=True) for name in needs.split()}
    others = {
        name: column if isinstance(column, Wanted) else Wanted(column) for name, column in optional.items()
    }
    return ExportTable(required | others)


def _optional(names: str) -> dict[str, pl.DataType]:
    return dict.fromkeys(names.split(), _INT)


_DEVICE_WORK = "start end deviceId globalPid"
_NAMED = {"name": Wanted(_TEXT, required=True), "value": Wanted(_TEXT, required=True)}

_MPI_CALLS = _table(needs="start end globalTid", textId=_INT)
_NETWORK = _table(needs="start end globalId metricsListId metricsIdx value", portId=_INT)

TABLES: Mapping[str, ExportTable] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": _table(
        needs=_DEVICE_WORK,
        **_optional(
            "streamId correlationId demangledName shortName mangledName gridX gridY gridZ graphNodeId"
        ),
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _table(
        needs=_DEVICE_WORK,
        **_optional("streamId correlationId bytes copyKind srcKind dstKind graphNodeId"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": _table(
        needs=_DEVICE_WORK, **_optional("streamId correlationId bytes memKind graphNodeId")
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _table(
        needs=_DEVICE_WORK, **_optional("streamId correlationId graphId")
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _table(
        needs="start end globalPid", **_optional("deviceId streamId correlationId syncType")
    ),
    "PROFILER_OVERHEAD": _table(needs="start end globalTid", **_optional("nameId")),
    "CUPTI_ACTIVITY_KIND_RUNTIME": _table(needs="start end globalTid nameId", **_optional("correlationId")),
    "NVTX_EVENTS": _table(
        needs="start eventType globalTid",
        text=_TEXT,
        binaryData=_BLOB,
        **_optional("end textId endGlobalTid domainId"),
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": _table(
        needs="domainId schemaId type", name=Wanted(_TEXT, required=True), **_optional("offset")
    ),
    "StringIds": _table(needs="id", value=Wanted(_TEXT, required=True)),
    "NVTX_EVENTS_PAYLOAD_SCHEMAS": _table(needs="", eventId=_INT),
    "MPI_RANKS": _table(needs="globalTid rank"),
    "MPI_P2P_EVENTS": _MPI_CALLS,
    "MPI_COLLECTIVES_EVENTS": _MPI_CALLS,
    "MPI_START_WAIT_EVENTS": _MPI_CALLS,
    "MPI_OTHER_EVENTS": _MPI_CALLS,
    "CUDA_GPU_MEMORY_USAGE_EVENTS": _table(
        needs="start globalPid bytes memoryOperationType", **_optional("deviceId address memKind")
    ),
    "NET_NIC_METRIC": _NETWORK,
    "NET_IB_SWITCH_METRIC": _NETWORK,
    "NET_ETH_SWITCH_METRIC": _NETWORK,
    "TARGET_INFO_NETWORK_METRICS": _table(
        needs="metricsListId metricsIdx", name=Wanted(_TEXT, required=True), unit=_TEXT
    ),
    "NIC_ID_MAP": _table(needs="nicId globalId"),
    "TARGET_INFO_NIC_INFO": _table(
        needs="", name=Wanted(_TEXT, required=True), **_optional("nicId globalId")
    ),
    "GPU_METRICS": _table(needs="timestamp typeId metricId value"),
    "TARGET_INFO_GPU_METRICS": _table(needs="typeId metricId", metricName=Wanted(_TEXT, required=True)),
    "TARGET_INFO_GPU": _table(
        needs="id", name=_TEXT, **_optional("totalMemory smCount cuDevice computeMajor computeMinor")
    ),
    "TARGET_INFO_CUDA_DEVICE": _table(needs="cudaId pid", **_optional("gpuId numMultiprocessors")),
    "TARGET_INFO_NVTX_CUDA_DEVICE": _table(needs="deviceId", name=Wanted(_TEXT, required=True)),
    "TARGET_INFO_SESSION_START_TIME": _table(needs="utcEpochNs"),
    "TARGET_INFO_SYSTEM_ENV": ExportTable(_NAMED),
    "META_DATA_EXPORT": ExportTable(_NAMED, aliases=("EXPORT_META_DATA",)),
    "META_DATA_CAPTURE": ExportTable(_NAMED),
    "DIAGNOSTIC_EVENT": _table(needs="severity", text=Wanted(_TEXT, required=True)),
}
"""Tables by their current name."""

STORED = {stored: table for name, table in TABLES.items() for stored in (name, *table.aliases)}
"""The same by every name they may have in a file."""

WORK_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
"""What a report needs for a full answer; their absence is worth a word."""
