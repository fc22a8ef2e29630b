"""The efficiency tree: its identities, an oracle that follows the definitions, and the synthetic truth."""

from __future__ import annotations

import json
from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers import efficiency
from traceview.analyzers.efficiency import FACTORS, PARTIAL
from traceview.contracts import Options
from traceview.synth import write

if TYPE_CHECKING:
    from pathlib import Path

BALANCES = ("dp_balance", "pp_balance", "ep_balance")
RANKS = 8
EP = [[0, 1], [2, 3], [4, 5], [6, 7]]
PP = [[0, 4], [1, 5], [2, 6], [3, 7]]
REPLICAS = [[0, 1, 4, 5], [2, 3, 6, 7]]
"""Two stages of two expert-parallel pairs: ranks 0-3 are the first stage."""


def _members(sets: list[list[int]], rank: int) -> list[int]:
    return next(members for members in sets if rank in members)


def _row(rank: int, window: int, compute: int, busy: int, *, step: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "device": 0,
        "step": step,
        "window_ns": window,
        "compute_ns": compute,
        "busy_ns": busy,
        "ep_ranks": _members(EP, rank),
        "pp_ranks": _members(PP, rank),
        "has_ep": True,
        "has_pp": True,
    } | more


def _summed(rows: list[dict[str, Any]], *by: str) -> list[dict[str, Any]]:
    frame = pl.DataFrame(rows, schema=PARTIAL.schema())
    return efficiency.summarize(frame, Options(by=by)).to_dicts()


def _check_identities(row: dict[str, Any]) -> None:
    tree = ["load_balance", "communication", "orchestration"]
    for names in (tree, FACTORS):
        assert prod(row[f"{name}_ratio"] for name in names) == pytest.approx(row["parallel_ratio"], rel=1e-12)
        lost = sum(row[f"{name}_loss_ratio"] for name in names)
        assert lost == pytest.approx(1 - row["parallel_ratio"], abs=1e-12)
        for name in names:
            assert 0 < row[f"{name}_ratio"] <= 1 + 1e-12
            assert row[f"{name}_loss_ratio"] >= -1e-12


TIMES = st.integers(1, 1000).flatmap(
    lambda window: st.tuples(
        st.just(window),
        st.integers(1, window).flatmap(lambda busy: st.tuples(st.just(busy), st.integers(1, busy))),
    )
)


@settings(max_examples=25)
@given(times=st.lists(TIMES, min_size=2 * RANKS, max_size=2 * RANKS))
def test_every_factor_is_what_its_definition_says(times: list[tuple[int, tuple[int, int]]]) -> None:
    rows = [
        _row(place % RANKS, window, compute, busy, step=place // RANKS)
        for place, (window, (busy, compute)) in enumerate(times)
    ]
    total: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        for place, name in enumerate(("compute_ns", "busy_ns", "window_ns")):
            total[row["rank"]][place] += row[name]

    def share(ranks: list[int], what: int) -> float:
        return sum(total[rank][what] for rank in ranks) / sum(total[rank][2] for rank in ranks)

    everyone = list(range(RANKS))
    mean = share(everyone, 0)
    replica = max(share(ranks, 0) for ranks in REPLICAS)
    group = max(share(ranks, 0) for ranks in EP)
    rank = max(share([one], 0) for one in everyone)
    busy = max(share([one], 1) for one in everyone)
    [found] = _summed(rows)
    expected = {
        "parallel": mean,
        "load_balance": mean / rank,
        "dp_balance": mean / replica,
        "pp_balance": replica / group,
        "ep_balance": group / rank,
        "communication": rank / busy,
        "orchestration": busy,
    }
    for name, value in expected.items():
        assert found[f"{name}_ratio"] == pytest.approx(value, rel=1e-12), name
    _check_identities(found)


def test_unevenness_shows_on_the_level_on_which_it_is() -> None:
    cases = {
        "ep_balance": {1: 40, 3: 40, 5: 40, 7: 40},  # the second of each pair
        "pp_balance": {4: 40, 5: 40, 6: 40, 7: 40},  # the second stage
        "dp_balance": {2: 40, 3: 40, 6: 40, 7: 40},  # the second replica
    }
    for name, slack in cases.items():
        [row] = _summed([_row(rank, 100, slack.get(rank, 80), 100) for rank in range(RANKS)])
        expected = dict.fromkeys(BALANCES, 1.0) | {name: 60 / 80}
        assert {one: row[f"{one}_ratio"] for one in BALANCES} == pytest.approx(expected)
        assert row["busiest_rank"] is None


def test_without_pipeline_or_experts_all_unevenness_is_between_replicas() -> None:
    alone: dict[str, Any] = {"ep_ranks": None, "pp_ranks": None, "has_ep": False, "has_pp": False}
    [row] = _summed([_row(rank, 100, 50 + rank, 90, **alone) for rank in range(4)])
    assert row["dp_balance_ratio"] == row["load_balance_ratio"] == pytest.approx(51.5 / 53)
    assert (row["pp_balance_ratio"], row["ep_balance_ratio"], row["busiest_rank"]) == (1, 1, 3)


def test_a_group_whose_members_are_unknown_leaves_its_factors_unknown() -> None:
    [row] = _summed([_row(rank, 100, 50 + rank, 90, ep_ranks=None) for rank in range(4)])
    assert [row[f"{name}_ratio"] for name in BALANCES] == [None, None, None]
    assert row["load_balance_ratio"] == pytest.approx(51.5 / 53)
    [row] = _summed([_row(rank, 100, 50 + rank, 90, pp_ranks=None) for rank in range(4)])
    assert [row[f"{name}_ratio"] is None for name in BALANCES] == [True, True, False]


def test_steps_are_rows_of_their_own() -> None:
    rows = [_row(rank, 100, 50 * step, 100, step=step) for rank in range(2) for step in (1, 2)]
    assert [(row["step"], row["parallel_ratio"]) for row in _summed(rows, "step")] == [(1, 0.5), (2, 1.0)]


def test_where_nothing_computes_nothing_is_apportioned() -> None:
    [row] = _summed([_row(0, 100, 0, 40)])
    assert row["parallel_ratio"] is row["communication_ratio"] is row["orchestration_loss_ratio"] is None
    assert (row["window_ns"], row["busy_ns"]) == (100, 40)


@pytest.mark.parametrize("preset", ["pp2-ep4", "tp2-ep4", "ep8-straggler"])
def test_a_synthetic_run_has_the_efficiency_of_its_truth(preset: str, tmp_path: Path) -> None:
    write(preset, tmp_path)
    known = json.loads((tmp_path / "truth.json").read_text())
    steps = [figures for rank in known["ranks"] for figures in rank["steps"].values()]
    compute, window = (sum(figures[name] for figures in steps) for name in ("compute_ns", "window_ns"))
    groups = known["groups"]["EXPERT_MODEL_PARALLEL_GROUP"]
    shares = [
        sum(figures["compute_ns"] for rank in members for figures in known["ranks"][rank]["steps"].values())
        / sum(figures["window_ns"] for rank in members for figures in known["ranks"][rank]["steps"].values())
        for members in groups
    ]
    run = tv.load(tmp_path)
    first, count = known["workload"]["first_step"], known["workload"]["steps"]
    [row] = tv.efficiency(run, steps=range(first, first + count)).summary()
    assert (row["compute_ns"], row["window_ns"]) == (compute, window)
    best = row["dp_balance_ratio"] * row["pp_balance_ratio"]
    assert best == pytest.approx(compute / window / max(shares), rel=1e-12)
    _check_identities(row)


def test_the_identities_hold_on_every_public_run_of_several_ranks(traces: Path) -> None:
    folders = [
        *(traces / "pytorch" / "pytorch-torchrec" / "trace").iterdir(),
        traces / "pytorch" / "KellerJordan-modded-nanogpt" / "2025-12-11_baseline_8ranks",
        traces / "pytorch" / "astra-sim-astra-sim" / "megatron-tp8",
    ]
    runs = [run for folder in folders for run in tv.load_runs(folder)]
    assert sum(len(run.ranks) > 1 for run in runs) >= len(folders)
    for run in runs:
        [row] = tv.efficiency(run).summary()
        _check_identities(row)
