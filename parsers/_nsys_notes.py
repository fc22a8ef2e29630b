"""What an Nsight Systems report says went wrong, and what it cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers._nsys_columns import WORK_TABLES
from traceview.parsers._nsys_ids import clean, matches
from traceview.trace import diagnostic
from traceview.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.parsers._nsys_export import Export

_SEVERITIES = {2: "warning", 3: "error"}
_SHOWN_MESSAGES = 20
_MAX_MESSAGE = 240
# paths, assignments and addresses may carry what is private
_PRIVATE = r"\S*[/\\=@]\S*"

_GRAPH_MODE = "CUDA_GRAPH_TRACE_OPTIONS:MODE"


def of_report(export: Export) -> Iterator[pl.DataFrame]:
    """Diagnostics that concern every process of the report."""
    absent = [name for name in WORK_TABLES if not export.has(name)]
    if absent:
        text = f"the report has no table {', '.join(absent)}: nothing of that kind was traced"
        yield diagnostic("info", "nsys.table_absent", text, count=len(absent))
    yield from _messages(export)


def _messages(export: Export) -> Iterator[pl.DataFrame]:
    """What nsys itself complained about while it recorded: lost events, full buffers."""
    events = export.table("DIAGNOSTIC_EVENT").filter(pl.col("severity").is_in(list(_SEVERITIES)))
    text = (
        clean("text").str.replace_all(_PRIVATE, "…").str.replace_all(r"\s+", " ").str.slice(0, _MAX_MESSAGE)
    )
    counted = events.group_by("severity", text=text, maintain_order=True).len()
    for severity, message, count in counted.head(_SHOWN_MESSAGES).iter_rows():
        yield diagnostic(_SEVERITIES[severity], "nsys.recording", f"nsys said: {message}", count=count)
    if len(counted) > _SHOWN_MESSAGES:
        hidden = len(counted) - _SHOWN_MESSAGES
        yield diagnostic("warning", "nsys.recording", f"nsys gave {hidden} further messages", count=hidden)


def of_process(export: Export, work: pl.DataFrame, launches: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Diagnostics about the graphs of one process, from its device work and launches."""
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
