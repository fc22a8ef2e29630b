"""The work of a step: what the plan of a synthetic run says it must be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import traceview as tv
from traceview.synth import PRESETS, Workload, write

if TYPE_CHECKING:
    from pathlib import Path

PLAN = replace(PRESETS["ep8-nccl"], steps=2, microbatches=3, layers=2)


@pytest.mark.parametrize(
    "plan",
    [PLAN, replace(PLAN, tensor_parallel=2, expert_parallel=4), replace(PLAN, compact=True)],
    ids=["plain", "tensor", "compact"],
)
def test_a_step_holds_the_work_of_its_plan(plan: Workload, tmp_path: Path) -> None:
    write(plan, tmp_path)
    [row] = tv.analyze(tv.load(tmp_path), "work", by=()).summary()
    assert row["window_count"] == plan.ranks * plan.steps
    assert (row["microbatch_count"], row["layer_count"]) == (plan.microbatches, plan.layers)
    rows = plan.own_tokens * plan.top_k
    assert row["dispatched_bytes"] == plan.microbatches * plan.layers * rows * plan.hidden * 2
    assert (row["ep_size"], row["tp_size"]) == (plan.expert_parallel, plan.tensor_parallel)
    assert (row["matrix_blocks"] is None) == plan.compact  # whose kernels have no grids
    assert row["matrix_count"] % plan.microbatches == 0


def test_by_rank_and_step_every_window_is_a_row(tmp_path: Path) -> None:
    write(replace(PLAN, microbatches=1), tmp_path)
    rows = tv.analyze(tv.load(tmp_path), "work", by=("rank", "step")).frame
    assert rows["window_count"].to_list() == [1] * (PLAN.ranks * PLAN.steps)
    assert rows.select("rank", "step").n_unique() == len(rows)
