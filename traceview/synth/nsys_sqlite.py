"""The tables of an Nsight Systems export as a SQLite database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from traceview.synth.nsys_tables import COLUMNS, values

if TYPE_CHECKING:
    from traceview.synth.nsys_tables import Column, Row, Tables

_PAGE_BYTES = 4096


def database(tables: Tables) -> bytes:
    """The bytes of a database with these tables.

    The bytes depend on nothing but the rows and the version of SQLite.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        for table, rows in tables.items():
            if rows:
                _fill(connection, table, rows)
        connection.commit()
        return connection.serialize()


def _fill(connection: sqlite3.Connection, table: str, rows: list[Row]) -> None:
    columns = COLUMNS[table]
    connection.execute(f'CREATE TABLE "{table}" ({", ".join(map(_definition, columns))})')
    marks = ", ".join("?" * len(columns))
    cells = zip(*values(table, rows).values(), strict=True)
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', cells)  # noqa: S608 - our own names


def _definition(column: Column) -> str:
    # payloads are declared as text, and hold bytes all the same
    kind = "TEXT" if column.kind in {"text", "blob"} else "INTEGER"
    return f"{column.name} {kind}{' NOT NULL' if column.required else ''}"
