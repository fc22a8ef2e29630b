"""PyTorch profiler traces: the Chrome-trace JSON that Kineto writes, of every age and vendor.

Source: files of PyTorch 1.8 to 2.11 on CUDA, ROCm and MTIA, and Kineto's output_json.cpp. What the format
really does, and this module therefore does:

- ``ts``/``dur`` are microseconds, relative to ``baseTimeNanoseconds`` when that key exists.
- Device rows are told by category alone; pid is the device index and may collide with a host pid.
- Orphans (device rows without a launch) are normal at both ends of a window and are kept.
- A run without any accelerator has no device rows; see `_host_work` for what stands for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview import schema
from traceview.errors import ParseError, UnknownFormatError
from traceview.parsers import _foreign, _host_work
from traceview.parsers._comm_metadata import comm_calls
from traceview.parsers._json_events import (
    COMM_SCHEMA,
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    KEPT_HOST_PREFIXES,
    KINETO_CATEGORIES,
    MODULE_PREFIX,
    Batch,
    Scan,
    scan,
)
from traceview.trace import Facts, Trace, diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from traceview.source import Source

_DAY_NS = 86_400 * 10**9
_HOST_MEMORY = 0  # c10::DeviceType::CPU
_WAITING_KERNELS = ("event_wait", "host_wait")  # MTIA rows that wait instead of computing


class Kineto:
    """The PyTorch profiler (Kineto) parser."""

    name = "kineto"
    description = "PyTorch profiler (Kineto) Chrome trace: .json, also .gz, .zst or .zip"
    url = "https://docs.pytorch.org/docs/stable/profiler.html"
    version = 6

    def sniff(self, source: Source) -> bool:
        """JSON of any kind: what it is if not Kineto's is said by `parse`."""
        head = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return head[:1] in {b"{", b"["}

    def parse(self, source: Source) -> list[Trace]:
        """One trace; see the module docstring for what is kept."""
        found = Scan()
        with source.open() as stream:
            batches = list(scan(stream, found))
            damage = stream.damage
        if not found.has_events or not KINETO_CATEGORIES & found.categories:
            what, hint = _foreign.describe(
                source.head, found.top_level_keys, found.categories, found.event_count
            )
            if damage and not found.event_count:
                raise ParseError.reading(
                    source.path, "decompressing", damage, "the file is damaged; copy it again"
                )
            raise UnknownFormatError.of(source.path, what, hint)
        if not found.categories & {*DEVICE_CATEGORIES} and found.categories & {*HOST_CATEGORIES}:
            # nothing ran on a device, which shows only at the end: look again, at all that ran on the host
            found = Scan()
            with source.open() as stream:
                batches = list(scan(stream, found, every_operator=True))
        return [_trace(source, found, _merge(batches), damage)]


PARSER = Kineto()


@dataclass(frozen=True, slots=True)
class _Clock:
    """What turns stamps of the file into the trace's clock."""

    base_ns: int
    origin: str


def _merge(batches: Iterable[Batch]) -> Batch:
    parts: dict[str, list[pl.DataFrame]] = {}
    for batch in batches:
        for name, frame in batch.items():
            parts.setdefault(name, []).append(frame)
    merged = {name: pl.concat(frames, how="diagonal", rechunk=True) for name, frames in parts.items()}
    if "device" in merged:
        absent = COMM_SCHEMA.keys() - set(merged["device"].columns)
        nulls = [pl.lit(None, kind).alias(name) for name, kind in COMM_SCHEMA.items() if name in absent]
        merged["device"] = merged["device"].with_columns(nulls)
    return merged


def _trace(source: Source, found: Scan, raw: Batch, damage: str | None) -> Trace:
    clock = _clock(found.header)
    raw = {name: frame.with_columns(pl.col("ts_ns") + clock.base_ns) for name, frame in raw.items()}
    notes: list[pl.DataFrame] = list(_damage_notes(found, damage))
    trusted: Batch = {}
    center = _center(raw)
    for name, frame in raw.items():
        trusted[name], more = _trustworthy(name, frame, center)
        notes += more
    info = _distributed_info(found.header)
    rank, rank_source = _rank(info, trusted.get("comm"), source)
    number = 0 if rank is None else rank
    groups = _groups(info, number)
    devices = _devices(found.header, number)
    ops, waits = _ops(trusted.get("device"), number)
    launches = _launches(trusted.get("launch"), number, ops)
    if "operator" in trusted:
        operators = trusted["operator"]
        ops, launches, more = _host_work.work(operators, trusted.get("annotation"), groups, number)
        trusted["host"] = operators.filter(_is_kept())
        devices = schema.DEVICES.frame([{"rank": number, "device": 0, "name": _host_work.DEVICE_NAME}])
        notes += more
    tables = {
        "ops": schema.PARSED_OPS.admit(ops),
        "launches": schema.LAUNCHES.admit(launches),
        "ranges": _ranges(trusted.get("annotation"), number),
        "host_ops": _host_ops(trusted.get("host"), number),
        "syncs": pl.concat([_syncs(trusted.get("sync"), number), waits]),
        "overheads": _overheads(trusted.get("overhead"), number),
        "comm_calls": comm_calls(ops, launches, trusted.get("comm"), groups),
        "groups": groups,
        "devices": devices,
    }
    if counters := [*_counters(trusted.get("counter")), *_memory(trusted.get("memory"))]:
        rows = pl.concat(counters, how="diagonal_relaxed").with_columns(rank=pl.lit(number))
        tables["counters"] = schema.COUNTERS.admit(rows)
    facts = _facts(source, found, clock, ops, info, rank, rank_source, tables["devices"])
    notes = [note.with_columns(rank=pl.lit(number, pl.Int32)) for note in notes]
    return Trace(facts, tables).with_diagnostics(*notes)


# --- what the file says about itself ------------------------------------------------------------------


def _clock(header: dict[str, Any]) -> _Clock:
    base = header.get("baseTimeNanoseconds")
    if isinstance(base, int | str) and str(base).isdigit():
        return _Clock(int(base), "unix epoch (baseTimeNanoseconds)")
    return _Clock(0, "as stamped (no baseTimeNanoseconds)")


def _distributed_info(header: dict[str, Any]) -> dict[str, Any]:
    info = header.get("distributedInfo")
    return info if isinstance(info, dict) else {}


_RANK_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?:global_?)?rank[-_ ]?(\d+)|^worker(\d+)(?=[_.])|kineto_(\d+)\.json", re.IGNORECASE
)


def _rank(info: dict[str, Any], comm: pl.DataFrame | None, source: Source) -> tuple[int | None, str]:
    """The global rank and its evidence: distributedInfo, record_param_comms, file name, folder."""
    if (rank := _small_int(info.get("rank"))) is not None:
        return rank, "distributedInfo"
    if comm is not None and len(world := comm.filter(_covers_world())):
        return int(world["rank"][0]), "record_param_comms"
    for text, evidence in ((source.path.name, "file name"), (source.path.parent.name, "folder name")):
        if match := _RANK_IN_NAME.search(text):
            return int(next(group for group in match.groups() if group)), evidence
    return None, "none"


def _covers_world() -> pl.Expr:
    """Rows whose group-local rank is the global one: the largest group, if it starts at 0 with stride 1."""
    whole = (pl.col("rank_start") == 0) & (pl.col("rank_stride") == 1)
    return pl.col("rank").is_not_null() & whole & (pl.col("group_size") == pl.col("group_size").max())


def _small_int(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if 0 <= number < 1 << 31 else None


_HOST_IN_NAME = re.compile(r"^(?P<host>[\w.-]+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json")
_VERSION_KEYS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "nccl_version",
)


def _facts(  # noqa: PLR0913, PLR0917 - the facts come from everywhere
    source: Source,
    found: Scan,
    clock: _Clock,
    ops: pl.DataFrame,
    info: dict[str, Any],
    rank: int | None,
    rank_source: str,
    devices: pl.DataFrame,
) -> Facts:
    name = _HOST_IN_NAME.match(source.path.name)
    host = found.header.get("host_name")
    versions = {
        key: str(value)[:64] for key in _VERSION_KEYS if (value := found.header.get(key, info.get(key)))
    }
    used = devices.filter(pl.col("device").is_in(ops["device"].unique().implode()))["name"].drop_nulls()
    return Facts(
        path=str(source.path),
        format=Kineto.name,
        rank=rank,
        rank_source=rank_source,
        world_size=_small_int(info.get("world_size")),
        host=str(host)[:256] if host else (name["host"] if name else None),
        pid=int(name["pid"]) if name else None,
        device_name=used[0] if len(used) else None,
        clock=clock.origin,
        start_ns=int(ops["ts_ns"].to_numpy().min()) if len(ops) else 0,
        end_ns=int((ops["ts_ns"] + ops["dur_ns"]).to_numpy().max()) if len(ops) else 0,
        event_count=found.event_count,
        versions=versions,
    )


def _damage_notes(found: Scan, damage: str | None) -> Iterable[pl.DataFrame]:
    if damage:
        text = "the compressed file ends early or is damaged; everything before that point is used"
        yield diagnostic("warning", "kineto.stream_damaged", text, count=1)
    if found.truncated:
        text = "the event list is not closed (writer killed?); all whole events before the end are used"
        yield diagnostic("warning", "kineto.truncated", text, count=1)
    if found.lost_events:
        text = f"{found.lost_events} unreadable pieces ({found.lost_bytes} bytes) were left out"
        yield diagnostic("warning", "kineto.unreadable_events", text, count=found.lost_events)


# --- stamps ------------------------------------------------------------------------------------------


def _center(raw: Batch) -> int | None:
    """A stamp in the middle of the trace; rows a day away from it carry a broken clock."""
    frames = [raw[name] for name in ("device", "launch", "annotation", "host") if name in raw]
    stamps = pl.concat([f["ts_ns"].drop_nulls() for f in frames]) if frames else pl.Series(dtype=pl.Int64)
    # a broken clock writes one and the same lowest stamp; it must not outvote the good ones
    credible = stamps.filter(stamps != stamps.min()) if stamps.n_unique() > 1 else stamps
    return int(np.median(credible.to_numpy())) if len(credible) else None


def _trustworthy(
    name: str, frame: pl.DataFrame, center: int | None
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """The rows whose stamps can be used, and a diagnostic for each kind of row that could not."""
    notes = []
    far = pl.col("ts_ns").is_null() | ((pl.col("ts_ns") - pl.lit(center, pl.Int64)).abs() > _DAY_NS)
    kept = frame.filter(~far.fill_null(value=False))
    if lost := len(frame) - len(kept):
        text = f"{lost} {name} rows have no stamp, or one more than a day from the rest; left out"
        notes.append(diagnostic("warning", "kineto.stamp_far_away", text, count=lost))
    if "dur_ns" not in frame.columns:
        return kept, notes
    too_long = kept["dur_ns"].fill_null(0) > _DAY_NS
    if count := int(too_long.sum()):
        text = f"{count} {name} rows claim to last more than a day (counter overflow); left out"
        notes.append(diagnostic("warning", "kineto.duration_overflow", text, count=count))
        kept = kept.filter(~too_long)
    absent = kept["dur_ns"].is_null() | (kept["dur_ns"] < 0)
    if count := int(absent.sum()):
        text = f"{count} {name} rows have no duration or a negative one (unfinished); taken as 0"
        severity = "warning" if name == "device" else "info"
        notes.append(diagnostic(severity, "kineto.duration_missing", text, count=count))
    return kept.with_columns(pl.when(absent).then(0).otherwise(pl.col("dur_ns")).alias("dur_ns")), notes


# --- tables ------------------------------------------------------------------------------------------


def _ops(device: pl.DataFrame | None, rank: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Device rows as `PARSED_OPS` plus the columns collectives need; and the waits among them, as syncs."""
    if device is None:
        return _empty_ops(), schema.SYNCS.empty()
    known = device.with_columns(
        device=_small(pl.coalesce("device", "from_device", "in_device", "pid")).fill_null(0),
        stream=pl.coalesce("stream", "tid"),
        rank=pl.lit(rank),
    )
    waiting = (pl.col("event_kind") == "kernel") & pl.col("name").cast(pl.String).is_in(_WAITING_KERNELS)
    waits = schema.SYNCS.admit(known.filter(waiting))
    work = (
        known.filter(~waiting)
        .sort("ts_ns", maintain_order=True)
        .with_row_index("op")
        .with_columns(
            kind=pl.col("event_kind"),
            copy_kind=_copy_kind(),
            graph_node_id=pl.when(pl.col("graph_node_id") != 0).then("graph_node_id"),
        )
    )
    parsed = schema.PARSED_OPS.admit(work)
    return parsed.with_columns(work.select(*COMM_SCHEMA, "external_id")), waits


def _small(number: pl.Expr) -> pl.Expr:
    """The number if a device index can be that large, else null."""
    return pl.when(number.is_between(0, (1 << 31) - 1)).then(number)


def _empty_ops() -> pl.DataFrame:
    return pl.DataFrame(schema=dict(schema.PARSED_OPS.schema()) | COMM_SCHEMA | {"external_id": pl.Int64})


def _copy_kind() -> pl.Expr:
    """HtoD, DtoH, DtoD or PtoP, from ``Memcpy HtoD (...)``, ``CopyHostToDevice`` or ROCm's ``kind``."""
    text = pl.coalesce(
        pl.col("name").cast(pl.String).str.extract(r"\b([HDPA]to[HDPA])\b"),
        pl.col("kind").cast(pl.String).str.extract(r"^([HDPA]to[HDPA])$"),
        pl.col("name")
        .cast(pl.String)
        .str.extract(r"Copy((?:Host|Device|Peer)To(?:Host|Device|Peer))")
        .str.replace_all("Host", "H")
        .str.replace_all("Device", "D")
        .str.replace_all("Peer", "P")
        .str.replace("To", "to"),
    )
    return pl.when(pl.col("event_kind") == "memcpy").then(text)


_LAUNCHING = r"(?i)launch|memcpy|memset|sync|wait|graph"


def _launches(launch: pl.DataFrame | None, rank: int, ops: pl.DataFrame) -> pl.DataFrame:
    """Calls that start device work or wait for it, with their ``external_id``."""
    if launch is None:
        return schema.LAUNCHES.empty().with_columns(external_id=pl.lit(None, pl.Int64))
    linked = pl.col("correlation").is_in(ops["correlation"].drop_nulls().unique().implode())
    named = pl.col("name").cast(pl.String).str.contains(_LAUNCHING)
    kept = launch.filter(linked | named).with_columns(rank=pl.lit(rank))
    return schema.LAUNCHES.admit(kept).with_columns(kept["external_id"])


def _ranges(annotation: pl.DataFrame | None, rank: int) -> pl.DataFrame:
    if annotation is None:
        return schema.PARSED_RANGES.empty()
    domain = pl.when(pl.col("name").cast(pl.String).str.starts_with(MODULE_PREFIX)).then(pl.lit("module"))
    return schema.PARSED_RANGES.admit(
        annotation.with_columns(
            rank=pl.lit(rank), raw_name="name", domain=domain.otherwise(pl.lit("record_function"))
        )
    )


def _host_ops(host: pl.DataFrame | None, rank: int) -> pl.DataFrame:
    if host is None:
        return schema.HOST_OPS.empty()
    return schema.HOST_OPS.admit(host.with_columns(rank=pl.lit(rank)))


def _is_kept() -> pl.Expr:
    """Whether an operator is one that later stages read."""
    name = pl.col("name").cast(pl.String)
    return pl.any_horizontal(name.str.starts_with(prefix) for prefix in KEPT_HOST_PREFIXES)


def _syncs(sync: pl.DataFrame | None, rank: int) -> pl.DataFrame:
    if sync is None:
        return schema.SYNCS.empty()
    name = pl.coalesce(pl.col("sync_kind").cast(pl.String), pl.col("name").cast(pl.String))
    stream = pl.when(pl.col("stream") >= 0).then("stream")
    return schema.SYNCS.admit(sync.with_columns(rank=pl.lit(rank), name=name, stream=stream))


_DRIVER_OVERHEAD = r"(?i)lazy|command buffer|driver"
"""Overheads that CUPTI reports and that are there without a profiler."""


def _overheads(overhead: pl.DataFrame | None, rank: int) -> pl.DataFrame:
    if overhead is None:
        return schema.OVERHEADS.empty()
    own = ~pl.col("name").cast(pl.String).str.contains(_DRIVER_OVERHEAD)
    return schema.OVERHEADS.admit(overhead.filter(own).with_columns(rank=pl.lit(rank)))


def _counters(counter: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
    """Counter samples; in this format a value stands until the next one."""
    if counter is None:
        return
    metric = pl.concat_str(
        pl.col("name").cast(pl.String), pl.col("series").cast(pl.String), separator=" ", ignore_nulls=True
    ).str.strip_chars()
    yield counter.select(
        "ts_ns",
        "value",
        device=_small(pl.col("pid")),
        metric=metric,
        unit=pl.lit("as recorded"),
        holds=pl.lit("after"),
    )


_MEMORY_METRICS = {"allocated": "memory allocated", "reserved": "memory reserved"}


def _memory(memory: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
    """What the allocator of each device had handed out, and had taken from the driver, after each event.

    Host memory has no device number and is left out.
    """
    if memory is None:
        return
    of_devices = memory.filter((pl.col("device_type") != _HOST_MEMORY) & (pl.col("device") >= 0))
    for column, metric in _MEMORY_METRICS.items():
        yield of_devices.drop_nulls(column).select(
            "ts_ns",
            device=_small(pl.col("device")),
            metric=pl.lit(metric),
            unit=pl.lit("bytes"),
            value=pl.col(column).cast(pl.Float64),
            holds=pl.lit("after"),
        )


def _groups(info: dict[str, Any], rank: int) -> pl.DataFrame:
    """Process groups of ``distributedInfo.pg_config``; member lists as list or as text."""
    config = info.get("pg_config")
    rows = [entry for entry in config if isinstance(entry, dict)] if isinstance(config, list) else []
    frame = pl.DataFrame(
        {
            "group_name": [_label(entry.get("pg_name")) or "" for entry in rows],
            "group_desc": [_label(entry.get("pg_desc")) for entry in rows],
            "backend": [_label(entry.get("backend_config")) for entry in rows],
            "group_size": [_small_int(entry.get("pg_size")) for entry in rows],
            "group_ranks": [_members(entry.get("ranks")) for entry in rows],
        },
        schema={
            "group_name": pl.String,
            "group_desc": pl.String,
            "backend": pl.String,
            "group_size": pl.Int32,
            "group_ranks": pl.List(pl.Int32),
        },
    )
    return schema.PARSED_GROUPS.admit(frame.with_columns(rank=pl.lit(rank)))


def _label(value: object) -> str | None:
    return None if value is None else str(value)[:256]


def _members(value: object) -> list[int] | None:
    text = str(value)
    if value is None or "..." in text:
        return None
    numbers = [int(n) for n in re.findall(r"\d{1,9}", text)]
    return numbers or None


def _devices(header: dict[str, Any], rank: int) -> pl.DataFrame:
    listed = header.get("deviceProperties")
    rows = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    frame = pl.DataFrame(
        {
            "device": [_small_int(entry.get("id")) for entry in rows],
            "name": [_label(entry.get("name")) for entry in rows],
            "memory_bytes": [entry.get("totalGlobalMem") for entry in rows],
            "sm_count": [_small_int(entry.get("numSms")) for entry in rows],
            "compute_capability": [_capability(entry) for entry in rows],
        },
        schema=schema.DEVICES.only(
            "device", "name", "memory_bytes", "sm_count", "compute_capability"
        ).schema(),
        strict=False,
    )
    return schema.DEVICES.admit(
        frame.filter(_small(pl.col("device")).is_not_null()).with_columns(rank=pl.lit(rank))
    )


def _capability(entry: dict[str, Any]) -> str | None:
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    return None if major is None else f"{major}.{minor}"
