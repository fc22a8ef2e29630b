"""An export as an open `Export`, whichever of the export types it is; compressed files are unpacked first."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import ParseError
from traceview.parsers import _nsys_arrow, _nsys_json_lines, _nsys_sqlite, _nsys_tool
from traceview.parsers._nsys_export import Export
from traceview.parsers._nsys_tool import REPORT_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.source import ByteStream, Source

_MAGIC_BYTES = 4
_COPY_BYTES = 4 << 20


@contextmanager
def opened(source: Source) -> Iterator[Export]:
    """The export at ``source``, readable inside the ``with``.

    Raises:
        UnknownFormatError: It holds no such tables after all, or is a report that nobody here can export.
        ParseError: It is damaged.
    """
    if source.path.is_dir():
        yield Export(source.path, _nsys_arrow.directory(source.path))
    elif _nsys_json_lines.is_row(source.head):
        with source.open() as stream:
            rows = _nsys_json_lines.JsonLines(source.path, stream)
        yield Export(source.path, rows)
    elif source.head.startswith(_nsys_arrow.STREAM_MAGIC):
        with _plain(source) as plain:
            yield Export(source.path, _nsys_arrow.streams(plain, source.path))
    elif source.head.startswith(REPORT_MAGIC):
        with (
            _plain(source) as plain,
            _nsys_tool.exported(plain, source.path, source.head) as made,
            _nsys_sqlite.opened(made, source.path) as database,
        ):
            yield Export(source.path, database)
    else:
        with _plain(source) as plain, _nsys_sqlite.opened(plain, source.path) as database:
            yield Export(source.path, database)


@contextmanager
def _plain(source: Source) -> Iterator[Path]:
    """The file itself, or an unpacked copy of it that is removed afterwards."""
    with source.path.open("rb") as file:
        packed = file.read(_MAGIC_BYTES) != source.head[:_MAGIC_BYTES]
    if not packed:
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        # nsys goes by the suffix
        plain = Path(folder) / ("report.nsys-rep" if source.head.startswith(REPORT_MAGIC) else "export")
        with source.open() as stream:
            _unpack(stream, plain, source)
        yield plain


def _unpack(stream: ByteStream, plain: Path, source: Source) -> None:
    try:
        with plain.open("wb") as file:
            while data := stream.read(_COPY_BYTES):
                file.write(data)
    except OSError as error:
        why = f"it cannot be unpacked ({error.strerror})"
        hint = "unpack it yourself, or point TMPDIR at a disk with more room"
        raise ParseError.reading(source.path, "unpacking", why, hint) from error
    if stream.damage:
        hint = "the file is damaged or incomplete; copy it again"
        raise ParseError.reading(source.path, "unpacking", stream.damage, hint)
