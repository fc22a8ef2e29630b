"""Who computes slower than the ranks that do the same work."""

from __future__ import annotations

import polars as pl
import pytest

from traceview.analyzers import _pace

WINDOW: dict[str, pl.DataType] = {"rank": pl.Int32(), "step": pl.Int64()}
WINDOW |= {name: column.dtype for name, column in _pace.COLUMNS.items()}


def _windows(*rows: tuple[int, int, dict[str, tuple[int, int, int]]]) -> pl.DataFrame:
    """Rank, step, and per family its duration, ops and blocks."""
    listed = [
        (rank, step, list(families), *([value[place] for value in families.values()] for place in range(3)))
        for rank, step, families in rows
    ]
    return pl.DataFrame(listed, WINDOW, orient="row")


def _paces(windows: pl.DataFrame) -> dict[tuple[int, str], float]:
    return {(rank, family): pace for rank, family, pace in _pace.paces(windows).iter_rows()}


def test_a_pace_is_time_over_the_median_of_the_ranks_that_did_the_same() -> None:
    times = {0: 100, 1: 100, 2: 130, 3: 90}
    found = _paces(_windows(*((rank, 1, {"gemm": (time, 4, 64)}) for rank, time in times.items())))
    assert found == {(rank, "gemm"): time / 100 for rank, time in times.items()}


def test_the_pace_of_several_steps_is_their_median() -> None:
    times = {1: 110, 2: 150, 3: 120}
    rows = [(rank, step, {"norm": (100, 1, 1)}) for rank in range(2) for step in times]
    rows += [(2, step, {"norm": (time, 1, 1)}) for step, time in times.items()]
    assert _paces(_windows(*rows))[2, "norm"] == pytest.approx(1.2)


def test_work_that_depends_on_routing_is_never_compared() -> None:
    rows = [(rank, 1, {"grouped_gemm": (100 + rank, 4, 64)}) for rank in range(4)]
    assert _paces(_windows(*rows)) == {}


@pytest.mark.parametrize("other", [(100, 5, 64), (100, 4, 65)], ids=["more ops", "more blocks"])
def test_ranks_that_do_other_work_are_not_compared(other: tuple[int, int, int]) -> None:
    rows = [(rank, 1, {"gemm": (100, 4, 64)}) for rank in range(3)]
    found = _paces(_windows(*rows, (3, 1, {"gemm": other})))
    assert set(found) == {(0, "gemm"), (1, "gemm"), (2, "gemm")}


def test_two_ranks_are_too_few_to_say_which_is_off() -> None:
    assert _paces(_windows((0, 1, {"gemm": (100, 4, 64)}), (1, 1, {"gemm": (150, 4, 64)}))) == {}


def test_on_fixed_work_a_rank_has_the_median_pace_of_its_families() -> None:
    paces = pl.DataFrame(
        {"rank": [0, 0, 0], "family": ["gemm", "norm", "optimizer"], "pace": [1.0, 1.4, 1.1]}
    )
    assert _pace.on_fixed_work(paces).rows() == [(0, 1.1)]
