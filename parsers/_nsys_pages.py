"""Rows of SQLite tables read from the pages of the file, a batch of pages at a time, as arrays.

SQLite hands out one value per call, which for millions of rows costs many times what decoding them all at
once does. So the common row is decoded here: whole in its page, with integers, texts, blobs and nulls where
those are wanted. Any other row is left to SQLite by its row number, and so is any table that this module
does not take; nothing here decides what a value means.

Source: "Database File Format" of SQLite, which promises that it will not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

_HEAD_BYTES = 100
_UTF8 = 1
_LEAF, _INTERIOR = 0x0D, 0x05  # pages of tables; those of indexes and of tables without row numbers differ
_LEAF_HEAD, _INTERIOR_HEAD = 8, 12
_SPILL_BYTES = 35  # a row longer than a page less this goes on in other pages
_LEAST_USABLE = 480
_MAX_DEPTH = 20
_BATCH_BYTES = 1 << 20  # stays in the cache of a core while its columns are decoded one after the other
_FRAME_ROWS = 200_000
_PADDING = 16  # a value may be read with what lies behind it

# kinds of values: 0 null; 1 to 6 integers of 1, 2, 3, 4, 6, 8 bytes; 7 real; 8 and 9 the numbers 0 and 1;
# from 12 on, even, blobs, and odd, texts, of (kind - 12) / 2 bytes
_NULL, _REAL, _ZERO, _ONE, _BLOB, _TEXT = 0, 7, 8, 9, 12, 13
_LONG = 128  # from here on a kind takes several bytes
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, _LONG))])
_SHIFTS = np.minimum(64 - 8 * _SIZES, 63)


class MalformedError(Exception):
    """The pages of a table do not hang together."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A table as the database describes it: the number of its first page, and all its columns in order."""

    root: int
    columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a table: those decoded, and the row numbers of those that SQLite has to read."""

    frame: pl.DataFrame
    left: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Bytes of a page, and how many of them are used."""

    page_bytes: int
    usable: int

    @property
    def readable(self) -> bool:
        """Whether SQLite would write such pages."""
        return self.page_bytes & (self.page_bytes - 1) == 0 and self.usable >= _LEAST_USABLE


class Pages:
    """The pages of a database that nobody is writing to."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        head = np.frombuffer(file.read(_HEAD_BYTES).ljust(_HEAD_BYTES, b"\0"), np.uint8).astype(np.int64)
        size = int(head[16] << 8 | head[17])
        size = 1 << 16 if size == 1 else size
        self._layout = _Layout(size, size - int(head[20]))
        self._count = file.seek(0, 2) // max(size, 1)
        self._readable = self._layout.readable and int(head[59]) == _UTF8

    def takes(self, table: Stored) -> bool:
        """Whether the table has row numbers and the database's texts are UTF-8, as this module reads them."""
        if not (self._readable and 1 < table.root <= self._count):
            return False
        return self._read(np.array([table.root]))[0] in (_LEAF, _INTERIOR)

    def batches(self, table: Stored, wanted: Mapping[str, pl.DataType]) -> Iterator[Batch]:
        """All rows of a table, some `_FRAME_ROWS` at a time.

        Args:
            table: One that the database `takes`.
            wanted: Columns of it, each Int64, String or Binary.

        Raises:
            MalformedError: Its pages do not hang together.
        """
        leaves = self._leaves(table.root)
        step = max(1, _BATCH_BYTES // self._layout.page_bytes)
        parts: list[Batch] = []
        rows = 0
        for first in range(0, len(leaves), step):
            numbers = leaves[first : first + step]
            buffer = self._read(numbers)
            cells = _cells(buffer, len(numbers), self._layout)
            parts.append(_decoded(buffer, cells, self._layout, table.columns, wanted))
            rows += len(cells)
            if rows >= _FRAME_ROWS:
                yield _joined(parts)
                parts, rows = [], 0
        if parts:
            yield _joined(parts)

    def _leaves(self, root: int) -> Ints:
        """Numbers of the pages that hold rows, in the order of the rows."""
        level = np.array([root])
        for _ in range(_MAX_DEPTH):
            if not (((level > 1) & (level <= self._count)).all() and len(level) <= self._count):
                break
            # all ways down are equally long
            if self._read(level[:1])[0] == _LEAF:
                return level
            level = np.concatenate([_children(self._read(page), self._layout) for page in level[:, None]])
        raise MalformedError

    def _read(self, numbers: Ints) -> Bytes:
        """These pages one after the other, and some padding."""
        size = self._layout.page_bytes
        buffer = np.zeros(len(numbers) * size + _PADDING, np.uint8)
        view, at = buffer.data, 0
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            self._file.seek((int(run[0]) - 1) * size)
            end = at + len(run) * size
            if self._file.readinto(view[at:end]) != end - at:  # type: ignore[attr-defined]
                raise MalformedError
            at = end
        return buffer


def _children(page: Bytes, layout: _Layout) -> Ints:
    if page[0] != _INTERIOR:
        raise MalformedError
    count = _be16(page, np.array([3]))
    if int(count[0]) * 2 + _INTERIOR_HEAD > layout.usable:
        raise MalformedError
    cells = _be16(page, _INTERIOR_HEAD + 2 * np.arange(int(count[0])))
    at = np.append(cells, 8)  # the child to the right of all others stands in the head
    return _be16(page, at) << 16 | _be16(page, at + 2)


def _cells(buffer: Bytes, pages: int, layout: _Layout) -> Ints:
    """Where each row of these pages begins."""
    base = np.arange(pages) * layout.page_bytes
    counts = _be16(buffer, base + 3)
    if (buffer[base] != _LEAF).any() or (counts * 2 + _LEAF_HEAD > layout.usable).any():
        raise MalformedError
    pointers = np.repeat(base + _LEAF_HEAD - 2 * (np.cumsum(counts) - counts), counts)
    return np.repeat(base, counts) + _be16(buffer, pointers + 2 * np.arange(len(pointers)))


def _decoded(
    buffer: Bytes, cells: Ints, layout: _Layout, columns: Sequence[str], wanted: Mapping[str, pl.DataType]
) -> Batch:
    """The rows at ``cells``: header of kinds, one byte each as a rule, then the values behind each other."""
    length, number_at = _varint(buffer, cells)
    number, kind_at = _varint(buffer, number_at)
    header = _take(buffer, kind_at)
    value_at = kind_at + header
    header_end, end = value_at, kind_at + length
    page_end = (cells // layout.page_bytes + 1) * layout.page_bytes
    odd = (length > layout.usable - _SPILL_BYTES) | (header >= _LONG) | (end > page_end)
    kind_at = kind_at + 1
    found: dict[str, pl.Series] = {}
    left = set(wanted)
    for column in columns:
        kind: Bytes | Ints = _take(buffer, kind_at)
        if kind.max(initial=0) >= _LONG:
            kind, kind_at = _long_kinds(buffer, kind_at)
        if column in left:
            values, unread = _column(buffer, kind, value_at, wanted[column])
            found[column] = values
            odd = odd | unread
            left.remove(column)
        if not left:
            break
        value_at = value_at + _size(kind)
        kind_at = kind_at + 1
    # a row written before its table got a column lacks that column
    odd = odd | (kind_at >= header_end) | (value_at + _size(kind) > end)
    frame = pl.DataFrame([found[name].alias(name) for name in wanted])
    if not odd.any():
        return Batch(frame, ())
    return Batch(frame.filter(pl.Series(~odd)), number[odd].tolist())


def _column(buffer: Bytes, kind: Bytes | Ints, at: Ints, dtype: pl.DataType) -> tuple[pl.Series, Flags]:
    """Values of one column, and which of them are neither null nor of its type."""
    if dtype == pl.Int64:
        return _integers(buffer, kind, at)
    own = (kind >= _BLOB) & (kind % 2 == (_TEXT if dtype == pl.String else _BLOB) % 2)
    sizes = pl.Series(_size(kind))
    # a view of the bytes is sliced at once for all rows
    places = pl.DataFrame({"at": at, "size": sizes, "own": own})
    data = pl.lit(buffer.tobytes(), pl.Binary).bin.slice(pl.col("at"), pl.col("size"))
    raw = places.select(pl.when("own").then(data)).to_series()
    return (_texts(raw) if dtype == pl.String else raw), ~own & (kind != _NULL)


def _texts(raw: pl.Series) -> pl.Series:
    try:
        return raw.cast(pl.String)
    except pl.exceptions.ComputeError:  # some are no unicode
        texts = [None if text is None else text.decode("utf-8", "replace") for text in raw]
        return pl.Series(texts, dtype=pl.String)


def _integers(buffer: Bytes, kind: Bytes | Ints, at: Ints) -> tuple[pl.Series, Flags]:
    lowest, highest = kind.min(initial=_ONE), kind.max(initial=_NULL)
    unread = (kind == _REAL) | (kind > _ONE)
    if lowest == highest and lowest in (_NULL, _ZERO, _ONE):  # the same in all rows: no need to look
        constant = pl.Series([{_NULL: None, _ZERO: 0, _ONE: 1}[int(lowest)]], dtype=pl.Int64)
        return constant.new_from_index(0, len(kind)), unread
    # eight bytes from the start of the value, of which those behind it are shifted out
    words = np.ndarray((len(buffer) - 7,), ">i8", buffer, strides=(1,))
    values = words[np.minimum(at, len(words) - 1)].astype(np.int64)
    values >>= np.take(_SHIFTS, kind, mode="clip")
    bare = (kind == _NULL) | (kind >= _ZERO)
    if bare.any():
        values[bare] = kind[bare] == _ONE
    series = pl.Series(values)
    nulls = kind == _NULL
    return (series.set(pl.Series(nulls), None) if nulls.any() else series), unread


def _size(kind: Bytes | Ints) -> Ints:
    if kind.dtype == np.uint8:
        return np.take(_SIZES, kind, mode="clip")
    return np.where(kind < _LONG, np.take(_SIZES, kind, mode="clip"), (kind - _BLOB) // 2)


def _long_kinds(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Kinds of which some take two bytes or more, and the last byte of each."""
    values, behind = _varint(buffer, at)
    return values, behind - 1


def _varint(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Numbers of 7 bits a byte, of which all but the last have the highest bit set, and what follows them."""
    byte = _take(buffer, at)
    values, behind = (byte & 0x7F).astype(np.int64), at + 1
    going = np.flatnonzero(byte & 0x80)
    for _ in range(8):  # the ninth byte has eight bits, but no row has such a number
        if not len(going):
            break
        byte = _take(buffer, behind[going])
        values[going] = values[going] << 7 | (byte & 0x7F)
        behind[going] += 1
        going = going[byte >= 0x80]
    return values, behind


def _be16(buffer: Bytes, at: Ints) -> Ints:
    return _take(buffer, at).astype(np.int64) << 8 | _take(buffer, at + 1)


def _take(buffer: Bytes, at: Ints) -> Bytes:
    """Bytes at these places; clipped, since the places come from the file."""
    return np.take(buffer, at, mode="clip")


def _joined(parts: Collection[Batch]) -> Batch:
    frame = pl.concat([part.frame for part in parts])
    return Batch(frame, [number for part in parts for number in part.left])
