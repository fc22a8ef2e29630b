"""The innermost range around an instant, per thread or per process."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from traceview.enclosure import enclosed, enclosing

RANGES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=12
)
INSTANTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.none() | st.integers(0, 45)), max_size=12
)


def frames(
    ranges: list[tuple[int, ...]], instants: list[tuple[int | None, ...]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    kind = {"pid": pl.Int64, "tid": pl.Int64, "ts_ns": pl.Int64}
    return (
        pl.DataFrame(ranges, schema=kind | {"dur_ns": pl.Int64}, orient="row"),
        pl.DataFrame(instants, schema=kind, orient="row"),
    )


@given(RANGES, INSTANTS)
def test_it_is_the_latest_to_start_of_those_that_contain_the_instant(
    ranges: list[tuple[int, ...]], instants: list[tuple[int | None, ...]]
) -> None:
    found = enclosing(*frames(ranges, instants), on=("pid", "tid"))
    for row, (pid, tid, ts) in zip(found.to_list(), instants, strict=True):
        around = [] if ts is None else [r for r in ranges if r[:2] == (pid, tid) and r[2] <= ts < r[2] + r[3]]
        if not around:
            assert row is None
        else:
            assert ranges[row] in around
            assert ranges[row][2] == max(r[2] for r in around)


def test_a_process_has_the_ranges_of_all_its_threads() -> None:
    ranges, instants = frames([(1, 10, 0, 100)], [(1, 99, 50), (2, 10, 50)])
    assert enclosing(ranges, instants, on=("pid", "tid")).to_list() == [None, None]
    assert enclosing(ranges, instants, on=("pid",)).to_list() == [0, None]


@given(RANGES, INSTANTS)
def test_a_range_holds_the_instants_of_its_thread_from_its_start_up_to_its_end(
    ranges: list[tuple[int, ...]], instants: list[tuple[int | None, ...]]
) -> None:
    found = enclosed(*frames(ranges, instants), on=("pid", "tid"))
    rows, pair = found.rows(found.first, found.stop)
    for number, (pid, tid, start, length) in enumerate(ranges):
        held = [
            row
            for row, instant in enumerate(instants)
            if instant[:2] == (pid, tid) and instant[2] is not None and start <= instant[2] < start + length
        ]
        assert sorted(rows[pair == number].tolist()) == held
