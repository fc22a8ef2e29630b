"""Nsight Systems exports as SQLite databases, read without ever writing beside them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import polars as pl

from traceview.errors import ParseError, UnknownFormatError
from traceview.parsers._nsys_columns import STORED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from traceview.parsers._nsys_export import Only

MAGIC = b"SQLite format 3\0"
_BATCH_ROWS = 100_000


class Database:
    """The tables of one SQLite file.

    Rows arrive in batches of `_BATCH_ROWS`, so what is held besides the result does not grow with the table.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        present = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self.tables: Mapping[str, Collection[str]] = {
            name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
            for (name,) in present
            if name in STORED
        }

    def read(self, table: str, columns: Sequence[str], only: Only | None) -> pl.DataFrame:
        """Columns of a table; see `Container.read`."""
        # names come from the registry, never from the file
        listed = ", ".join(f'"{column}"' for column in columns)
        query = f'SELECT {listed} FROM "{table}"'  # noqa: S608 - see above
        values: list[str] = []
        if only is not None:
            # one parameter holds any number of values; SQLite limits how many parameters there may be
            query += f' WHERE "{only.column}" IN (SELECT value FROM json_each(?))'  # noqa: S608 - as above
            values = [json.dumps(list(only.values))]
        schema = {column: STORED[table].schema[column] for column in columns}
        batches = [pl.DataFrame(schema=schema)]
        try:
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                batches.append(_frame(rows, schema))
        except sqlite3.Error as error:
            hint = "the file is damaged or incomplete; copy it again, or export the report again"
            raise ParseError.reading(self._path, f"table {table}", _reason(error), hint) from error
        return pl.concat(batches)


@contextmanager
def opened(path: Path, shown: Path) -> Iterator[Database]:
    """The database in the plain file ``path``; errors speak of ``shown``.

    Raises:
        UnknownFormatError: It is no database that SQLite can open.
    """
    # immutable: no lock and no side files, so read-only and network file systems work; but it would hide
    # what another process has only written to the log so far
    logged = path.with_name(path.name + "-wal").exists()
    uri = path.resolve().as_uri() + ("?mode=ro" if logged else "?mode=ro&immutable=1")
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = _text
            yield Database(shown, connection)
    except sqlite3.Error as error:
        what = f"an SQLite database that cannot be opened ({_reason(error)})"
        hint = "copy it again, or export the report again"
        raise UnknownFormatError.of(shown, what, hint) from error


def _frame(rows: Sequence[tuple[object, ...]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    columns = zip(schema.items(), zip(*rows, strict=True), strict=True)
    # SQLite columns hold values of any type; one that does not fit is unknown
    return pl.DataFrame([pl.Series(name, values, dtype, strict=False) for (name, dtype), values in columns])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _reason(error: sqlite3.Error) -> str:
    """SQLite's name of the error; its message may quote values."""
    return str(getattr(error, "sqlite_errorname", None) or type(error).__name__)
