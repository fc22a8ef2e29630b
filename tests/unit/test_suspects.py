"""Whom the evidence accuses, and whom it does not."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceview.analyzers import _suspects
from traceview.analyzers._exchanges import Timed
from traceview.clocks import ClockFit
from traceview.schema import COLLECTIVE_OPS

SIZE = 4
GRID = 16
BLAMED = {
    "instance": pl.Int64,
    "rank": pl.Int32,
    "step": pl.Int64,
    "cause": pl.String,
    "blamed_ns": pl.Int64,
}
PACE = {"rank": pl.Int32, "family": pl.String, "pace": pl.Float64}
NO_PACE = pl.DataFrame(schema=PACE)
NOBODY = pl.DataFrame(schema=BLAMED)


def _timed(rows: list[dict[str, Any]]) -> Timed:
    names = ("rank", "step", "axis", "collective", "role", "group_size")
    schema: dict[str, Any] = {name: COLLECTIVE_OPS.schema()[name] for name in names}
    schema |= {"node": pl.Int32, "group_key": pl.String}
    schema |= dict.fromkeys(
        ("instance", "transfer_ns", "sent_bytes", "received_bytes", "last_arrival_ns"), pl.Int64
    )
    schema |= {"is_complete": pl.Boolean}
    clock = ClockFit(pl.DataFrame(), 0, None, None, 0)
    return Timed(pl.DataFrame(rows, schema), pl.DataFrame(), clock)


def _grid(slow: set[int], *, moved: int | None = None) -> Timed:
    """Sixteen ranks, groups of four along two axes; a group with a ``slow`` rank takes twice as long."""
    groups = [("ep", "all_to_all", list(range(first, first + SIZE))) for first in range(0, GRID, SIZE)]
    groups += [("edp", "all_gather", list(range(first, GRID, SIZE))) for first in range(SIZE)]
    rows = [
        {
            "rank": rank,
            "step": 1,
            "axis": axis,
            "collective": collective,
            "group_size": SIZE,
            "node": 0,
            "group_key": f"{axis}{number}",
            "instance": number,
            "transfer_ns": 200 if slow & set(members) else 100,
            "sent_bytes": moved if slow & set(members) else None if moved is None else moved // 2,
            "last_arrival_ns": 0,
            "is_complete": True,
        }
        for number, (axis, collective, members) in enumerate(groups)
        for rank in members
    ]
    return _timed(rows)


def _accused(found: Timed, blamed: pl.DataFrame = NOBODY, pace: pl.DataFrame = NO_PACE) -> dict[int, str]:
    rows = _suspects.suspects(found, blamed, pace)
    assert rows["evidence"].null_count() == 0
    return {rank: suspect for rank, suspect, _ in rows.iter_rows()}


def _blamed(*rows: tuple[int, int, int, str, int]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), BLAMED, orient="row")


# --- links -------------------------------------------------------------------------------------------


def test_the_one_rank_whose_groups_are_all_slow_has_a_slow_link() -> None:
    assert _accused(_grid({5})) == {5: "link"}


def test_groups_that_are_slow_because_they_move_more_accuse_nobody() -> None:
    assert _accused(_grid({5}, moved=2_000)) == {}


def test_equal_groups_accuse_nobody() -> None:
    assert _accused(_grid(set())) == {}


def test_two_ranks_that_share_all_their_groups_cannot_be_told_apart() -> None:
    twins = _grid({5}).exchanges
    copy = twins.filter(pl.col("rank") == 5).with_columns(rank=pl.lit(99, pl.Int32))
    whole = _grid({5})
    assert _accused(Timed(pl.concat([twins, copy]), whole.windows, whole.clock)) == {}


def test_two_groups_of_a_kind_are_too_few_to_say_which_is_slow() -> None:
    few = _grid({5})
    kept = few.exchanges.filter(pl.col("group_key").is_in(["ep0", "ep1", "edp0", "edp1"]))
    assert _accused(Timed(kept, few.windows, few.clock)) == {}


# --- GPUs, hosts and data ----------------------------------------------------------------------------


def _steps(count: int) -> Timed:
    """Two instances per step, the even one first."""
    rows = [
        {
            "rank": 0,
            "step": instance // 2,
            "instance": instance,
            "last_arrival_ns": instance,
            "is_complete": True,
        }
        for instance in range(2 * count)
    ]
    return _timed(rows)


@pytest.mark.parametrize(
    ("paces", "accused"),
    [((1.2, 1.3), {1: "gpu"}), ((1.2, 1.0), {}), ((1.2,), {})],
    ids=["all families", "not all families", "a single family"],
)
def test_slower_kernels_accuse_the_gpu_if_every_family_is_slower(
    paces: tuple[float, ...], accused: dict[int, str]
) -> None:
    blamed = _blamed(*((2 * step, 1, step, "slower_kernels", 100) for step in range(3)))
    families = ("attention", "gemm")[: len(paces)]
    pace = pl.DataFrame(
        [(1, family, ratio) for family, ratio in zip(families, paces, strict=True)], PACE, orient="row"
    )
    assert _accused(_steps(3), blamed, pace) == accused


@pytest.mark.parametrize(("place", "accused"), [(0, "data"), (1, "host")])
def test_late_launches_accuse_the_data_at_the_start_of_steps_and_the_host_elsewhere(
    place: int, accused: str
) -> None:
    blamed = _blamed(*((2 * step + place, 1, step, "late_launch", 100) for step in range(3)))
    assert _accused(_steps(3), blamed) == {1: accused}


def test_blame_in_one_step_accuses_nobody() -> None:
    assert _accused(_steps(3), _blamed((1, 1, 0, "late_launch", 100))) == {}


def test_blame_in_few_of_many_steps_accuses_nobody() -> None:
    others = [(2 * step, 0, step, "earlier_comm", 100) for step in range(6)]
    late = [(2 * step + 1, 1, step, "late_launch", 100) for step in range(2)]
    assert _accused(_steps(6), _blamed(*others, *late)) == {}


def test_little_blame_accuses_nobody() -> None:
    others = [(2 * step, 0, step, "earlier_comm", 1_000) for step in range(3)]
    late = [(2 * step + 1, 1, step, "late_launch", 50) for step in range(3)]
    assert _accused(_steps(3), _blamed(*others, *late)) == {}


def test_blame_that_is_mostly_for_something_else_accuses_nobody() -> None:
    late = [(2 * step, 1, step, "late_launch", 40) for step in range(3)]
    rest = [(2 * step + 1, 1, step, "more_tokens", 60) for step in range(3)]
    assert _accused(_steps(3), _blamed(*late, *rest)) == {}
