"""One input as the parsers see it: where it lies, what its first bytes are, how to stream it.

An input is a file, or a directory that is one trace as a whole; a directory has no bytes of its own.
Compression is recognised by magic bytes, never by suffix. Reading is streaming throughout, so memory
does not depend on the size of the file; a compressed stream that ends early is read as far as it goes
and says so in `ByteStream.damage`.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

from traceview.errors import ParseError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

HEAD_BYTES = 4096
_COMPRESSED_BYTES = 1 << 20
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_EXPORT_SUFFIXES = (".parquet", ".arrow")
_EXPORT_TABLES = ("StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_")
_DAMAGE = (EOFError, OSError, zlib.error, zipfile.BadZipFile)  # zlib.error: deflate inside zip


def is_export_directory(folder: Path) -> bool:
    """Whether a directory is one trace: the tables of an Nsight Systems export, one file each."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.suffix in _EXPORT_SUFFIXES]
    except OSError:
        return False
    return any(name.startswith(_EXPORT_TABLES) for name in names)


class Reader(Protocol):
    """Anything with ``read(n)``; decompressors and plain files alike."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""

    def close(self) -> None:
        """Release the file."""


class ByteStream:
    """Decompressed bytes of a source, in order; `damage` says why they ended early, if they did."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.damage: str | None = None
        self.position = 0

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end or at the point of damage."""
        if self.damage:
            return b""
        try:
            data = self._reader.read(size)
        except _DAMAGE as error:
            self.damage = str(error) or type(error).__name__
            return b""
        self.position += len(data)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._reader.close()


@dataclass(frozen=True)
class Source:
    """One input: its path, its size, and the decompressed bytes it starts with."""

    path: Path

    @cached_property
    def size(self) -> int:
        """Size on disk, in bytes."""
        parts = self.path.iterdir() if self.path.is_dir() else [self.path]
        return sum(part.stat().st_size for part in parts)

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD_BYTES` decompressed bytes (fewer if the file is shorter; a directory has none)."""
        if self.path.is_dir():
            return b""
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    def open(self) -> ByteStream:
        """A fresh stream over the decompressed bytes.

        Raises:
            ParseError: The file cannot be opened, or a zip holds several files.
        """
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
            return ByteStream(self._reader(magic))
        except OSError as error:
            why = error.strerror or str(error)
            raise ParseError.reading(
                self.path, "opening", why, "check the path and its permissions"
            ) from error

    def _reader(self, magic: bytes) -> Reader:
        if magic.startswith(_GZIP):
            return _GzipReader(self.path)
        if magic == _ZSTD:
            return _zstd(self.path)
        if magic == _ZIP:
            return _zip_member(self.path)
        return io.FileIO(self.path)


class _GzipReader:
    """A gzip file, member by member; unlike `gzip.open` it hands out all there is before a cut."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._inflate = _decompressor()
        self._pending = b""

    def read(self, size: int, /) -> bytes:
        while True:
            data = self._pending or self._file.read(_COMPRESSED_BYTES)
            if self._inflate.eof:
                # another member may follow; anything else behind a member is padding or garbage
                if not data.startswith(_GZIP):
                    return b""
                self._inflate = _decompressor()
            elif not data:
                message = "the compressed stream ends early"
                raise EOFError(message)
            try:
                text: bytes = self._inflate.decompress(data, size)
            except Exception as error:  # zlib and isal each have a class of their own
                message = f"the compressed stream is damaged ({error})"
                raise OSError(message) from error
            self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if text:
                return text

    def close(self) -> None:
        self._file.close()


def _decompressor() -> Any:  # noqa: ANN401 - zlib and isal share the interface, not a class
    try:
        from isal import isal_zlib  # noqa: PLC0415 - optional: three times faster than the standard library
    except ImportError:
        return zlib.decompressobj(wbits=31)
    return isal_zlib.decompressobj(wbits=31)


def _zstd(path: Path) -> Reader:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and few traces are zstd

    return pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd")  # type: ignore[no-any-return]


def _zip_member(path: Path) -> Reader:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ParseError.reading(
            path, "zip directory", str(error), "unpack the archive and pass its files"
        ) from error
    members = [info for info in archive.infolist() if not info.is_dir()]
    if len(members) != 1:
        why = f"the archive holds {len(members)} files"
        raise ParseError.reading(path, "zip directory", why, "unpack it and pass the directory")
    return archive.open(members[0])
