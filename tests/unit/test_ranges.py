"""Device work of annotations: an oracle in plain Python, and SQL over a public report."""

from __future__ import annotations

import gzip
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers import ranges as analyzer
from traceview.analyzers.ranges import ANALYSIS
from traceview.contracts import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


# --- an oracle in plain Python -----------------------------------------------------------------------


def _union(rows: list[Row]) -> int:
    return len(
        {(row["device"], at) for row in rows for at in range(row["ts_ns"], row["ts_ns"] + row["dur_ns"])}
    )


def _holds(one: Row, row: Row) -> bool:
    instant, thread = row["launch"] or (None, None)
    return bool(thread == one["tid"] and one["ts_ns"] <= instant < one["ts_ns"] + one["dur_ns"])


def _told(ranks: list[tuple[list[Row], list[Row]]]) -> dict[str, Row]:
    told: dict[str, Row] = {}
    for rows, ranges in ranks:
        inner: dict[int, str] = {}
        for number, row in enumerate(rows):
            around = [one for one in ranges if _holds(one, row)]
            if around:
                inner[number] = max(around, key=lambda one: (one["ts_ns"], -one["dur_ns"]))["name"]
        for name in {one["name"] for one in ranges}:
            own = [one for one in ranges if one["name"] == name]
            held = [[row for row in rows if _holds(one, row)] for one in own]
            some = [work for work in held if work]
            closest = [row for number, row in enumerate(rows) if inner.get(number) == name]
            every = [row for row in rows if any(_holds(one, row) for one in own)]
            one = told.setdefault(name, defaultdict(int, host=[], device=[], projected=[]))
            one["op_count"] += len(every)
            one["own_op_count"] += len(closest)
            one["device_ns"] += _union(every)
            one["own_ns"] += _union(closest)
            one["host"] += [row["dur_ns"] for row in own]
            one["device"] += [_union(work) for work in some]
            one["projected"] += [
                max(row["ts_ns"] + row["dur_ns"] for row in work) - min(row["ts_ns"] for row in work)
                for work in some
            ]
    return told


_OPS = st.lists(
    st.builds(
        lambda start, length, device, launch: {
            "ts_ns": start,
            "dur_ns": length,
            "device": device,
            "launch": launch,
        },
        st.integers(0, 80),
        st.integers(0, 12),
        st.integers(0, 1),
        st.none() | st.tuples(st.integers(0, 40), st.integers(1, 2)),
    ),
    max_size=12,
)
# no two ranges of one start and length on a thread: which of them is the inner one would be a matter of taste
_RANGES = st.lists(
    st.builds(
        lambda name, start, length, tid: {"name": name, "ts_ns": start, "dur_ns": length, "tid": tid},
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 40),
        st.integers(0, 30),
        st.integers(1, 2),
    ),
    max_size=7,
    unique_by=lambda row: (row["ts_ns"], row["dur_ns"], row["tid"]),
)


@settings(max_examples=80)
@given(
    ranks=st.lists(st.tuples(_OPS, _RANGES), min_size=1, max_size=3), at_once=st.sampled_from([1, 3, 1 << 20])
)
def test_every_figure_is_that_of_a_walk_over_ranges_and_ops(
    made: Callable[..., Trace], ranks: list[tuple[list[Row], list[Row]]], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analyzer, "PAIRS_AT_ONCE", at_once)
        found = _answer([made(ops, rank=n, ranges=ranges) for n, (ops, ranges) in enumerate(ranks)], "name")
    told = _told(ranks)
    assert {row["name"] for row in found} == set(told)
    for row in found:
        one = told[row["name"]]
        for name in ("op_count", "own_op_count", "device_ns", "own_ns"):
            assert row[name] == one[name], name
        assert (row["range_count"], row["launching_count"]) == (len(one["host"]), len(one["device"]))
        assert (row["host_ns"], row["projected_ns"]) == (sum(one["host"]), sum(one["projected"]))
        for measure in ("host", "device", "projected"):
            values = one[measure]
            assert row[f"max_{measure}_ns"] == (max(values) if values else None)
            assert row[f"median_{measure}_ns"] == (pytest.approx(np.median(values)) if values else None)


# --- by hand -----------------------------------------------------------------------------------------


def test_nested_ranges_share_device_time_and_own_time_adds_up(made: Callable[..., Trace]) -> None:
    ranges = [{"name": "outer", "ts_ns": 0, "dur_ns": 100}, {"name": "inner", "ts_ns": 10, "dur_ns": 20}]
    ops = [
        {"ts_ns": 200, "dur_ns": 50, "launch": (5, 1)},
        {"ts_ns": 300, "dur_ns": 30, "launch": (15, 1)},
        {"ts_ns": 310, "dur_ns": 40, "launch": (50, 1)},
        {"ts_ns": 400, "dur_ns": 10, "launch": (15, 2)},  # another thread's
    ]
    outer, inner = _answer([made(ops, ranges=ranges)], "name")
    assert (outer["device_ns"], outer["own_ns"], outer["projected_ns"]) == (100, 90, 150)
    assert (inner["device_ns"], inner["own_ns"], inner["projected_ns"]) == (30, 30, 30)
    assert (outer["op_count"], outer["own_op_count"]) == (3, 2)


def test_ranges_that_repeat_inside_themselves_hold_their_work_once(made: Callable[..., Trace]) -> None:
    ranges = [{"name": "again", "ts_ns": start, "dur_ns": 100 - 2 * start} for start in (0, 10, 20)]
    [row] = _answer([made([{"ts_ns": 200, "dur_ns": 50, "launch": (50, 1)}], ranges=ranges)], "name")
    assert (row["range_count"], row["op_count"], row["device_ns"], row["projected_ns"]) == (3, 1, 50, 150)


def test_a_range_counts_in_the_step_it_starts_in(made: Callable[..., Trace]) -> None:
    ranges = [{"name": "mlp", "ts_ns": at, "dur_ns": 20} for at in (0, 90, 110, 300)]
    one = made([{"ts_ns": 100, "dur_ns": 10}], ranges=ranges, steps=[(4, 0, 100), (5, 100, 100)])
    assert [(row["step"], row["range_count"]) for row in _answer([one], "step", "name")] == [(4, 2), (5, 1)]


# --- a public report ---------------------------------------------------------------------------------


PROJECTION = """
    WITH work AS (
      SELECT start, end, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL
      UNION ALL SELECT start, end, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY
      UNION ALL SELECT start, end, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET),
    launch AS (
      SELECT w.start, w.end, r.globalTid, r.start AS launched FROM work w
      JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = w.correlationId
        AND r.globalTid / 0x1000000 = w.globalPid / 0x1000000),
    text AS (
      SELECT n.rowid AS id, n.globalTid, n.start, n.end, COALESCE(n.text, s.value) || ', ' AS text
      FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
      WHERE n.eventType IN (59, 60) AND n.end IS NOT NULL),
    span AS (SELECT id, globalTid, start, end, SUBSTR(text, 1, INSTR(text, ', ') - 1) AS name FROM text),
    each AS (
      SELECT span.id, span.name, COUNT(*) AS ops, MAX(launch.end) - MIN(launch.start) AS projected
      FROM span JOIN launch ON launch.globalTid = span.globalTid
        AND launch.launched >= span.start AND launch.launched < span.end
      WHERE span.name IN (?, ?, ?, ?, ?) GROUP BY span.id)
    SELECT name, COUNT(*), SUM(ops), SUM(projected), MAX(projected) FROM each GROUP BY name
"""
"""Ranges of five names: how many hold work, how much, and from its first start to its last end."""


def test_an_nsight_reports_projection_is_that_of_sql(traces: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.sqlite"
    report.write_bytes(gzip.decompress((traces / "nsys/nsys-ai/mfu_2gpu_before.sqlite.gz").read_bytes()))
    names = ["ncclGroupEnd", "nccl:all_to_all", "record_param_comms", "FlashAttnFunc", "ncclSend"]
    with closing(sqlite3.connect(report)) as base:
        told = {row[0]: row[1:] for row in base.execute(PROJECTION, names)}
    rows = tv.ranges(tv.load(report), steps="all").frame.filter(pl.col("name").cast(pl.String).is_in(names))
    figures = ("launching_count", "op_count", "projected_ns", "max_projected_ns")
    found = {row["name"]: tuple(row[key] for key in figures) for row in rows.to_dicts()}
    assert found.pop("ncclSend") == (0, 0, 0, None)
    assert found == told
    assert told["ncclGroupEnd"][0] == 64
