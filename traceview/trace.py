"""`Trace`: the canonical tables of one rank, and the facts that are not rows.

The trace imports no parser and no analyzer: parsers make traces, analyzers read their tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from traceview.errors import MissingTableError
from traceview.schema import DIAGNOSTICS

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file says about itself. Nothing private: no environment, no command line.

    ``rank_source`` names the evidence for ``rank`` (or "none"); ``start_ns``/``end_ns`` bound the device
    work on the trace's clock; ``clock`` says what that clock counts from.
    """

    path: str
    format: str
    rank: int | None = None
    rank_source: str = "none"
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    device_name: str | None = None
    clock: str = "unknown"
    start_ns: int = 0
    end_ns: int = 0
    event_count: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


class _ReadOnce(Mapping[str, pl.DataFrame]):
    """Tables that are remembered once they have been asked for."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        self._tables = tables
        self._read: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._read:
            self._read[name] = self._tables[name]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True, slots=True)
class Trace:
    """The tables of one rank.

    A table that is absent was not recorded; a table that is empty was recorded and holds nothing.
    """

    facts: Facts
    tables: Mapping[str, pl.DataFrame] = field(repr=False)
    diagnostics: pl.DataFrame = field(default_factory=DIAGNOSTICS.empty, repr=False)

    def table(self, name: str) -> pl.DataFrame:
        """The table ``name``.

        Raises:
            MissingTableError: The trace does not have it.
        """
        if name not in self.tables:
            raise MissingTableError.of(name, self.tables)
        return self.tables[name]

    def held(self) -> Trace:
        """The same trace, reading each of its tables at most once for as long as it lives."""
        return replace(self, tables=_ReadOnce(self.tables))

    def with_tables(self, **tables: pl.DataFrame) -> Trace:
        """A trace with some tables added or replaced."""
        return replace(self, tables={**self.tables, **tables})

    def with_diagnostics(self, *more: pl.DataFrame) -> Trace:
        """A trace with further diagnostics rows."""
        return replace(self, diagnostics=pl.concat([self.diagnostics, *more]))

    def with_rank(self, rank: int, source: str) -> Trace:
        """The same trace, known to be rank ``rank`` by evidence ``source``."""
        if rank == self.facts.rank:
            return self
        tables = {
            name: frame.with_columns(rank=pl.lit(rank, pl.Int32)) if "rank" in frame.columns else frame
            for name, frame in self.tables.items()
        }
        diagnostics = self.diagnostics.with_columns(rank=pl.lit(rank, pl.Int32))
        return Trace(replace(self.facts, rank=rank, rank_source=source), tables, diagnostics)


def diagnostic(severity: str, code: str, text: str, *, count: int, rank: int | None = None) -> pl.DataFrame:
    """One `diagnostics` row."""
    row = {"rank": rank, "severity": severity, "code": code, "text": text, "count": count}
    return DIAGNOSTICS.conform(pl.DataFrame([row], schema_overrides={"rank": pl.Int32}))
