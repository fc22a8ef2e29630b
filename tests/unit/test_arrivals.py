"""What a device had done until an instant, against sets of nanoseconds."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.analyzers import _arrivals
from traceview.analyzers._arrivals import TOTALS
from traceview.schema import OPS

CATEGORIES = {"gemm": "compute", "grouped_gemm": "compute", "all_to_all": "comm", "memory": "copy"}
COUNTED = {
    "compute": {"gemm", "grouped_gemm"},
    "active": {"gemm", "grouped_gemm", "all_to_all"},
    "busy": set(CATEGORIES),
    "grouped": {"grouped_gemm"},
}

work = st.tuples(
    st.integers(0, 1),  # device
    st.integers(0, 40),  # start
    st.integers(0, 15),  # duration
    st.sampled_from(sorted(CATEGORIES)),
    st.sampled_from([None, 1, 2]),  # step
)


def _ops(works: list[tuple[int, int, int, str, int | None]]) -> pl.DataFrame:
    columns = ("device", "ts_ns", "dur_ns", "category", "class", "step")
    rows = [(device, at, dur, name, CATEGORIES[name], step) for device, at, dur, name, step in works]
    return pl.DataFrame(rows, {name: OPS.schema()[name] for name in columns}, orient="row")


def _exchanges(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.select("device", "step", "ts_ns", "dur_ns")


@settings(max_examples=50)
@given(st.lists(work, min_size=1, max_size=10))
def test_running_totals_are_the_instants_covered_before(works: list[Any]) -> None:
    ops = _ops(works)
    found = {series.name: series.to_list() for series in _arrivals._totals(ops, _exchanges(ops))}
    for row, (device, start, duration, _, _) in enumerate(works):
        for edge, instant in (("start", start), ("end", start + duration)):
            for total in TOTALS:
                covered = {
                    moment
                    for other, begin, length, name, _ in works
                    if other == device and name in COUNTED[total]
                    for moment in range(begin, begin + length)
                    if moment < instant
                }
                assert found[f"{total}_until_{edge}_ns"][row] == len(covered)


@settings(max_examples=50)
@given(st.lists(work, min_size=1, max_size=10))
def test_progress_counts_the_compute_ops_of_the_step_begun_so_far(works: list[Any]) -> None:
    ops = _ops(works)
    found = {series.name: series.to_list() for series in _arrivals._begun(ops, _exchanges(ops))}
    for row, (device, start, duration, _, step) in enumerate(works):
        starts = [
            at
            for other, at, _, name, of_step in works
            if other == device and of_step == step and CATEGORIES[name] == "compute"
        ]
        assert found["begun_until_start"][row] == sum(at <= start for at in starts)
        assert found["begun_until_end"][row] == sum(at <= start + duration for at in starts)
        assert found["begun_in_step"][row] == len(starts)


@pytest.mark.parametrize("total", TOTALS)
def test_every_total_is_a_documented_column_at_both_edges(total: str) -> None:
    for edge in ("start", "end"):
        assert _arrivals.ARRIVALS.columns[f"{total}_until_{edge}_ns"].unit == "ns"
