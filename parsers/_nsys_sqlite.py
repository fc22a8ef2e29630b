"""Nsight Systems exports as SQLite databases, read without ever writing beside them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview.errors import ParseError, UnknownFormatError
from traceview.parsers._nsys_columns import STORED
from traceview.parsers._nsys_export import Only
from traceview.parsers._nsys_pages import MalformedError, Pages, Stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

MAGIC = b"SQLite format 3\0"
_BATCH_ROWS = 100_000


class Database:
    """The tables of one SQLite file.

    Rows arrive in batches, so what is held besides the result does not grow with the table. They are taken
    from the pages of the file where that is possible, and from SQLite where it is not.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, pages: Pages | None) -> None:
        self._path = path
        self._connection = connection
        self._pages = pages
        present = connection.execute(
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        self._described = {
            name: _Described.of(connection, name, root) for name, root in present if name in STORED
        }
        self.tables: Mapping[str, Collection[str]] = {
            name: described.stored.columns for name, described in self._described.items()
        }

    def batches(self, table: str, columns: Sequence[str], only: Only | None) -> Iterator[pl.DataFrame]:
        """Columns of a table, some rows at a time; see `Container.batches`."""
        schema = {column: STORED[table].schema[column] for column in columns}
        try:
            if self._pages is None or not self._lies_in_pages(self._pages, table, schema, only):
                yield from self._selected(table, schema, only)
                return
            for batch in self._pages.batches(self._described[table].stored, schema):
                rows = [batch.frame]
                if batch.left:
                    rows += self._selected(table, schema, Only("rowid", batch.left))
                yield from (part if only is None else part.filter(only.keep()) for part in rows)
        except (sqlite3.Error, MalformedError) as error:
            hint = "the file is damaged or incomplete; copy it again, or export the report again"
            raise ParseError.reading(self._path, f"table {table}", _reason(error), hint) from error

    def _lies_in_pages(
        self, pages: Pages, table: str, schema: dict[str, pl.DataType], only: Only | None
    ) -> bool:
        """Whether a table may be read from its pages, all rows of it that is."""
        described = self._described[table]
        # rows picked by their texts are those of tables that also hold what nobody may read
        picked = only is not None and schema[only.column] == pl.String
        return not picked and described.elsewhere.isdisjoint(schema) and pages.takes(described.stored)

    def _selected(
        self, table: str, schema: dict[str, pl.DataType], only: Only | None
    ) -> Iterator[pl.DataFrame]:
        # names come from the registry, never from the file
        listed = ", ".join(f'"{column}"' for column in schema)
        query = f'SELECT {listed} FROM "{table}"'  # noqa: S608 - see above
        values: list[str] = []
        if only is not None:
            # one parameter holds any number of values; SQLite limits how many parameters there may be
            query += f' WHERE "{only.column}" IN (SELECT value FROM json_each(?))'  # noqa: S608 - as above
            values = [json.dumps(list(only.values))]
        cursor = self._connection.execute(query, values)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield _frame(rows, schema)


@dataclass(frozen=True, slots=True)
class _Described:
    """A table: how it is stored, and its columns that lie elsewhere than in its rows, or are computed."""

    stored: Stored
    elsewhere: frozenset[str]

    @classmethod
    def of(cls, connection: sqlite3.Connection, name: str, root: int) -> _Described:
        rows = connection.execute(f'PRAGMA table_xinfo("{name}")').fetchall()
        columns = [row[1] for row in rows]
        # an integer key is the number of the row itself
        keys = {row[1] for row in rows if row[5] and row[2].upper() == "INTEGER"}
        return cls(Stored(root, columns), frozenset(columns if any(row[6] for row in rows) else keys))


@contextmanager
def opened(path: Path, shown: Path) -> Iterator[Database]:
    """The database in the plain file ``path``; errors speak of ``shown``.

    Raises:
        UnknownFormatError: It is no database that SQLite can open.
    """
    # immutable: no lock and no side files, so read-only and network file systems work; but it would hide
    # what another process has only written to the log so far, and undo nothing of what it left half done
    logged = any(path.with_name(path.name + log).exists() for log in ("-wal", "-journal"))
    uri = path.resolve().as_uri() + ("?mode=ro" if logged else "?mode=ro&immutable=1")
    try:
        with path.open("rb", buffering=0) as file, closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = _text
            yield Database(shown, connection, None if logged else Pages(file))
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


def _reason(error: sqlite3.Error | MalformedError) -> str:
    """SQLite's name of the error; its message may quote values."""
    return str(getattr(error, "sqlite_errorname", None) or type(error).__name__)
