"""The same rows of a rank in each of the export types of Nsight Systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview.synth import nsys, nsys_arrow, nsys_json_lines, nsys_sqlite

if TYPE_CHECKING:
    from traceview.synth.timeline import Timeline


def sqlite(timeline: Timeline, rank: int) -> bytes:
    """``--type sqlite``: one database."""
    return nsys_sqlite.database(nsys.tables(timeline, rank))


def parquetdir(timeline: Timeline, rank: int) -> dict[str, bytes]:
    """``--type parquetdir``: content by file name."""
    return nsys_arrow.parquet_files(nsys.tables(timeline, rank))


def arrowdir(timeline: Timeline, rank: int) -> dict[str, bytes]:
    """``--type arrowdir``: content by file name."""
    return nsys_arrow.arrow_files(nsys.tables(timeline, rank))


def arrow(timeline: Timeline, rank: int) -> bytes:
    """``--type arrow``: one file of streams."""
    return nsys_arrow.streams(nsys.tables(timeline, rank))


def jsonlines(timeline: Timeline, rank: int) -> bytes:
    """``--type jsonlines``: one file of rows, without payloads."""
    return nsys_json_lines.lines(nsys.tables(timeline, rank))
