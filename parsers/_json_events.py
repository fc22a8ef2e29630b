"""The scanner seam of the Kineto parser: a JSON document in, typed column batches out.

`scan` yields batches of frames by table; nothing behind it knows JSON. The engine here is msgspec: events
decode into structs whose ``args`` stay raw, only the kinds of events that are kept have their args decoded,
and everything else costs a skip. A native engine may replace `scan` with the same tables and counts.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from traceview.parsers._json_decode import (
    HEADER_KEYS,
    NOT_COMPLETE,
    CounterEvent,
    ExactDecoder,
    InstantEvent,
    Number,
)
from traceview.parsers._json_stream import EventStream
from traceview.parsers._numbers import integers, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from traceview.source import ByteStream

    Choosing = dict[str, Callable[[Number], str | None]]

MAX_NAME = 4096
"""Longest name kept, in characters."""
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
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_mm",
    "aten::_grouped_mm",
    "aten::_scaled_grouped_mm",
    "deepep::",
    "hybridep::",
    "_c10d_functional::",
    "symm_mem::",
    "aten::item",
    "aten::nonzero",
    "aten::_local_scalar_dense",
)
"""Host operators that later stages read: phases, shapes of matrix products, expert-parallel calls, and those
that make the host wait for a value of the device."""

MODULE_PREFIX = "nn.Module: "

MEMORY_EVENT = "[memory]"
"""Instant event for everything PyTorch's allocators did (``profile_memory=True``)."""


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
    dtypes: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input type")


class OperatorArgs(ShapeArgs, gc=False):
    """Arguments of a host operator that stands for device work."""

    values: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Concrete Inputs")


class SyncArgs(msgspec.Struct, gc=False):
    """Arguments of a synchronisation row."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")


class MemoryArgs(msgspec.Struct, gc=False):
    """Arguments of an allocator's event; totals are those after it, and absent before PyTorch 1.10."""

    device_type: Number = msgspec.field(default=None, name="Device Type")
    device: Number = msgspec.field(default=None, name="Device Id")
    allocated: Number = msgspec.field(default=None, name="Total Allocated")
    reserved: Number = msgspec.field(default=None, name="Total Reserved")


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


def scan(stream: ByteStream, result: Scan, *, every_operator: bool = False) -> Iterator[Batch]:
    """Yields the kept events of a document as frames by table name; fills ``result`` on the way.

    Tables: ``device``, ``launch``, ``annotation``, ``host``, ``comm``, ``sync``, ``overhead``, ``counter``,
    ``memory``; every one but the last two has ``name, pid, tid, ts_ns, dur_ns`` and the columns of its args.
    ``ts_ns`` excludes ``baseTimeNanoseconds``.
    With ``every_operator`` the table ``operator`` holds all host operators, and ``host`` is not made.
    """
    events = EventStream(stream, ExactDecoder())
    choosing = _CHOOSING | {"cpu": _operator_table} if every_operator else _CHOOSING
    for chunk in events:
        categories = list(map(operator.attrgetter("cat"), chunk))
        result.event_count += len(chunk)
        result.categories.update(categories)
        yield _columns(chunk, categories, choosing)
    result.categories -= NOT_COMPLETE
    result.top_level_keys = frozenset(events.header)
    result.header = {key: value for key, value in events.header.items() if key in HEADER_KEYS}
    result.has_events, result.truncated = events.has_events, events.truncated
    result.lost_events, result.lost_bytes = events.lost_events, events.lost_bytes


def _columns(events: Sequence[Any], categories: Sequence[str | None], choosing: Choosing) -> Batch:
    """The kept ones among ``events`` as frames by table; ``choosing`` decides where names have to."""
    kept: dict[str, list[Any]] = {name: [] for name in _BUILDERS}
    for event, table in zip(events, map(_TABLE_OF_CATEGORY.get, categories), strict=True):
        if table is None:
            continue
        if table in choosing:
            table = choosing[table](event.name)  # noqa: PLW2901 - the row's own choice of table
            if table is None:
                continue
        kept[table].append(event)
    return {name: _BUILDERS[name](rows) for name, rows in kept.items() if rows}


def _host_table(name: Number) -> str | None:
    if name == "record_param_comms":
        return "comm"
    return "host" if type(name) is str and name.startswith(KEPT_HOST_PREFIXES) else None


def _operator_table(name: Number) -> str | None:
    return "comm" if name == "record_param_comms" else "operator"


def _python_table(name: Number) -> str | None:
    return "annotation" if type(name) is str and name.startswith(MODULE_PREFIX) else None


def _instant_table(name: Number) -> str | None:
    return "memory" if name == MEMORY_EVENT else None


_CHOOSING: Choosing = {
    "cpu": _host_table,
    "python": _python_table,
    "instant": _instant_table,
}
"""Categories of which few rows are kept, chosen by name."""

_TABLE_OF_CATEGORY: dict[str | None, str] = {
    **dict.fromkeys(DEVICE_CATEGORIES, "device"),
    **dict.fromkeys(LAUNCH_CATEGORIES, "launch"),
    **dict.fromkeys(HOST_CATEGORIES, "cpu"),
    "user_annotation": "annotation",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "overhead": "overhead",
    "python_function": "python",
    CounterEvent.cat: "counter",
    InstantEvent.cat: "instant",
}


def _common(events: Sequence[Any]) -> dict[str, pl.Series]:
    return {
        "name": pl.Series(
            ["" if e.name is None else str(e.name)[:MAX_NAME] for e in events], dtype=pl.Categorical
        ),
        "pid": integers([e.pid for e in events]),
        "tid": integers([e.tid for e in events]),
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
        name: integers([getattr(a, name) for a in args])
        for name in ("device", "stream", "correlation", "graph_node_id", "bytes", "from_device", "in_device")
    }
    links = {
        "external_id": integers(
            [a.external_id if a.external_id is not None else a.external_id_old for a in args]
        )
    }
    texts = {
        "event_kind": pl.Series(kinds, dtype=pl.Categorical),
        "kind": pl.Series([a.kind for a in args], dtype=pl.Categorical),
        "grid_blocks": integers([_grid_blocks(a.grid) for a in args]),
    }
    return pl.DataFrame(_common(events) | numbers | links | texts)


def _comm_metadata(args: Sequence[DeviceArgs]) -> dict[str, pl.Series]:
    """Communication metadata as recorded."""
    return {
        name: integers(values) if kind is pl.Int64 else pl.Series(list(map(_text, values)), dtype=pl.String)
        for name, kind in COMM_SCHEMA.items()
        for values in [[getattr(a, name) for a in args]]
    }


def _launch_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, LinkArgs)
    return pl.DataFrame(
        _common(events)
        | {
            "correlation": integers([a.correlation for a in args]),
            "external_id": integers(
                [a.external_id if a.external_id is not None else a.external_id_old for a in args]
            ),
        }
    )


def _annotation_columns(events: Sequence[Any]) -> pl.DataFrame:
    return pl.DataFrame(_common(events))


def _host_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, ShapeArgs)
    return pl.DataFrame(_common(events) | _inputs(args))


def _operator_columns(events: Sequence[Any]) -> pl.DataFrame:
    """As the host rows; the arguments of calls to process groups are kept as one JSON list of lists."""
    args = _decode_args(events, OperatorArgs)
    calls = [str(e.name).startswith("c10d::") for e in events]
    arguments = [
        _short_list(a.shapes, a.dtypes, a.values) if call else None
        for a, call in zip(args, calls, strict=True)
    ]
    return pl.DataFrame(
        _common(events) | _inputs(args) | {"arguments": pl.Series(arguments, dtype=pl.String)}
    )


def _inputs(args: Sequence[ShapeArgs]) -> dict[str, pl.Series]:
    """Shapes and types of an operator's inputs as recorded."""
    texts = {"shapes": [a.shapes for a in args], "dtypes": [a.dtypes for a in args]}
    return {name: pl.Series(list(map(_short_text, raw)), dtype=pl.String) for name, raw in texts.items()}


def _short_list(*parts: msgspec.Raw) -> str | None:
    """The parts as one JSON list; None if a part is missing or they are too long to be kept."""
    texts = [bytes(part) for part in parts]
    if not all(texts) or sum(map(len, texts)) > MAX_NAME:
        return None
    return "[" + ",".join(text.decode("utf-8", "replace") for text in texts) + "]"


def _short_text(raw: msgspec.Raw) -> str | None:
    return bytes(raw)[:MAX_NAME].decode("utf-8", "replace") or None


def _comm_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, CommArgs)
    numbers = {
        name: integers([getattr(a, name) for a in args]) for name in ("rank", "rank_start", "rank_stride")
    }
    links = {"external_id": integers([a.external_id for a in args])}
    return pl.DataFrame(_common(events) | numbers | links | _comm_metadata(args))


def _sync_columns(events: Sequence[Any]) -> pl.DataFrame:
    args = _decode_args(events, SyncArgs)
    numbers = {
        name: integers([getattr(a, name) for a in args]) for name in ("device", "stream", "correlation")
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
            "pid": integers(pids),
            "ts_ns": nanoseconds(stamps),
            "value": pl.Series(values, dtype=pl.Float64),
        }
    )


def _memory_columns(events: Sequence[InstantEvent]) -> pl.DataFrame:
    args = _decode_args(events, MemoryArgs)
    numbers = {
        name: integers([getattr(a, name) for a in args])
        for name in ("device_type", "device", "allocated", "reserved")
    }
    return pl.DataFrame({"ts_ns": nanoseconds([event.ts for event in events])} | numbers)


_BUILDERS: dict[str, Callable[[Sequence[Any]], pl.DataFrame]] = {
    "device": _device_columns,
    "launch": _launch_columns,
    "annotation": _annotation_columns,
    "host": _host_columns,
    "operator": _operator_columns,
    "comm": _comm_columns,
    "sync": _sync_columns,
    "overhead": _annotation_columns,
    "counter": _counter_columns,
    "memory": _memory_columns,
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
