"""Nsight Systems exports as Parquet or Arrow: a directory with a file per table, or one stream of streams."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.errors import ParseError
from traceview.parsers._nsys_columns import STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from traceview.parsers._nsys_export import Only

STREAM_MAGIC = b"\xff\xff\xff\xff"
"""How an Arrow IPC stream begins: the continuation mark of its first message."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One table where it lies: its columns, and how some of them are read."""

    columns: Sequence[str]
    read: Callable[[Sequence[str]], pl.DataFrame]


class ArrowTables:
    """The tables of one export, read when asked for."""

    def __init__(self, path: Path, stored: Mapping[str, _Stored]) -> None:
        self._path = path
        self._stored = stored
        self.tables: Mapping[str, Collection[str]] = {name: table.columns for name, table in stored.items()}

    def batches(self, table: str, columns: Sequence[str], only: Only | None) -> Iterator[pl.DataFrame]:
        """Columns of a table, in one piece; see `Container.batches`."""
        frame: pl.DataFrame = _guarded(self._path, table, partial(self._stored[table].read, columns))
        yield frame if only is None else frame.filter(only.keep())


def directory(path: Path) -> ArrowTables:
    """The tables of a ``parquetdir`` or ``arrowdir`` export; the file names are the table names.

    Raises:
        ParseError: One of them is damaged.
    """
    kinds = {".parquet": _parquet, ".arrow": _stream}
    files = [file for file in sorted(path.iterdir()) if file.suffix in kinds and file.stem in STORED]
    stored = {file.stem: _guarded(path, file.stem, partial(kinds[file.suffix], file)) for file in files}
    return ArrowTables(path, stored)


def streams(plain: Path, shown: Path) -> ArrowTables:
    """The tables of an ``.arrows`` export: IPC streams one after the other, named in their metadata.

    Args:
        plain: The file, not compressed.
        shown: What errors call it.

    Raises:
        ParseError: It is damaged.
    """
    return ArrowTables(
        shown,
        {
            name: _Stored(table.schema.names, partial(_columns_of, table))
            for name, table in _tables(plain, shown)
            if name in STORED
        },
    )


def _parquet(file: Path) -> _Stored:
    return _Stored(list(pl.read_parquet_schema(file)), partial(_parquet_columns, file))


def _parquet_columns(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    return pl.read_parquet(file, columns=list(columns))


def _stream(file: Path) -> _Stored:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and few traces are Arrow

    with pa.memory_map(str(file)) as mapped:
        names = pa.ipc.open_stream(mapped).schema.names
    return _Stored(names, partial(_stream_columns, file))


def _stream_columns(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    return pl.read_ipc_stream(file, columns=list(columns))


def _tables(plain: Path, shown: Path) -> Iterator[tuple[str, Any]]:
    """Name and Arrow table of each stream; they are mapped, so what nobody wants is never really read."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and few traces are Arrow

    # left open on purpose: the tables live in the mapping, which goes when they go
    file = pa.memory_map(str(plain))
    while file.tell() < file.size():
        try:
            reader = pa.ipc.open_stream(file)
        except pa.ArrowInvalid:  # some writers end the file with a mark of their own
            return
        name = (reader.schema.metadata or {}).get(b"table_name", b"").decode("utf-8", "replace")
        yield name, _guarded(shown, name, reader.read_all)


def _columns_of(table: Any, columns: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    return pl.from_arrow(table.select(list(columns)))


def _guarded(path: Path, table: str, read: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever is read
    import pyarrow as pa  # noqa: PLC0415 - heavy, and few traces are Arrow

    try:
        return read()
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        why = f"it is damaged ({type(error).__name__})"  # the message itself may quote values
        hint = "copy it again, or export the report again"
        raise ParseError.reading(path, f"table {table or 'without a name'}", why, hint) from error
