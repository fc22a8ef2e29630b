"""Parts of large jobs: what is recorded of them, what their truth says, and what their rings cost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import traceview as tv
from traceview.errors import UsageError
from traceview.synth import PRESETS, Capture, Workload, recipe, simulate, truth, write

if TYPE_CHECKING:
    from pathlib import Path

JOB = Workload(ranks=16, steps=2, layers=1, experts=16)
PART = replace(JOB, capture=Capture(recorded_ranks=(9, 8, 10)))


def test_a_part_of_a_job_has_the_figures_it_has_in_the_whole_job() -> None:
    files = {rank: f"rank{rank}_trace.json.gz" for rank in range(16)}
    whole = truth(simulate(JOB), files)
    part = truth(simulate(PART), {rank: files[rank] for rank in (8, 9, 10)})
    assert part["ranks"] == [whole["ranks"][rank] for rank in (8, 9, 10)]
    assert part["throughput"] == whole["throughput"]
    known = [one for one in whole["collectives"] if {8, 9, 10} & set(one["group_ranks"])]
    assert len(part["collectives"]) == len(known)
    for mine, theirs in zip(part["collectives"], known, strict=True):
        assert mine["group_size"] == len(theirs["group_ranks"])
        assert mine["group_ranks"] == [rank for rank in theirs["group_ranks"] if rank in {8, 9, 10}]
        assert (mine["transfer_ns"], mine["last_arriver"]) == (theirs["transfer_ns"], theirs["last_arriver"])
        places = [theirs["group_ranks"].index(rank) for rank in mine["group_ranks"]]
        assert mine["start_ns"] == [theirs["start_ns"][place] for place in places]
    assert part["experts"][0]["tokens"] == whole["experts"][0]["tokens"][1:]


def test_only_recorded_ranks_leave_files_and_they_name_the_whole_job(tmp_path: Path) -> None:
    names = [path.name for path in write(PART, tmp_path)]
    assert names[:3] == [f"rank{rank}_trace.json.gz" for rank in (8, 9, 10)]
    recipe.write(PART, tmp_path)
    run = tv.load(tmp_path)
    assert (run.ranks, run.world_size) == ((8, 9, 10), 16)
    assert run.recipe.tokens_per_step == JOB.tokens_per_step == 16 * 4096
    assert "run.ranks_missing" in run.diagnostics["code"].to_list()


def test_tokens_of_a_step_are_those_of_all_replicas() -> None:
    plan = replace(JOB, tensor_parallel=2, pipeline_parallel=2, layers=2, microbatches=3)
    assert plan.tokens_per_step == 4 * 3 * 4096


def test_every_further_member_of_a_ring_costs_a_hop_and_all_to_alls_cost_none() -> None:
    plain, hopping = (simulate(replace(JOB, ring_hop_ns=hop, jitter=0.0)) for hop in (0, 1000))
    kinds = set()
    for before, after in zip(plain.exchanges, hopping.exchanges, strict=True):
        traffic, group = before.message.traffic, before.message.group
        is_ring = traffic.collective in {"all_gather", "reduce_scatter", "all_reduce"}
        added = 1000 * (group.size - 1) if is_ring else 0
        assert (after.transfer_ns - before.transfer_ns == added).all()
        kinds.add(traffic.collective)
    assert {"all_to_all", "reduce_scatter", "all_reduce"} <= kinds


def test_the_throughput_is_that_of_all_ranks(tmp_path: Path) -> None:
    write(JOB, tmp_path)
    known = json.loads((tmp_path / "truth.json").read_text())
    windows = [sum(step["window_ns"] for step in rank["steps"].values()) for rank in known["ranks"]]
    step_ns = sum(windows) / len(windows) / JOB.steps
    assert known["throughput"]["step_ns"] == pytest.approx(step_ns, rel=1e-9)
    speed = known["throughput"]["tokens_per_second_per_rank"]
    assert speed == pytest.approx(4096 / (step_ns / 1e9), rel=1e-9)


@pytest.mark.parametrize("ranks", [(), (16,), (-1,)])
def test_ranks_that_cannot_be_recorded_are_refused(ranks: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        replace(JOB, capture=Capture(recorded_ranks=ranks))


def test_scaling_presets_differ_in_size_and_balance_only() -> None:
    plans = [PRESETS[f"scaling-{size}"] for size in (256, 512, 1024)]
    assert [plan.ranks for plan in plans] == [256, 512, 1024]
    assert len({replace(plan, ranks=256, expert_imbalance=0.3) for plan in plans}) == 1
