"""Tables of a SQLite export of Nsight Systems, and the database around their rows.

Source: names and types of the columns as nsys 2026.2 exports them (schema 3.25), less those that say nothing
about when and what a process ran.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row = dict[str, int | str | bytes | None]

_WORK = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphNodeId INTEGER, "
)

COLUMNS = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": _WORK
    + (
        "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, "
        "registersPerThread INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, "
        "gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, "
        "blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _WORK
    + "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": _WORK + "value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, "
        "endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData TEXT"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
        "domainId INTEGER, schemaId INTEGER, idx INTEGER NOT NULL, type INTEGER, name TEXT, offset INTEGER"
    ),
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER, "
        "cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER"
    ),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, name TEXT NOT NULL, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
}
"""Column definitions by table."""

_PAGE_BYTES = 4096


def database(tables: Mapping[str, Iterable[Row]]) -> bytes:
    """The bytes of a database with these tables; columns that a row lacks are null in it.

    As with nsys, a table without rows is left out. The bytes depend on nothing but the rows and the version
    of SQLite.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        for table, rows in tables.items():
            _fill(connection, table, list(rows))
        connection.commit()
        return connection.serialize()


def _fill(connection: sqlite3.Connection, table: str, rows: list[Row]) -> None:
    if not rows:
        return
    connection.execute(f'CREATE TABLE "{table}" ({COLUMNS[table]})')
    names = [definition.split()[0] for definition in COLUMNS[table].split(", ")]
    marks = ", ".join("?" * len(names))
    values = (tuple(row.get(name) for name in names) for row in rows)
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)  # noqa: S608 - our own names
