"""Events of a Chrome trace as typed structs: msgspec decoding, and a second look at what it refuses.

Arguments stay raw text in the structs, so that only those of kept events are ever decoded. What strict JSON
does not allow but writers have written (control bytes, bad UTF-8, lone backslashes, N/A, NaN) is tidied and
decoded again, at the price of a slower path for that chunk alone.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, ClassVar

import msgspec

from traceview.parsers._json_stream import Unreadable

Number = int | float | str | None


_STAMP_SAMPLE = 16
_EXACT_US = float(1 << 43)  # below this a float64 of microseconds still tells nanoseconds apart


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event. ``ts`` and ``dur`` are microseconds."""

    cat: str | None = None
    name: Number = None
    pid: Number = None
    tid: Number = None
    ts: float | str | None = None
    dur: float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class TextEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event whose stamps keep their text: for epoch microseconds with decimals."""

    cat: str | None = None
    name: Number = None
    pid: Number = None
    tid: Number = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class CounterEvent(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """A counter sample."""

    cat: ClassVar[str] = "(counter)"

    name: Number = None
    pid: Number = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class InstantEvent(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """Something that has no duration; of these only what the allocator did is kept."""

    cat: ClassVar[str] = "(instant)"

    name: Number = None
    pid: Number = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


_NO_CATEGORY = {"cat": "(not a complete event)"}
_SKIPPED = tuple(
    msgspec.defstruct(f"Skipped{ord(tag)}", [], tag_field="ph", tag=tag, gc=False, namespace=_NO_CATEGORY)
    for tag in "BEbenstfIMNODPRcvVp("
)
NOT_COMPLETE = {CounterEvent.cat, InstantEvent.cat, *_NO_CATEGORY.values()}
"""What stands for a category in events that are not complete (\"X\") ones."""

AnyEvent = Event | TextEvent | CounterEvent | InstantEvent


def _document(event: type) -> type:
    """The last chunk as a whole document: remaining events, then the keys behind them."""
    keys = [(key, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=key)) for key in HEADER_KEYS]
    fields = [(re.sub(r"\W", "_", key), kind, default) for key, kind, default in keys]
    return msgspec.defstruct("Document", [("traceEvents", list[_union(event)]), *fields], gc=False)  # type: ignore[misc]


def _union(event: type) -> Any:  # noqa: ANN401 - a type built at run time
    union: Any = event
    for other in (CounterEvent, InstantEvent, *_SKIPPED):
        union = union | other
    return union


HEADER_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "rocprofiler-sdk_version",
    "record_shapes",
    "with_stack",
    "with_modules",
    "profile_memory",
    "host_name",
    "trace_id",
    "displayTimeUnit",
)
"""Top-level keys that are read. Everything else, such as a job's environment, never leaves the file."""


class EventDecoder:
    """msgspec decoding of event arrays, with a forgiving second look at what it refuses."""

    def __init__(self, event: type[Event | TextEvent] = Event) -> None:
        kinds: Any = _union(event)
        self._array: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[kinds])
        self._document: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_document(event))

    def array(self, data: bytes) -> list[AnyEvent]:
        """The events of a JSON array; raises `Unreadable`."""
        try:
            return self._array.decode(data)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, msgspec.ValidationError):
            return self._tidied(_lenient(data))

    def document(self, data: bytes) -> tuple[list[AnyEvent], dict[str, Any]]:
        """The events of ``{"traceEvents": [...], ...}`` and the whitelisted other values."""
        try:
            document = self._document.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError):
            values = _lenient(data)
            events = self._tidied(values.pop("traceEvents", None))
            return events, {key: value for key, value in values.items() if key in HEADER_KEYS}
        fields = zip(document.__struct_fields__[1:], HEADER_KEYS, strict=True)
        raw = {key: bytes(getattr(document, name)) for name, key in fields}
        return document.traceEvents, {key: msgspec.json.decode(text) for key, text in raw.items() if text}

    def single(self, data: bytes) -> list[AnyEvent]:
        """One event out of a damaged stretch; raises `Unreadable`."""
        text = data.strip(b" \t\r\n,")
        try:
            return self.array(b"[" + text + b"]")
        except Unreadable:
            pass
        try:  # a whole object followed by what closes the document, or by another document
            _, end = json.JSONDecoder(strict=False).raw_decode(text.decode("latin-1"))
        except (ValueError, RecursionError):
            raise Unreadable from None
        return self.array(b"[" + text[:end] + b"]")

    def _tidied(self, events: Any) -> list[AnyEvent]:  # noqa: ANN401 - whatever the file holds
        if not isinstance(events, list):
            raise Unreadable
        try:
            return self._array.decode(msgspec.json.encode([_tidy(event) for event in events]))  # type: ignore[no-any-return]
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise Unreadable from error


_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
_BARE_WORD = re.compile(r"(?<=[:\[,])(\s*)(?:N/A|n/a|-?nan(?:\(\w*\))?|-?inf|None|undefined)(?=\s*[,}\]])")
_SCALARS = {"name", "cat", "pid", "tid", "ts", "dur"}


def _lenient(data: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
    """JSON as old and odd writers wrote it: control bytes, bad UTF-8, lone backslashes, N/A, NaN."""
    text = data.decode("utf-8", "replace")
    for repair in (None, _repaired):
        try:
            return json.loads(repair(text) if repair else text, strict=False)
        except (ValueError, RecursionError):
            continue
    raise Unreadable


def _repaired(text: str) -> str:
    return _BARE_WORD.sub(r"\1null", _BAD_ESCAPE.sub(r"\\\\", text))


def _tidy(event: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the file holds
    """An event whose scalars have the types the structs declare; raises `Unreadable` if it is no event."""
    if not isinstance(event, dict) or not isinstance(event.get("ph"), str):
        raise Unreadable
    tidy = {key: event[key] for key in _SCALARS if isinstance(event.get(key), int | float | str)}
    tidy = {key: str(value) if isinstance(value, bool) else value for key, value in tidy.items()}
    for key in ("ts", "dur"):
        if isinstance(tidy.get(key), float) and not math.isfinite(tidy[key]):
            tidy[key] = None
    if not isinstance(tidy.get("cat"), str):
        tidy.pop("cat", None)
    args = event.get("args")
    ph = event["ph"] if event["ph"] in _KNOWN_PHASES else "i"
    return tidy | {"ph": ph, "args": _finite(args) if isinstance(args, dict) else {}}


_KNOWN_PHASES = frozenset("XCBEbenstfiIMNODPRcvVp(")


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value without NaN and infinities, which strict JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


class ExactDecoder(EventDecoder):
    """Decodes again with stamps as text as soon as one is seen that a float cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self._exact: EventDecoder | None = None

    def array(self, data: bytes) -> list[AnyEvent]:
        if self._exact is None:
            events = super().array(data)
            if not _needs_text(events):
                return events
            self._exact = EventDecoder(TextEvent)
        return self._exact.array(data)

    def document(self, data: bytes) -> tuple[list[AnyEvent], dict[str, Any]]:
        if self._exact is None:
            events, trailer = super().document(data)
            if not _needs_text(events):
                return events, trailer
            self._exact = EventDecoder(TextEvent)
        return self._exact.document(data)


def _needs_text(events: list[AnyEvent]) -> bool:
    # all stamps of a file share their clock and their precision, so a sample tells
    stamps = [event.ts for event in events[::_STAMP_SAMPLE] if type(event) is Event]
    return any(type(ts) is float and ts >= _EXACT_US and not ts.is_integer() for ts in stamps)
