"""A run for Perfetto: one merged trace of all ranks on one clock, in the Chrome trace format.

Ranks are processes and streams are threads, with tracks for steps, layers and exposed communication. Stamps
are microseconds from the first bar, with three decimals, so no nanosecond is lost.

Source: "Trace Event Format", Google; complete events ("X"), process and thread metadata ("M").
"""

from __future__ import annotations

import gzip
import json
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from traceview.reports.lanes import GROUPS
from traceview.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.reports.lanes import Lane
    from traceview.reports.timeline import Timeline

LETTERS = 512
_KIND_ORDER = {"steps": 0, "layers": 1, "exposed": 2, "stream": 3}
_TRACK_IDS = {"steps": 1, "layers": 2, "exposed": 3}
_FIRST_STREAM = 10


def write(timeline: Timeline, file: IO[bytes]) -> int:
    """Writes the trace, gzipped, and returns the number of bars."""
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
        packed.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        names = [json.dumps(event, separators=(",", ":")).encode() for event in _names(timeline)]
        packed.write(b",\n".join(names))
        for lane, track in _tracks(timeline):
            if len(lane.bars):
                packed.write(b",\n" + _bars(timeline, lane, track))
        packed.write(b"\n]}\n")
    return timeline.bar_count


def _tracks(timeline: Timeline) -> Iterator[tuple[Lane, int]]:
    """Each lane, and its number within the rank."""
    streams: dict[int, int] = {}
    for lane in timeline.lanes:
        if lane.kind == "stream":
            streams[lane.rank] = streams.get(lane.rank, -1) + 1
        yield lane, _TRACK_IDS.get(lane.kind, _FIRST_STREAM + streams.get(lane.rank, 0))


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """What processes and threads are called, and their order."""
    for rank in sorted({lane.rank for lane in timeline.lanes}):
        yield _named(rank, 0, "process_name", name=f"rank {rank}")
        yield _named(rank, 0, "process_sort_index", sort_index=rank)
    for lane, track in _tracks(timeline):
        yield _named(lane.rank, track, "thread_name", name=printable(lane.label))
        yield _named(lane.rank, track, "thread_sort_index", sort_index=100 * _KIND_ORDER[lane.kind] + track)


def _named(rank: int, track: int, what: str, **value: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"ph": "M", "pid": rank, "tid": track, "name": what, "args": value}


def _bars(timeline: Timeline, lane: Lane, track: int) -> bytes:
    """The bars of a lane as complete events, one on each line but the last without its comma.

    A float64 of microseconds keeps three decimals for 26 days.
    """
    labels = dict(enumerate(label for label, _, _ in GROUPS))
    rows = lane.bars.select(
        ph=pl.lit("X"),
        pid=pl.lit(lane.rank),
        tid=pl.lit(track),
        ts=(pl.col("ts_ns") - timeline.begin_ns) / 1000,
        dur=pl.col("dur_ns") / 1000,
        name=_safe("name", lane.bars),
        cat=pl.col("group").replace_strict(labels, return_dtype=pl.String),
        args=pl.struct(context=_safe("context", lane.bars)),
    )
    return rows.write_ndjson().encode().rstrip(b"\n").replace(b"\n", b",\n")


def _safe(column: str, bars: pl.DataFrame) -> pl.Expr:
    """The column with nothing in it that hides or reorders text, cut at `LETTERS`."""
    texts = bars[column].drop_nulls().unique()
    known = {text: printable(text[:LETTERS]) for text in texts}
    return pl.col(column).replace_strict(known, default="", return_dtype=pl.String)
