"""The scanner seam of the Kineto parser: a JSON document in, typed column batches out.

`scan` yields `Batch`es of the tables declared in `EVENTS`; nothing behind it knows JSON. The engine here
is msgspec: events decode into structs whose ``args`` stay raw, only the kinds of events that are kept have
their args decoded, and everything else costs a skip. A native engine may replace `scan` with the same
tables and the same counts.

Stamps are exact: decimal microseconds become int64 nanoseconds without passing through a float that
cannot hold them (a 16-digit epoch stamp with three decimals does not fit in 53 bits).
"""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import polars as pl

from traceview.parsers._json_stream import EventStream, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from traceview.source import ByteStream

MAX_NAME = 4096
"""Longest name kept, in characters."""

_STAMP_SAMPLE = 16
_EXACT_US = float(1 << 43)  # below this a float64 of microseconds still tells nanoseconds apart

DEVICE_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "Kernel": "kernel",  # before PyTorch 1.12
    "Memcpy": "memcpy",
    "Memset": "memset",
    "mtia_ccp_events": "kernel",
    "hpu_op": "kernel",
    "collective_comm": "kernel",
}
"""Event categories that are device work, and its kind. Never decided by pid or stream: host rows of
compiled Triton code carry a ``stream`` argument too."""

LAUNCH_CATEGORIES = (
    "cuda_runtime",
    "cuda_driver",
    "Runtime",
    "xpu_runtime",
    "xpu_driver",
    "mtia_runtime",
    "glow_runtime",
    "privateuse1_runtime",
    "privateuse1_driver",
)
HOST_CATEGORIES = ("cpu_op", "Operator")
KINETO_CATEGORIES = frozenset(
    {*DEVICE_CATEGORIES, *LAUNCH_CATEGORIES, *HOST_CATEGORIES, "user_annotation", "gpu_user_annotation"}
    | {"python_function", "cuda_sync", "xpu_sync", "overhead", "cuda_event", "cuda_profiler_range", "Trace"}
    | {"external_correlation", "xpu_scope_profiler", "hardware_counters", "mtia_counters", "mtia_insight"}
)

KEPT_HOST_PREFIXES = (
    "autograd::engine::evaluate_function",
    "aten::_grouped_mm",
    "aten::_scaled_grouped_mm",
    "deepep::",
    "hybridep::",
    "_c10d_functional::",
    "symm_mem::",
)
"""Host operators that later stages read: phases, grouped-GEMM shapes, expert-parallel calls."""

MODULE_PREFIX = "nn.Module: "

Number = int | float | str | None


class DeviceArgs(msgspec.Struct, gc=False):
    """Arguments of a device row; absent ones are None."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    external_id: Number = msgspec.field(default=None, name="External id")
    external_id_old: Number = msgspec.field(default=None, name="external id")
    graph_node_id: Number = msgspec.field(default=None, name="graph node id")
    bytes: Number = None
    grid: list[int] | str | None = None
    kind: str | None = None
    from_device: Number = msgspec.field(default=None, name="fromDevice")
    in_device: Number = msgspec.field(default=None, name="inDevice")
    collective_name: str | None = msgspec.field(default=None, name="Collective name")
    dtype: str | None = None
    in_elements: Number = msgspec.field(default=None, name="In msg nelems")
    out_elements: Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: Number = msgspec.field(default=None, name="Group size")
    in_splits: str | list[int] | None = msgspec.field(default=None, name="In split size")
    out_splits: str | list[int] | None = msgspec.field(default=None, name="Out split size")
    group_name: Number = msgspec.field(default=None, name="Process Group Name")
    group_desc: str | None = msgspec.field(default=None, name="Process Group Description")
    group_ranks: str | list[int] | None = msgspec.field(default=None, name="Process Group Ranks")
    src_rank: Number = msgspec.field(default=None, name="Src Rank")
    dst_rank: Number = msgspec.field(default=None, name="Dst Rank")
    seq: Number = msgspec.field(default=None, name="Seq")
    comm_id: Number = msgspec.field(default=None, name="Comms Id")


class CommArgs(DeviceArgs, gc=False):
    """Arguments of a ``record_param_comms`` host row."""

    rank: Number = msgspec.field(default=None, name="Rank")
    rank_start: Number = msgspec.field(default=None, name="Global rank start")
    rank_stride: Number = msgspec.field(default=None, name="Global rank stride")


class LinkArgs(msgspec.Struct, gc=False):
    """Arguments that link a host call to device rows."""

    correlation: Number = None
    external_id: Number = msgspec.field(default=None, name="External id")
    external_id_old: Number = msgspec.field(default=None, name="external id")


class ShapeArgs(msgspec.Struct, gc=False):
    """Arguments of a kept host operator."""

    shapes: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input Dims")


class SyncArgs(msgspec.Struct, gc=False):
    """Arguments of a synchronisation row."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")


class CounterArgs(msgspec.Struct, gc=False):
    """Arguments of an instant memory event; other counters are read generically."""

    bytes: Number = None


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
    ts: float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


_NO_CATEGORY = {"cat": "(not a complete event)"}
_SKIPPED = tuple(
    msgspec.defstruct(f"Skipped{ord(tag)}", [], tag_field="ph", tag=tag, gc=False, namespace=_NO_CATEGORY)
    for tag in "BEbenstfiIMNODPRcvVp("
)
AnyEvent = Event | TextEvent | CounterEvent


def _document(event: type) -> type:
    """The last chunk as a whole document: remaining events, then the keys behind them."""
    keys = [(key, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=key)) for key in HEADER_KEYS]
    fields = [(re.sub(r"\W", "_", key), kind, default) for key, kind, default in keys]
    return msgspec.defstruct("Document", [("traceEvents", list[_union(event)]), *fields], gc=False)  # type: ignore[misc]


def _union(event: type) -> Any:  # noqa: ANN401 - a type built at run time
    union: Any = event
    for other in (CounterEvent, *_SKIPPED):
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


@dataclass(slots=True)
class Scan:
    """What a scan found besides rows; complete once its batches have been consumed."""

    header: dict[str, Any] = field(default_factory=dict)
    top_level_keys: frozenset[str] = frozenset()
    has_events: bool = False
    truncated: bool = False
    lost_events: int = 0
    lost_bytes: int = 0
    event_count: int = 0
    categories: set[str | None] = field(default_factory=set)


Batch = dict[str, pl.DataFrame]


COMM_SCHEMA = {
    "in_elements": pl.Int64,
    "out_elements": pl.Int64,
    "group_size": pl.Int64,
    "src_rank": pl.Int64,
    "dst_rank": pl.Int64,
    "seq": pl.Int64,
    "collective_name": pl.String,
    "dtype": pl.String,
    "in_splits": pl.String,
    "out_splits": pl.String,
    "group_name": pl.String,
    "group_desc": pl.String,
    "group_ranks": pl.String,
    "comm_id": pl.String,
}
"""Communication metadata of ``device`` rows (absent from a batch in which no row has any) and ``comm`` rows;
lists are still the text the profiler wrote."""


def scan(stream: ByteStream, result: Scan) -> Iterator[Batch]:
    """Yields the kept events of a document as frames by table name; fills ``result`` on the way.

    Tables: ``device``, ``launch``, ``annotation``, ``host``, ``comm``, ``sync``, ``counter``; every one has
    ``name, pid, tid, ts_ns, dur_ns`` and the columns of its args. ``ts_ns`` excludes ``baseTimeNanoseconds``.
    """
    events = EventStream(stream, _Retrying())
    for chunk in events:
        categories = list(map(operator.attrgetter("cat"), chunk))
        result.event_count += len(chunk)
        result.categories.update(categories)
        yield _columns(chunk, categories)
    result.categories -= {CounterEvent.cat, *_NO_CATEGORY.values()}
    result.top_level_keys = frozenset(events.header)
    result.header = {key: value for key, value in events.header.items() if key in HEADER_KEYS}
    result.has_events, result.truncated = events.has_events, events.truncated
    result.lost_events, result.lost_bytes = events.lost_events, events.lost_bytes


class _Retrying(EventDecoder):
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


def _columns(events: Sequence[Any], categories: Sequence[str | None]) -> Batch:
    """The kept ones among ``events`` as frames by table."""
    kept: dict[str, list[Any]] = {name: [] for name in _BUILDERS}
    for event, table in zip(events, map(_TABLE_OF_CATEGORY.get, categories), strict=True):
        if table is None:
            continue
        if table in _CHOOSING:
            table = _CHOOSING[table](event.name)  # noqa: PLW2901 - the row's own choice of table
            if table is None:
                continue
        kept[table].append(event)
    return {name: _BUILDERS[name](rows) for name, rows in kept.items() if rows}


def _host_table(name: Number) -> str | None:
    if name == "record_param_comms":
        return "comm"
    return "host" if type(name) is str and name.startswith(KEPT_HOST_PREFIXES) else None


def _python_table(name: Number) -> str | None:
    return "annotation" if type(name) is str and name.startswith(MODULE_PREFIX) else None


_CHOOSING: dict[str, Callable[[Number], str | None]] = {"cpu": _host_table, "python": _python_table}
"""Categories of which few rows are kept, chosen by name."""

_TABLE_OF_CATEGORY: dict[str | None, str] = {
    **dict.fromkeys(DEVICE_CATEGORIES, "device"),
    **dict.fromkeys(LAUNCH_CATEGORIES, "launch"),
    **dict.fromkeys(HOST_CATEGORIES, "cpu"),
    "user_annotation": "annotation",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "python_function": "python",
    CounterEvent.cat: "counter",
}


def _common(events: Sequence[Any]) -> dict[str, pl.Series]:
    return {
        "name": pl.Series(
            ["" if e.name is None else str(e.name)[:MAX_NAME] for e in events], dtype=pl.Categorical
        ),
        "pid": _integers([e.pid for e in events]),
        "tid": _integers([e.tid for e in events]),
        "ts_ns": nanoseconds([e.ts for e in events]),
        "dur_ns": nanoseconds([e.dur for e in events]),
    }


def _device_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, DeviceArgs)
    rows = _plain_device_columns(events, args)
    # communication metadata is rare and wide: its columns are built for the rows that have it
    described = [index for index, a in enumerate(args) if a.collective_name is not None]
    if not described:
        return rows
    metadata = pl.DataFrame(_comm_metadata([args[index] for index in described]))
    at = pl.Series("row", described, dtype=pl.UInt32)
    return (
        rows.with_row_index("row")
        .join(metadata.with_columns(at), on="row", how="left", maintain_order="left")
        .drop("row")
    )


def _plain_device_columns(events: Sequence[Any], args: Sequence[DeviceArgs]) -> pl.DataFrame:
    kinds = [DEVICE_CATEGORIES[e.cat] for e in events]
    numbers = {
        name: _integers([getattr(a, name) for a in args])
        for name in ("device", "stream", "correlation", "graph_node_id", "bytes", "from_device", "in_device")
    }
    links = {
        "external_id": _integers(
            [a.external_id if a.external_id is not None else a.external_id_old for a in args]
        )
    }
    texts = {
        "event_kind": pl.Series(kinds, dtype=pl.Categorical),
        "kind": pl.Series([a.kind for a in args], dtype=pl.Categorical),
        "grid_blocks": pl.Series([_grid_blocks(a.grid) for a in args], dtype=pl.Int64),
    }
    return pl.DataFrame(_common(events) | numbers | links | texts)


def _comm_metadata(args: Sequence[DeviceArgs]) -> dict[str, pl.Series]:
    """Communication metadata as recorded."""
    return {
        name: _integers(values) if kind is pl.Int64 else pl.Series(list(map(_text, values)), dtype=pl.String)
        for name, kind in COMM_SCHEMA.items()
        for values in [[getattr(a, name) for a in args]]
    }


def _launch_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, LinkArgs)
    return pl.DataFrame(
        _common(events)
        | {
            "correlation": _integers([a.correlation for a in args]),
            "external_id": _integers(
                [a.external_id if a.external_id is not None else a.external_id_old for a in args]
            ),
        }
    )


def _annotation_columns(events: Sequence[Any]) -> pl.DataFrame:
    return pl.DataFrame(_common(events))


def _host_columns(events: Sequence[Any]) -> pl.DataFrame:
    shapes = [
        bytes(a.shapes)[:MAX_NAME].decode("utf-8", "replace") or None for a in _decode_args(events, ShapeArgs)
    ]
    return pl.DataFrame(_common(events) | {"shapes": pl.Series(shapes, dtype=pl.String)})


def _comm_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, CommArgs)
    numbers = {
        name: _integers([getattr(a, name) for a in args]) for name in ("rank", "rank_start", "rank_stride")
    }
    links = {"external_id": _integers([a.external_id for a in args])}
    return pl.DataFrame(_common(events) | numbers | links | _comm_metadata(args))


def _sync_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, SyncArgs)
    numbers = {
        name: _integers([getattr(a, name) for a in args]) for name in ("device", "stream", "correlation")
    }
    kinds = pl.Series([a.sync_kind for a in args], dtype=pl.Categorical)
    return pl.DataFrame(_common(events) | numbers | {"sync_kind": kinds})


def _counter_columns(events: Sequence[CounterEvent]) -> pl.DataFrame:
    """One row per numeric series of each sample; the series' name stands in ``series``."""
    names, series, pids, stamps, values = [], [], [], [], []
    for event in events:
        sample = _generic_args(event.args)
        for key, value in sample.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                names.append(str(event.name)[:MAX_NAME])
                series.append(str(key)[:MAX_NAME])
                pids.append(event.pid)
                stamps.append(event.ts)
                values.append(float(value))
    return pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.Categorical),
            "series": pl.Series(series, dtype=pl.Categorical),
            "pid": _integers(pids),
            "ts_ns": nanoseconds(stamps),
            "value": pl.Series(values, dtype=pl.Float64),
        }
    )


_BUILDERS: dict[str, Callable[[Sequence[Any]], pl.DataFrame]] = {
    "device": _device_columns,
    "launch": _launch_columns,
    "annotation": _annotation_columns,
    "host": _host_columns,
    "comm": _comm_columns,
    "sync": _sync_columns,
    "counter": _counter_columns,
}


def _decode_args(events: Sequence[Any], kind: type) -> list[Any]:
    """The args of each event as ``kind``; one odd args object costs a second look at that one only."""
    raw = [event.args or b"{}" for event in events]
    try:
        return msgspec.json.decode(b"[" + b",".join(raw) + b"]", type=list[kind])  # type: ignore[valid-type]
    except (msgspec.DecodeError, msgspec.ValidationError):
        return [_decode_one(bytes(text), kind) for text in raw]


def _decode_one(text: bytes, kind: type) -> Any:  # noqa: ANN401 - an instance of kind
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        usable = {}
    for name, value in _generic_args(text).items():
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError:
            continue
        usable[name] = value
    return msgspec.convert(usable, kind)


def _generic_args(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw or b"{}")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: Number | list[int]) -> str | None:
    return value if value is None or type(value) is str else str(value)


def _grid_blocks(grid: list[int] | str | None) -> int | None:
    return math.prod(grid) if type(grid) is list and len(grid) == 3 else None


_FIRST_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)")
_U64 = 1 << 64


def _integers(values: Sequence[Number]) -> pl.Series:
    """int64, from integers or the first integer of a text (``stream 7``, ``0x0``); null if there is none."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError):
        return pl.Series([_integer(value) for value in values], dtype=pl.Int64)


def _integer(value: Number) -> int | None:
    if isinstance(value, str):
        match = _FIRST_INTEGER.search(value)
        value = int(match[0], 0 if "x" in match[0].lower() else 10) if match else None
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    number = int(value)
    if (1 << 63) <= number < _U64:
        number -= _U64  # pthread ids and addresses are unsigned 64-bit: same bits, signed
    return number if -(1 << 63) <= number < (1 << 63) else None


def nanoseconds(stamps: Sequence[Any]) -> pl.Series:
    """int64 ns from microseconds given as numbers or as decimal text; null where there is no number."""
    if set(map(type, stamps)) <= {float, int, type(None)}:
        return _from_microseconds(np.array(stamps, dtype=np.float64))
    return _decimal_nanoseconds(stamps)


def _from_microseconds(us: npt.NDArray[np.float64]) -> pl.Series:
    known = np.abs(us) < 2.0**53  # false for NaN, which is what None became
    us = np.where(known, us, 0.0)
    # whole and fractional part apart: ts * 1000 in float64 would round 16-digit stamps
    whole = np.floor(us)
    ns = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    series = pl.Series(ns)
    return series if known.all() else pl.select(pl.when(pl.Series(known)).then(series)).to_series()


_DECIMAL = r"^\s*\"?\s*([+-]?\d{1,16})(?:\.(\d*))?\s*\"?\s*$"


def _decimal_nanoseconds(stamps: Sequence[Any]) -> pl.Series:
    """Exact ns from decimal text; numbers among the texts are taken as they print."""
    text = pl.Series([_stamp_text(stamp) for stamp in stamps], dtype=pl.String)
    whole, digits = (text.str.extract(_DECIMAL, group) for group in (1, 2))
    fraction = (digits.fill_null("") + "0000").str.slice(0, 4).cast(pl.Int64)
    sign = whole.str.starts_with("-").replace_strict({True: -1, False: 1}, return_dtype=pl.Int64)
    ns = whole.cast(pl.Int64) * 1000 + sign * ((fraction + 5) // 10)
    odd = text.is_not_null() & ns.is_null()  # exponents and the like
    if not odd.any():
        return ns
    parsed = _from_microseconds(text.str.strip_chars(' "').cast(pl.Float64, strict=False).to_numpy())
    return pl.select(pl.when(odd).then(parsed).otherwise(ns)).to_series()


def _stamp_text(stamp: Any) -> str | None:  # noqa: ANN401 - number, text or raw JSON
    if stamp is None or type(stamp) is str:
        return stamp
    if isinstance(stamp, msgspec.Raw):
        return bytes(stamp).decode("ascii", "replace") or None
    return repr(stamp)
