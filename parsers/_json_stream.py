"""Cuts a Chrome-trace JSON document, of any layout and any size, into lists of whole events.

A raw newline apart, the bytes ``} , { "x`` (blanks allowed, x a letter) cannot stand inside a string of
valid JSON: the quote would close the string, and no letter may follow. So such a place is surely between
two objects. That it is between two *events* is proved afterwards: when every ``[chunk]`` parses as an
array of events, the cuts were right, since JSON's grammar is unambiguous. A chunk that does not parse is
joined with what follows; if that does not help the file is damaged there, and the chunk is halved until
the unreadable event stands alone, is left out, and is counted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.source import ByteStream

CHUNK_BYTES = 4 << 20
_GROW_BYTES = 4 * CHUNK_BYTES  # beyond this a chunk that does not parse is damaged, not merely cut wrong
_HEADER_BYTES = 256 << 20  # a header larger than this is no header
_OVERLAP = 1 << 16
_BOUNDARY = re.compile(rb'\}[ \t\r\n]*(,)[ \t\r\n]*(?=\{[ \t\r\n]*"[A-Za-z])')
_BLANK = re.compile(r"[ \t\r\n,]*")
_STRAY_VALUE = re.compile(r"[^,}\]\n]*")

Event = TypeVar("Event")


class Unreadable(ValueError):  # noqa: N818 - a signal between this module and its decoder, not an error of ours
    """The bytes are not an array of events."""


class Decoder(Protocol[Event]):
    """Turns ``[event, event, ...]`` into events, or raises `Unreadable`."""

    def array(self, data: bytes) -> list[Event]:
        """The events of a JSON array."""

    def document(self, data: bytes) -> tuple[list[Event], dict[str, Any]]:
        """The events of ``{"traceEvents": [...], ...}`` and the other top-level values."""

    def single(self, data: bytes) -> list[Event]:
        """One event, read as forgivingly as can be done without guessing its content."""


class EventStream(Generic[Event]):
    """Iterates over lists of events; afterwards its attributes tell what the document was like.

    Attributes:
        header: Top-level values before and after the events, decoded, by key.
        has_events: Whether the document has an event array at all.
        truncated: The document ended inside the event array.
        lost_events: Pieces that could not be read and were left out.
        lost_bytes: Their size.
    """

    def __init__(self, stream: ByteStream, decoder: Decoder[Event]) -> None:
        self._stream = stream
        self._decoder = decoder
        self.header: dict[str, Any] = {}
        self.has_events = False
        self.truncated = False
        self.lost_events = 0
        self.lost_bytes = 0

    def __iter__(self) -> Iterator[list[Event]]:
        buffer, is_object = self._start()
        if not self.has_events:
            return
        seen = 0  # no boundary lies before this offset, or none that parses
        while data := self._stream.read(CHUNK_BYTES):
            buffer += data
            cut = _last_boundary(buffer, seen)
            if cut is None:
                continue
            try:
                events = self._decoder.array(b"".join((b"[", memoryview(buffer)[:cut], b"]")))
            except Unreadable:
                if len(buffer) < _GROW_BYTES:
                    continue
                yield from self._salvage(buffer[:cut])
            else:
                yield events
            buffer, seen = buffer[cut + 1 :], 0
        yield from self._finish(buffer, is_object=is_object)

    def _start(self) -> tuple[bytes, bool]:
        """Reads the header; returns the bytes after the ``[`` of the event array, and the form."""
        buffer = self._stream.read(_OVERLAP).removeprefix(b"\xef\xbb\xbf").lstrip()
        if buffer.startswith(b"["):
            self.has_events = True
            return buffer[1:], False
        while True:
            try:
                end = _read_header(buffer, self.header)
            except _NeedMoreError:
                data = self._stream.read(max(CHUNK_BYTES, len(buffer)))
                if not data or len(buffer) > _HEADER_BYTES:
                    return b"", True
                buffer += data
                continue
            if end is not None:
                self.has_events = True
                return buffer[end:], True
            return b"", True

    def _finish(self, buffer: bytes, *, is_object: bool) -> Iterator[list[Event]]:
        """The rest of the array, and the keys behind it."""
        try:
            if is_object:
                events, trailer = self._decoder.document(b'{"traceEvents":[' + buffer)
                self.header |= trailer
                yield events
            else:
                yield self._decoder.array(b"[" + buffer)
        except Unreadable:
            body, trailer_text = _split_trailer(buffer)
            self.truncated = trailer_text is None
            self.header |= _trailing_values(trailer_text or "")
            yield from self._salvage(body)

    def _salvage(self, buffer: bytes) -> Iterator[list[Event]]:
        """All events of a damaged stretch that can be read; halves it until the bad ones stand alone."""
        starts = [0, *(m.start(1) + 1 for m in _BOUNDARY.finditer(buffer)), len(buffer) + 1]
        pending = [(0, len(starts) - 1)]
        while pending:
            first, last = pending.pop()
            piece = buffer[starts[first] : starts[last] - 1]
            try:
                if last - first == 1:
                    yield self._decoder.single(piece)
                else:
                    yield self._decoder.array(b"[" + piece + b"]")
            except Unreadable:
                if last - first == 1:
                    if piece.strip(b" \t\r\n,]"):
                        self.lost_events += 1
                        self.lost_bytes += len(piece)
                else:
                    middle = (first + last) // 2
                    pending += [(middle, last), (first, middle)]


class _NeedMoreError(Exception):
    """The header goes on beyond the bytes at hand."""


def _last_boundary(buffer: bytes, start: int) -> int | None:
    """Offset of the comma of the last sure object boundary at or after ``start``, or None."""
    low = max(start, len(buffer) - _OVERLAP)
    while True:
        last = None
        for last in _BOUNDARY.finditer(buffer, low):  # noqa: B007 - only the last one matters
            pass
        if last is not None or low == start:
            return last.start(1) if last else None
        low = max(start, low - 16 * _OVERLAP)


def _read_header(buffer: bytes, header: dict[str, Any]) -> int | None:
    """Fills ``header`` with the values before the events; returns the offset behind their ``[``.

    None when the document ends without events. latin-1 keeps one character per byte, so offsets in the
    text are offsets in the buffer.
    """
    text = buffer.decode("latin-1")
    if not text.startswith("{"):
        return None
    scanner = json.JSONDecoder(strict=False)
    at = 1
    while True:
        at = _end_of(_BLANK, text, at)
        if at >= len(text):
            raise _NeedMoreError
        if text[at] != '"':
            return None
        try:
            key, at = scanner.raw_decode(text, at)
            at = text.index(":", at) + 1
            at = _end_of(_BLANK, text, at)
            if key == "traceEvents" and text[at] == "[":
                return at + 1
            value, at = _read_value(scanner, text, at)
        except (ValueError, IndexError) as error:
            raise _NeedMoreError from error
        if at >= len(text):
            raise _NeedMoreError  # a number may go on in the next bytes
        header[key] = value


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where ``pattern``, if it matches at ``at``, ends; else ``at``."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _read_value(scanner: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    """One value; a bare word that is no JSON (``N/A``) reads as None."""
    try:
        value, end = scanner.raw_decode(text, at)
    except ValueError:
        if text[at] in '{["':
            raise
        return None, _end_of(_STRAY_VALUE, text, at)
    return _as_utf8(value), end


def _as_utf8(value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
    """Strings that were read byte by byte, as the UTF-8 they are."""
    if isinstance(value, str):
        # a character beyond latin-1 came from an escape and is whole already
        raw = (c.encode("latin-1") if c < "\u0100" else c.encode("utf-8", "replace") for c in value)
        return value if value.isascii() else b"".join(raw).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_as_utf8(k): _as_utf8(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_as_utf8(v) for v in value]
    return value


_TRAILER = re.compile(rb'\][ \t\r\n]*(?:,[ \t\r\n]*"[A-Za-z]\w*"[ \t\r\n]*:|\}[ \t\r\n]*$)')


def _split_trailer(buffer: bytes) -> tuple[bytes, str | None]:
    """The damaged end of the array, and the text of the keys behind it (None: the array never closed)."""
    closes = [m for m in _TRAILER.finditer(buffer) if not _is_inside_value(buffer, m.start())]
    if not closes:
        return buffer, None
    return buffer[: closes[0].start()], buffer[closes[0].start() + 1 :].decode("latin-1")


def _is_inside_value(buffer: bytes, at: int) -> bool:
    """Whether the ``]`` at ``at`` closes a list inside an event: then no ``}`` or ``[`` stands before it."""
    return buffer[:at].rstrip()[-1:] not in {b"}", b"[", b""}


def _trailing_values(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    scanner = json.JSONDecoder(strict=False)
    for match in re.finditer(r',\s*"(\w+)"\s*:\s*', text):
        try:
            values[match[1]], _ = _read_value(scanner, text, match.end())
        except (ValueError, IndexError):
            continue
    return values
