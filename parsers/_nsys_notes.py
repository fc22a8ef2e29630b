"""What an Nsight Systems report says went wrong, and what it cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.intervals import Spans, clip, union
from traceview.parsers._nsys_columns import WORK_TABLES
from traceview.parsers._nsys_ids import clean, matches
from traceview.trace import diagnostic
from traceview.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.intervals import Ints
    from traceview.parsers._nsys_export import Export

_SEVERITIES = {2: "warning", 3: "error"}
_SHOWN_MESSAGES = 20
_MAX_MESSAGE = 240
# paths, assignments and addresses may carry what is private
_PRIVATE = r"\S*[/\\=@]\S*"

_LOST = r"(?i)\b(?:dropped|drops?|lost|overflow\w*|discarded)\b|\bbuffers? (?:is|was|are|were) full\b"

_GRAPH_MODE = "CUDA_GRAPH_TRACE_OPTIONS:MODE"


def of_report(export: Export) -> Iterator[pl.DataFrame]:
    """Diagnostics that concern every process of the report."""
    absent = [name for name in WORK_TABLES if not export.has(name)]
    if absent:
        text = f"the report has no table {', '.join(absent)}: nothing of that kind was traced"
        yield diagnostic("info", "nsys.table_absent", text, count=len(absent))
    yield from _messages(export)


def _messages(export: Export) -> Iterator[pl.DataFrame]:
    """What nsys itself complained about while it recorded; lost events whatever it thought of them."""
    text = (
        clean("text").str.replace_all(_PRIVATE, "…").str.replace_all(r"\s+", " ").str.slice(0, _MAX_MESSAGE)
    )
    said = export.table("DIAGNOSTIC_EVENT").with_columns(text=text.fill_null(""))
    said = said.with_columns(lost=pl.col("text").str.contains(_LOST))
    events = said.filter(pl.col("severity").is_in(list(_SEVERITIES)) | pl.col("lost"))
    counted = events.group_by("severity", "text", "lost", maintain_order=True).len()
    for severity, message, lost, count in counted.head(_SHOWN_MESSAGES).iter_rows():
        code = "nsys.events_lost" if lost else "nsys.recording"
        yield diagnostic(_SEVERITIES.get(severity, "warning"), code, f"nsys said: {message}", count=count)
    if len(counted) > _SHOWN_MESSAGES:
        hidden = len(counted) - _SHOWN_MESSAGES
        yield diagnostic("warning", "nsys.recording", f"nsys gave {hidden} further messages", count=hidden)


def of_process(
    export: Export, work: pl.DataFrame, launches: pl.DataFrame, calls: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Diagnostics about the graphs and NCCL calls of one process."""
    yield from _of_graphs(export, work, launches)
    bare = calls["payload"].null_count()
    if bare and bare == len(calls) and export.has("NVTX_EVENTS_PAYLOAD_SCHEMAS"):
        text = (
            f"the payloads of {plural(bare, 'NCCL call')} lie in tables of their own, which are not read, so "
            "bytes and communicators stay unknown; export with --include-blobs=true"
        )
        yield diagnostic("info", "nsys.payload_tables", text, count=bare)


def _of_graphs(export: Export, work: pl.DataFrame, launches: pl.DataFrame) -> Iterator[pl.DataFrame]:
    blocks = work.filter(pl.col("kind") == "graph")
    advice = "record with --cuda-graph-trace=node to see the kernels inside"
    if len(blocks):
        text = (
            f"{plural(len(blocks), 'graph replay')} ({duration(int(blocks['dur_ns'].sum()))} together) are "
            f"opaque blocks, so overlap inside them cannot be told; {advice}"
        )
        yield diagnostic("warning", "nsys.graph_opaque", text, count=len(blocks))
        return
    replays = launches.filter(matches(launches["name"], "GraphLaunch"))
    modes = export.named("META_DATA_CAPTURE", [_GRAPH_MODE, f"PROCESS_0:{_GRAPH_MODE}"])
    if len(replays) and "Graph" in modes.values():
        text = f"{plural(len(replays), 'graph replay')} left no device work in the report; {advice}"
        yield diagnostic("warning", "nsys.graph_unseen", text, count=len(replays))


def of_open_ranges(count: int) -> Iterator[pl.DataFrame]:
    """Diagnostic for ranges that nobody closed."""
    if count:
        text = f"{plural(count, 'range')} were still open when recording stopped; taken to end there"
        yield diagnostic("info", "nsys.range_open", text, count=count)


def of_assumed_devices(samples: int) -> pl.DataFrame:
    """Diagnostic for GPU metrics whose device is a guess."""
    text = (
        "the report does not say which GPU each process calls its first; GPU metrics are those of the GPU "
        "that has the number on the machine, which is wrong if CUDA_VISIBLE_DEVICES was set"
    )
    return diagnostic("warning", "nsys.device_assumed", text, count=samples)


def of_unpaired_memory(events: int) -> Iterator[pl.DataFrame]:
    """Diagnostic for device memory whose sum is not known."""
    if events:
        text = (
            f"{plural(events, 'event')} of device memory have no counterpart (older than the recording, or "
            "lost): no running total is given for that memory"
        )
        yield diagnostic("info", "nsys.memory_total_unknown", text, count=events)


def of_network(samples: int) -> Iterator[pl.DataFrame]:
    """Diagnostic for counters that are the machine's, not a rank's."""
    if samples:
        text = (
            f"{plural(samples, 'sample')} of NICs and switches concern the whole machine; they stand with "
            "the first process of each report, and several reports of one machine repeat them"
        )
        yield diagnostic("info", "nsys.network_shared", text, count=samples)


def of_overhead(overhead: pl.DataFrame, work: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Diagnostic for the time that nsys itself took of a process while its devices were at work.

    Args:
        overhead: ``ts_ns, dur_ns`` of the intervals.
        work: Device work of the process.
    """
    if not len(overhead) or not len(work):
        return
    window = Spans.of(*([edge] for edge in _edges(work)))
    busy = clip(union(Spans.of(*_starts_and_ends(overhead))), window)
    if took := int(busy.durations().sum()):
        text = (
            f"nsys itself kept a thread of the process busy for {duration(took)} between its first and last "
            "device work; devices may have idled for that"
        )
        yield diagnostic("info", "nsys.overhead", text, count=len(busy))


def _edges(work: pl.DataFrame) -> tuple[int, int]:
    starts, ends = _starts_and_ends(work)
    return int(starts.min()), int(ends.max())


def _starts_and_ends(spans: pl.DataFrame) -> tuple[Ints, Ints]:
    starts = spans["ts_ns"].to_numpy()
    return starts, starts + spans["dur_ns"].to_numpy()
