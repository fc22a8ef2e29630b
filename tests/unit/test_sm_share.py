"""SMs under communication: medians by time, by hand and on public traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv
from traceview.analyzers.sm_share import ANALYSIS
from traceview.contracts import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]
DEVICE = [{"sm_count": 132}]


def _comm(start: int, length: int, blocks: int | None, **more: Any) -> Row:
    return {"ts_ns": start, "dur_ns": length, "category": "dispatch", "grid_blocks": blocks} | more


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


def test_the_median_is_weighted_by_time_over_all_ranks(made: Callable[..., Trace]) -> None:
    many_short = [_comm(10 * place, 1, 1) for place in range(50)]
    one_long = [_comm(1000, 100, 24), _comm(2000, 60, 20)]
    ranks = [made(rows, rank=rank, devices=DEVICE) for rank, rows in enumerate([many_short, one_long])]
    [row] = _answer(ranks)
    # 210 ns in all: 50 with one block, 60 with 20, 100 with 24; the middle lies between the last two
    assert (row["kernel_count"], row["total_ns"]) == (52, 210)
    assert (row["min_blocks"], row["median_blocks"], row["max_blocks"]) == (1, 20.0, 24)
    assert row["sm_ratio"] == pytest.approx(20 / 132)


def test_more_blocks_than_sms_take_all_of_them(made: Callable[..., Trace]) -> None:
    [row] = _answer([made([_comm(0, 10, 500)], devices=DEVICE)])
    assert row["sm_ratio"] == 1.0


def test_what_is_not_known_is_not_guessed(made: Callable[..., Trace]) -> None:
    [no_grid] = _answer([made([_comm(0, 10, None)], devices=DEVICE)])
    assert (no_grid["unknown_ns"], no_grid["median_blocks"], no_grid["sm_ratio"]) == (10, None, None)
    [no_device] = _answer([made([_comm(0, 10, 24)])])
    assert (no_device["median_blocks"], no_device["sm_count"], no_device["sm_ratio"]) == (24.0, None, None)
    others = [
        made([_comm(0, 10, 24)], rank=n, devices=[{"sm_count": count}]) for n, count in enumerate((132, 148))
    ]
    [mixed] = _answer(others)
    assert (mixed["median_blocks"], mixed["sm_count"], mixed["sm_ratio"]) == (24.0, None, None)


def test_computing_kernels_and_copies_between_peers_are_no_rows(made: Callable[..., Trace]) -> None:
    rows = [
        {"ts_ns": 0, "dur_ns": 5, "grid_blocks": 100},
        _comm(10, 5, 3, kind="memcpy", category="p2p_copy"),
    ]
    assert _answer([made(rows, devices=DEVICE)]) == []


def test_deepep_of_the_public_deepseek_trace_holds_20_of_132_sms(traces: Path) -> None:
    run = tv.load(traces / "pytorch" / "deepseek-ai-profile-data" / "train.json.gz")
    rows = tv.analyze(run, "sm_share", by=("category",), steps="all").frame.to_dicts()
    found = {row["category"]: (row["kernel_count"], row["median_blocks"], row["sm_count"]) for row in rows}
    assert found["dispatch"] == (8, 20.0, 132)
    assert found["combine"] == (8, 20.0, 132)
    assert sum(row["total_ns"] for row in rows) == 113_030_000
