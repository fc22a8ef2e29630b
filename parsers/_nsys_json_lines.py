"""Nsight Systems exports as JSON lines: one row per line, with its table's name under the key ``table``."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import polars as pl

from traceview.errors import ParseError
from traceview.parsers._nsys_columns import STORED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from traceview.parsers._nsys_export import Only
    from traceview.source import ByteStream

_HINT = "the file is damaged or incomplete; copy it again, or export the report again"
_BLOCK_BYTES = 8 << 20
# inside a JSON string the quotes would be escaped, so this finds keys only
_TABLE = r'"table"\s*:\s*"(\w+)"'


def is_row(head: bytes) -> bool:
    """Whether a file that begins like this holds rows of tables."""
    line = head.split(b"\n", 1)[0]
    return line.startswith(b"{") and re.search(_TABLE.encode(), line) is not None


class JsonLines:
    """The known tables of one file, which is read once, in blocks of `_BLOCK_BYTES`.

    A table has the columns that any of its rows has.

    Raises:
        ParseError: A row of a known table is no JSON, or the stream is damaged.
    """

    def __init__(self, path: Path, stream: ByteStream) -> None:
        parts: dict[str, list[pl.DataFrame]] = {}
        for block in _blocks(stream):
            for name, lines in _rows(block):
                parts.setdefault(name, []).append(_parsed(path, name, lines))
        if stream.damage:
            raise ParseError.reading(path, "unpacking", stream.damage, _HINT)
        self._frames = {name: pl.concat(frames) for name, frames in parts.items()}
        self.tables: Mapping[str, Collection[str]] = {
            name: [column.name for column in frame if column.null_count() < len(frame)]
            for name, frame in self._frames.items()
        }

    def batches(self, table: str, columns: Sequence[str], only: Only | None) -> Iterator[pl.DataFrame]:
        """Columns of a table, in one piece; see `Container.batches`."""
        frame = self._frames[table].select(columns)
        yield frame if only is None else frame.filter(only.keep())


def _blocks(stream: ByteStream) -> Iterator[bytes]:
    """Whole lines, many at a time."""
    rest = b""
    while data := stream.read(_BLOCK_BYTES):
        block, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            yield block
    yield rest


def _rows(block: bytes) -> Iterator[tuple[str, pl.Series]]:
    """The lines that are rows of a known table, by table."""
    lines = pl.DataFrame({"line": block.decode("utf-8", "replace").split("\n")})
    named = lines.with_columns(table=pl.col("line").str.extract(_TABLE))
    wanted = named.filter(pl.col("table").is_in(list(STORED)))
    for (name,), found in wanted.group_by("table", maintain_order=True):
        yield str(name), found["line"]


def _parsed(path: Path, table: str, lines: pl.Series) -> pl.DataFrame:
    text, schema = "\n".join(lines.to_list()).encode(), STORED[table].schema
    # as text first: ids may be written as unsigned 64-bit numbers, which no signed column takes
    texts = dict.fromkeys(schema, pl.String)
    try:
        as_text = pl.read_ndjson(io.BytesIO(text), schema=texts, ignore_errors=True)
    except pl.exceptions.PolarsError as error:
        raise ParseError.reading(path, f"table {table}", "a row is no JSON", _HINT) from error
    return as_text.select(
        _integer(name) if dtype == pl.Int64 else pl.col(name).cast(dtype, strict=False)
        for name, dtype in schema.items()
    )


def _integer(name: str) -> pl.Expr:
    signed = pl.col(name).cast(pl.Int64, strict=False)
    unsigned = pl.col(name).cast(pl.UInt64, strict=False).reinterpret(signed=True)
    return pl.coalesce(signed, unsigned)
