"""Stragglers of every cause: what they do to the run, and that the truth names them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from traceview.errors import UsageError
from traceview.synth import PRESETS, Regression, Straggler, Workload, simulate, truth

if TYPE_CHECKING:
    from traceview.synth import Timeline

CALM = replace(PRESETS["ep8-balanced"], steps=2, start_skew_ns=0)


def slowed(workload: Workload, **how: Any) -> Timeline:
    return simulate(replace(workload, stragglers=(Straggler(rank=3, **how),)))


def lateness(timeline: Timeline, role: str, steps: tuple[int, ...] = (10, 11)) -> np.ndarray[Any, Any]:
    """Mean lateness of each rank against the first arrival, over the exchanges of one role."""
    late = [
        timeline.op_start_ns[e.ops[0]] - timeline.op_start_ns[e.ops[0]].min()
        for e in timeline.exchanges
        if e.message.role == role and timeline.ops[e.ops[0]].scope.step in steps
    ]
    return np.asarray(np.mean(late, axis=0))


def transfers(timeline: Timeline, axis: str, rank: int) -> list[int]:
    """Transfer time of each exchange of ``rank`` along one axis."""
    return [int(e.transfer_ns[rank]) for e in timeline.exchanges if e.message.group.axis == axis]


@pytest.mark.parametrize(
    "how",
    [
        {"cause": "slow_kernels", "factor": 2.0},
        {"cause": "more_tokens", "factor": 2.0},
        {"cause": "late_launch", "factor": 2.0},
        {"cause": "late_launch", "extra_ns": 30_000},
    ],
    ids=str,
)
def test_a_straggler_arrives_last_whatever_the_cause(how: dict[str, Any]) -> None:
    # Launching only shows where the host is the slower one, so the kernels are made tiny there.
    calm = replace(CALM, tokens=64) if how["cause"] == "late_launch" else CALM
    before, after = (lateness(timeline, "combine") for timeline in (simulate(calm), slowed(calm, **how)))
    assert after.argmax() == 3
    assert after[3] > 3 * before[3]


def test_a_straggler_can_be_slow_in_some_steps_only() -> None:
    timeline = slowed(CALM, cause="slow_kernels", factor=2.0, steps=(11,))
    assert lateness(timeline, "combine", steps=(11,)).argmax() == 3
    assert lateness(timeline, "combine", steps=(11,))[3] > 5 * lateness(timeline, "combine", steps=(10,))[3]


@pytest.mark.parametrize("steps", [None, (11,)])
def test_more_tokens_reach_the_rank_from_its_own_group_only(steps: tuple[int, ...] | None) -> None:
    two_groups = replace(CALM, expert_parallel=4)
    timeline = slowed(two_groups, cause="more_tokens", factor=3.0, steps=steps)
    for routing in timeline.routings:
        share = routing.rows_in.sum(axis=1) / routing.rows_in.mean(axis=0).sum()
        if routing.step in (steps or (10, 11)):
            assert share[3] == pytest.approx(
                3 * 4 / 6, rel=0.02
            )  # three parts of six, where one of four is fair
        else:
            assert share == pytest.approx(1, rel=0.02)
        assert share[4:] == pytest.approx(1, rel=0.02)


def test_a_slow_link_stretches_the_transfers_of_the_sets_it_is_in() -> None:
    two_groups = replace(CALM, expert_parallel=4, jitter=0.0)
    calm, slow = simulate(two_groups), slowed(two_groups, cause="slow_link", factor=4.0)
    for rank, factor in ((0, 4), (3, 4), (4, 1), (7, 1)):
        ratios = np.divide(transfers(slow, "ep", rank), transfers(calm, "ep", rank))
        assert ratios == pytest.approx(factor, abs=1e-4)
    assert np.divide(transfers(slow, "dp", 5), transfers(calm, "dp", 5)) == pytest.approx(4, abs=1e-4)


def test_a_slow_link_on_one_axis_makes_its_ranks_late_on_another() -> None:
    folded = replace(CALM, tensor_parallel=2, expert_parallel=8)
    timeline = slowed(folded, cause="slow_link", factor=30.0, axis="tp")
    assert transfers(timeline, "ep", 3) == transfers(simulate(folded), "ep", 3)
    late = lateness(timeline, "dispatch")
    assert min(late[2], late[3]) > 3 * np.delete(late, [2, 3]).max()


def test_the_truth_lists_each_straggler_with_its_steps() -> None:
    listed = truth(simulate(replace(PRESETS["ep8-straggler-wandering"], steps=3)), {})["stragglers"]
    assert [(entry["rank"], entry["cause"], list(entry["steps"])) for entry in listed] == [
        (3, "slow_kernels", [11]),
        (7, "slow_kernels", [12]),
    ]
    always = truth(simulate(PRESETS["ep8-straggler"]), {})["stragglers"]
    assert always[0]["steps"] == [10, 11, 12, 13]


@pytest.mark.parametrize(("name", "rank"), [("tokens", 2), ("launch", 6)])
def test_the_presets_blame_the_rank_they_slow_down(name: str, rank: int) -> None:
    known = truth(simulate(PRESETS[f"ep8-straggler-{name}"]), {})
    blamed = [instance["last_arriver"] for instance in known["collectives"] if instance["role"]]
    assert blamed.count(rank) > len(blamed) / 2


def _busy(timeline: Timeline, category: str, phase: str) -> int:
    """Summed durations of the kernels of one category and phase, over ranks."""
    rows = [
        row
        for row, op in enumerate(timeline.ops)
        if (op.kernel.category, op.scope.phase) == (category, phase)
    ]
    return int((timeline.op_end_ns[rows] - timeline.op_start_ns[rows]).sum())


def test_a_regression_slows_one_category_in_one_phase_on_every_rank_and_nothing_else() -> None:
    slow = replace(CALM, regressions=(Regression("grouped_gemm", 1.5, "backward"),))
    before, after = simulate(CALM), simulate(slow)
    kinds = {(op.kernel.category, op.scope.phase) for op in before.ops if op.exchange is None}
    changed = {
        kind: _busy(after, kind[0], kind[1] or "") / _busy(before, kind[0], kind[1] or "")
        for kind in kinds
        if kind[1] and _busy(before, kind[0], kind[1])
    }
    assert changed.pop(("grouped_gemm", "backward")) == pytest.approx(1.5, rel=1e-3)
    assert set(changed.values()) == {1.0}


@pytest.mark.parametrize("slow", [Regression("no_such_category", 2.0), Regression("gemm", 0.0)])
def test_a_regression_that_means_nothing_is_refused(slow: Regression) -> None:
    with pytest.raises(UsageError, match="a regression's"):
        replace(CALM, regressions=(slow,))
