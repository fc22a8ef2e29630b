"""One Nsight Systems export, whatever holds its tables: the wanted columns of each, typed.

A table that is absent reads as an empty one; `Export.has` tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import polars as pl

from traceview.errors import ParseError
from traceview.parsers._nsys_columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Only:
    """Restricts a read to the rows whose ``column`` holds one of ``values``."""

    column: str
    values: Collection[int] | Collection[str]

    def keep(self) -> pl.Expr:
        """The restriction as a filter on the table as stored."""
        kind = pl.String() if any(isinstance(value, str) for value in self.values) else pl.Int64()
        allowed = pl.Series(list(self.values), dtype=kind)
        return pl.col(self.column).cast(kind, strict=False).is_in(allowed.implode())


class Container(Protocol):
    """What holds the tables of an export: a database, a directory, a stream."""

    @property
    def tables(self) -> Mapping[str, Collection[str]]:
        """Columns of each known table that is there, under the name it has there."""

    def batches(self, table: str, columns: Sequence[str], only: Only | None) -> Iterator[pl.DataFrame]:
        """Columns of a table as stored, some rows at a time, in any order.

        Raises:
            ParseError: The table is damaged.
        """


@dataclass(frozen=True, slots=True)
class Export:
    """An open export; ``path`` is what the user knows it by."""

    path: Path
    container: Container

    def has(self, name: str) -> bool:
        """Whether the table was exported at all, with rows or without."""
        return self._stored_name(name) is not None

    def table(self, name: str, only: Only | None = None) -> pl.DataFrame:
        """The wanted columns of a table, typed as in `TABLES`; empty when the table is absent.

        Raises:
            ParseError: The table is damaged, or lacks a column it is useless without.
        """
        return pl.concat([TABLES[name].empty(), *self.batches(name, only)], rechunk=True)

    def batches(self, name: str, only: Only | None = None) -> Iterator[pl.DataFrame]:
        """As `table`, some rows at a time, so that what is not needed of them can be let go.

        Raises:
            ParseError: As `table` does.
        """
        wanted = TABLES[name]
        stored = self._stored_name(name)
        if stored is None:
            return
        present = self.container.tables[stored]
        lacking = [c for c, facts in wanted.columns.items() if facts.required and c not in present]
        if lacking:
            why = f"it lacks the column {', '.join(lacking)}"
            hint = "export the report again with a current nsys"
            raise ParseError.reading(self.path, f"table {stored}", why, hint)
        for raw in self.container.batches(stored, [c for c in wanted.columns if c in present], only):
            yield raw.select(
                _typed(raw, column, dtype) if column in present else pl.lit(None, dtype).alias(column)
                for column, dtype in wanted.schema.items()
            )

    def named(self, name: str, keys: Collection[str]) -> dict[str, str]:
        """The values of a name-and-value table under these names; no other row of it is taken up."""
        rows = self.table(name, Only("name", list(keys))).drop_nulls()
        return {key: value for key, value in rows.select("name", "value").iter_rows() if key in keys}

    def _stored_name(self, name: str) -> str | None:
        return next((s for s in (name, *TABLES[name].aliases) if s in self.container.tables), None)


def _typed(frame: pl.DataFrame, column: str, dtype: pl.DataType) -> pl.Expr:
    if frame.schema[column] == pl.UInt64 and dtype == pl.Int64:
        return pl.col(column).reinterpret(signed=True)
    return pl.col(column).cast(dtype, strict=False)
