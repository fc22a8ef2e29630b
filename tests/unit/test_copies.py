"""Copies and fills by kind: by hand, in plain Python, and by SQL over public reports."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers.copies import ANALYSIS
from traceview.contracts import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]


def _copy(start: int, length: int, size: int | None, copy_kind: str | None = "HtoD") -> Row:
    kind = "memset" if copy_kind is None else "memcpy"
    return {"ts_ns": start, "dur_ns": length, "bytes": size, "copy_kind": copy_kind, "kind": kind} | {
        "category": "memory",
        "name": kind,
    }


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


_ROWS = st.lists(
    st.builds(
        _copy,
        st.integers(0, 50),
        st.integers(0, 20),
        st.none() | st.integers(0, 1000),
        st.sampled_from([None, "HtoD", "DtoD"]),
    ),
    max_size=15,
)


@settings(max_examples=50)
@given(ranks=st.lists(_ROWS, min_size=1, max_size=3))
def test_every_figure_is_that_of_a_walk_over_all_copies(
    made: Callable[..., Trace], ranks: list[list[Row]]
) -> None:
    kernel = {"ts_ns": 0, "dur_ns": 100}
    found = _answer([made([kernel, *rows], rank=rank) for rank, rows in enumerate(ranks)], "kind")
    copies = [row for rows in ranks for row in rows]
    assert {row["copy_kind"] for row in found} == {row["copy_kind"] for row in copies}
    for row in found:
        own = [one for one in copies if one["copy_kind"] == row["copy_kind"]]
        sized = [one for one in own if one["bytes"] is not None]
        lengths, sizes = [one["dur_ns"] for one in own], [one["bytes"] for one in sized]
        assert (row["copy_count"], row["unsized_count"]) == (len(own), len(own) - len(sized))
        assert (row["total_ns"], row["min_ns"], row["max_ns"]) == (sum(lengths), min(lengths), max(lengths))
        assert row["median_ns"] == pytest.approx(np.median(lengths))
        assert row["bytes"] == (sum(sizes) if sizes else None)
        assert row["median_bytes"] == (pytest.approx(np.median(sizes)) if sizes else None)
        timed = sum(one["dur_ns"] for one in sized)
        assert row["gb_per_s"] == (pytest.approx(sum(sizes) / timed) if timed else None)


def test_bytes_per_nanosecond_are_decimal_gigabytes_per_second(made: Callable[..., Trace]) -> None:
    [row] = _answer([made([_copy(0, 10, 500), _copy(20, 10, None)])], "kind")
    assert (row["gb_per_s"], row["unsized_count"]) == (50.0, 1)


@pytest.mark.parametrize("name", ["mfu_2gpu_before", "h100_2gpu_1s"])
def test_an_nsight_report_gives_the_sums_of_sql_over_it(traces: Path, name: str, tmp_path: Path) -> None:
    report = tmp_path / f"{name}.sqlite"
    report.write_bytes(gzip.decompress((traces / "nsys/nsys-ai" / f"{name}.sqlite.gz").read_bytes()))
    query = """
        SELECT CASE copyKind WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 8 THEN 'DtoD' ELSE copyKind END,
          COUNT(*), SUM(bytes), SUM(end - start), MIN(bytes), MAX(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1
        UNION ALL SELECT NULL, COUNT(*), SUM(bytes), SUM(end - start), MIN(bytes), MAX(bytes)
          FROM CUPTI_ACTIVITY_KIND_MEMSET
    """
    with closing(sqlite3.connect(report)) as base:
        told = {row[0]: row[1:] for row in base.execute(query)}
    rows = tv.analyze(tv.load(report), "copies", by=("kind",), steps="all").frame.to_dicts()
    figures = ("copy_count", "bytes", "total_ns", "min_bytes", "max_bytes")
    assert {row["copy_kind"]: tuple(row[key] for key in figures) for row in rows} == told
