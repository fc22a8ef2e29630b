"""From the tables of an Nsight Systems export to one trace per traced process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview import schema
from traceview.errors import UnknownFormatError
from traceview.parsers import (
    _nsys_counters,
    _nsys_device,
    _nsys_ids,
    _nsys_nccl,
    _nsys_notes,
    _nsys_process,
    _nsys_ranges,
)
from traceview.parsers._nsys_stamps import Clock, Stamps, rows_where
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from traceview.parsers._nsys_export import Export

_HIGHEST_DEVICE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Report:
    """What the processes of a report share; every frame has ``process, ts_ns, dur_ns``."""

    export: Export
    clock: Clock
    stamps: Stamps
    work: pl.DataFrame
    launches: pl.DataFrame
    syncs: pl.DataFrame
    overheads: pl.DataFrame
    ranges: pl.DataFrame
    calls: pl.DataFrame
    memory: pl.DataFrame
    notes: tuple[pl.DataFrame, ...]

    def processes(self) -> list[int]:
        """Processes that used a device; where none did, those whose calls or ranges were recorded."""
        for frames in ([self.work], [self.launches, self.ranges]):
            found = pl.concat([frame["process"] for frame in frames]).drop_nulls().unique()
            if len(found):
                return [int(process) for process in found.sort()]
        return []


def traces(export: Export) -> list[Trace]:
    """One trace per process that used a device.

    Raises:
        UnknownFormatError: The report holds nothing that was traced.
        ParseError: A table is damaged.
    """
    report = _read(export)
    processes = report.processes()
    if not processes:
        what = "a report of Nsight Systems without device work, CUDA calls or NVTX ranges"
        hint = "record with nsys profile --trace=cuda,nvtx"
        raise UnknownFormatError.of(export.path, what, hint)
    alone = len(processes) == 1
    found = [_trace(report, process, alone=alone) for process in processes]
    return [_with_network(report, found[0]), *found[1:]]


def _read(export: Export) -> _Report:
    work = _nsys_device.work(export)
    launches = _nsys_device.launches(export, work.select("process", "correlation"))
    syncs, ranges = _nsys_device.syncs(export), _nsys_ranges.ranges(export)
    clock, stamps = Clock.of(export), Stamps.of([work, launches, syncs, ranges])
    unclosed = pl.col("end").is_null() & pl.col("start").is_not_null()
    notes = [*_nsys_notes.of_report(export), *_nsys_notes.of_open_ranges(len(ranges.filter(unclosed)))]
    closed = ranges.with_columns(pl.when(unclosed).then(stamps.last_ns).otherwise("end").alias("end"))
    placed = {}
    frames = {"device": work, "launch": launches, "sync": syncs, "range": closed}
    for what, frame in (frames | {"overhead": _nsys_device.overheads(export)}).items():
        placed[what], more = stamps.spans(frame, what, clock)
        notes += more
    return _Report(
        export=export,
        clock=clock,
        stamps=stamps,
        work=placed["device"],
        launches=placed["launch"],
        syncs=placed["sync"],
        overheads=placed["overhead"],
        ranges=placed["range"],
        calls=_nsys_nccl.calls(export, placed["range"]),
        memory=_nsys_counters.memory_events(export),
        notes=tuple(notes),
    )


def _trace(report: _Report, process: int, *, alone: bool) -> Trace:
    export, mine = report.export, pl.col("process") == process
    ranges, calls = rows_where(report.ranges, mine), report.calls.filter(mine)
    known = _nsys_nccl.communicators(calls)
    rank, rank_source = _nsys_process.rank(export, process, ranges, known, alone=alone)
    number = pl.lit(rank or 0)
    work = rows_where(report.work, mine).with_row_index("op").with_columns(rank=number, device=_device())
    launches = rows_where(report.launches, mine).with_columns(rank=number)
    ops = schema.PARSED_OPS.admit(work)
    devices = _nsys_process.devices(export, _nsys_ids.pid_of(process))
    tables = {
        "ops": ops,
        "launches": schema.LAUNCHES.admit(launches),
        "syncs": schema.SYNCS.admit(report.syncs.filter(mine).with_columns(rank=number)),
        "overheads": schema.OVERHEADS.admit(report.overheads.filter(mine).with_columns(rank=number)),
        **_annotations(ranges.with_columns(rank=number)),
        "comm_calls": _nsys_nccl.comm_calls(ops, launches, calls),
        "groups": schema.PARSED_GROUPS.empty(),
        "devices": schema.DEVICES.admit(devices.with_columns(rank=number)),
    }
    notes = [*report.notes, *_nsys_notes.of_process(export, work, launches, calls)]
    notes += _nsys_notes.of_overhead(report.overheads.filter(mine), work)
    counted, more = _counters(
        report, process, devices.filter(pl.col("device").is_in(ops["device"].implode()))
    )
    notes += more
    if counted is not None:
        tables["counters"] = schema.COUNTERS.admit(counted.with_columns(rank=number))
    facts = _facts(report, process, tables, rank, rank_source)
    ranked = [note.with_columns(rank=number.cast(pl.Int32)) for note in notes]
    return Trace(facts, tables).with_diagnostics(*ranked)


def _device() -> pl.Expr:
    """The device; a number that no device can have is taken for the first one."""
    return pl.when(pl.col("device").is_between(0, _HIGHEST_DEVICE)).then("device").otherwise(0)


def _annotations(ranges: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Ranges, and the operators among them that later stages read."""
    operator = _nsys_ranges.is_operator()
    return {
        "ranges": schema.PARSED_RANGES.admit(ranges.filter(~operator).rename({"name": "raw_name"})),
        "host_ops": schema.HOST_OPS.admit(ranges.filter(_nsys_ranges.is_kept_operator())),
    }


def _counters(
    report: _Report, process: int, owned: pl.DataFrame
) -> tuple[pl.DataFrame | None, list[pl.DataFrame]]:
    """Samples of one process and its devices, null if none were asked for; and diagnostics."""
    export, parts, notes = report.export, [], []
    if export.has(_nsys_counters.GPU_METRICS):
        parts.append(_nsys_counters.gpu_metrics(export, owned))
        if len(parts[0]) and not export.has("TARGET_INFO_CUDA_DEVICE"):
            notes.append(_nsys_notes.of_assumed_devices(len(parts[0])))
    if export.has(_nsys_counters.MEMORY_EVENTS):
        samples, unpaired = _nsys_counters.memory(report.memory.filter(pl.col("process") == process))
        parts.append(samples)
        notes += _nsys_notes.of_unpaired_memory(unpaired)
    if not parts:
        return None, notes
    placed, more = report.stamps.spans(pl.concat(parts, how="vertical_relaxed"), "counter", report.clock)
    return placed, notes + more


def _with_network(report: _Report, trace: Trace) -> Trace:
    """The trace with what was sampled of networks: once per report, since it is nobody's in particular."""
    if not any(report.export.has(table) for table in _nsys_counters.NETWORKS):
        return trace
    samples = _nsys_counters.network_metrics(report.export)
    placed, notes = report.stamps.spans(samples, "network counter", report.clock)
    number = trace.facts.rank or 0
    counters = schema.COUNTERS.admit(placed.with_columns(rank=pl.lit(number)))
    own = trace.tables.get("counters", schema.COUNTERS.empty())
    notes = [*notes, *_nsys_notes.of_network(len(placed))]
    ranked = [note.with_columns(rank=pl.lit(number, pl.Int32)) for note in notes]
    return trace.with_tables(counters=pl.concat([own, counters])).with_diagnostics(*ranked)


def _facts(
    report: _Report, process: int, tables: dict[str, pl.DataFrame], rank: int | None, rank_source: str
) -> Facts:
    ops, devices = tables["ops"], tables["devices"]
    used = devices.filter(pl.col("device").is_in(ops["device"].unique().implode()))["name"].drop_nulls()
    return Facts(
        path=str(report.export.path),
        format="nsys",
        rank=rank,
        rank_source=rank_source,
        host=_nsys_process.host(report.export),
        pid=_nsys_ids.pid_of(process),
        device_name=used[0] if len(used) else None,
        clock=report.clock.origin,
        start_ns=int(ops["ts_ns"].to_numpy().min()) if len(ops) else 0,
        end_ns=int((ops["ts_ns"] + ops["dur_ns"]).to_numpy().max()) if len(ops) else 0,
        event_count=sum(map(len, tables.values())),
        versions=_nsys_process.versions(report.export),
    )
