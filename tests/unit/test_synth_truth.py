"""The truth's finer figures: waiting and transferring apart, bytes by distance, hot experts; compact runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from traceview.synth import PRESETS, Clock, Workload, simulate, truth, write
from traceview.synth.clocks import stamp
from traceview.synth.figures import rank_figures

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.synth import Timeline

SMALL = Workload(
    ranks=4,
    ranks_per_host=2,
    expert_parallel=2,
    tensor_parallel=2,
    steps=2,
    microbatches=2,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=512,
    vocabulary=1024,
    clocks=(Clock(offset_ns=-50_000_000, drift_ppm=20.0), Clock(offset_ns=50_000_000, drift_ppm=-20.0)),
)


def exposed_by_bitmap(timeline: Timeline, rank: int) -> tuple[Counter[tuple[str, str | None, str]], int]:
    """Exposed ns by (axis, role, wait or transfer), and of several exchanges at once, ns by ns."""
    clock = timeline.workload.clock(rank)
    starts, ends = (stamp(times[:, rank], clock) for times in (timeline.op_start_ns, timeline.op_end_ns))
    first = starts.min()
    computing, communicating = (np.zeros(ends.max() - first, dtype=np.int64) for _ in range(2))
    for row, op in enumerate(timeline.ops):
        span = slice(starts[row] - first, ends[row] - first)
        if op.exchange is not None:
            communicating[span] += 1
        elif op.kernel.category != "memory":
            computing[span] = 1
    alone = (communicating == 1) & (computing == 0)
    found: Counter[tuple[str, str | None, str]] = Counter()
    for exchange in timeline.exchanges:
        row, group = exchange.ops[0], exchange.message.group
        arrivals = timeline.op_start_ns[row, group.ranks_of(rank)]
        turn = int(stamp(arrivals.max(keepdims=True), clock)[0])
        for part, begin, end in (("wait", starts[row], turn), ("transfer", turn, ends[row])):
            count = int(alone[begin - first : end - first].sum())
            found[group.axis, exchange.message.role, part] += count
    return +found, int(((communicating > 1) & (computing == 0)).sum())


@pytest.mark.parametrize("overlap", ["none", "1f1b"])
def test_exposed_waits_and_transfers_agree_with_a_bitmap(overlap: str) -> None:
    timeline = simulate(replace(SMALL, overlap=overlap))  # type: ignore[arg-type]
    for rank in range(SMALL.ranks):
        figures = rank_figures(timeline, rank)["all"]
        found, several = exposed_by_bitmap(timeline, rank)
        told = {
            (row["axis"], row["role"], part): row[f"{part}_ns"]
            for row in figures["exposed_by_exchange"]
            for part in ("wait", "transfer")
        }
        assert +Counter(told) == found
        assert figures["exposed_by_several_ns"] == several


def test_exposed_parts_add_up_to_the_exposed_time() -> None:
    for name in ("ep8-nccl-overlap", "ep8-deepep", "pp2-ep4"):
        timeline = simulate(PRESETS[name])
        for figures in rank_figures(timeline, 3)["steps"].values():
            parts = sum(row["wait_ns"] + row["transfer_ns"] for row in figures["exposed_by_exchange"])
            assert parts + figures["exposed_by_several_ns"] == figures["exposed_comm_ns"]


def test_bytes_to_other_hosts_are_those_of_the_rows_sent_there() -> None:
    plan = replace(SMALL, expert_parallel=4, tensor_parallel=1)
    timeline = simulate(plan)
    instances = [i for i in truth(timeline, {})["collectives"] if i["role"]]
    exchanges = [exchange for exchange in timeline.exchanges if exchange.message.role]
    for instance, exchange in zip(instances, exchanges, strict=True):
        rows = exchange.message.traffic.rows_out
        assert rows is not None
        for rank in range(4):
            far = sum(int(rows[rank, peer]) for peer in range(4) if peer // 2 != rank // 2)
            near = sum(int(rows[rank, peer]) for peer in range(4) if peer // 2 == rank // 2 and peer != rank)
            assert instance["scale_out_bytes"][rank] == far * plan.hidden * 2
            assert instance["scale_up_bytes"][rank] == near * plan.hidden * 2


def test_collectives_within_a_host_send_nothing_out() -> None:
    for instance in truth(simulate(SMALL), {})["collectives"]:
        hosts = {rank // 2 for rank in instance["group_ranks"]}
        assert (sum(instance["scale_out_bytes"]) > 0) == (len(hosts) > 1)
        both = np.add(instance["scale_up_bytes"], instance["scale_out_bytes"])
        assert both.tolist() == instance["sent_bytes"]


def test_hot_experts_are_those_far_above_the_mean_of_their_layer() -> None:
    known = truth(simulate(replace(SMALL, expert_imbalance=0.8)), {})
    totals: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
    for entry in known["experts"]:
        for tokens in entry["tokens"]:
            totals[entry["layer"]].update(dict(enumerate(tokens)))
    expected = [
        (layer, expert, count)
        for layer, counts in totals.items()
        for expert, count in sorted(counts.items())
        if count >= 1.5 * counts.total() / SMALL.experts
    ]
    assert [(hot["layer"], hot["expert"], hot["tokens"]) for hot in known["hot_experts"]] == expected
    assert expected
    assert all(hot["position"] == hot["expert"] // 4 for hot in known["hot_experts"])
    assert truth(simulate(replace(SMALL, expert_imbalance=0.0)), {})["hot_experts"] == []


# --- compact runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compact")
    write(
        replace(PRESETS["ep64-1024"], ranks=8, expert_parallel=8, steps=2, layers=2, clocks=(Clock(),)),
        directory,
    )
    return directory


def test_a_compact_run_keeps_its_arrays_beside_its_truth(compact: Path) -> None:
    known: dict[str, Any] = json.loads((compact / "truth.json").read_text())
    arrays = np.load(compact / "truth.npz")
    timeline = simulate(
        replace(PRESETS["ep64-1024"], ranks=8, expert_parallel=8, steps=2, layers=2, clocks=(Clock(),))
    )
    assert "collectives" not in known
    assert {array.shape for array in arrays.values()} == {(len(known["calls"]), 8)}
    assert (
        arrays["end_ns"].max(axis=1) == arrays["start_ns"].max(axis=1) + arrays["transfer_ns"][:, 0]
    ).all()
    assert len(known["calls"]) == len(timeline.exchanges)
    assert (arrays["scale_out_bytes"] == 0).all()


def test_the_largest_preset_has_two_thousand_collectives_on_every_rank() -> None:
    plan = PRESETS["ep64-1024"]
    one_step = simulate(replace(plan, ranks=64, steps=1, clocks=(Clock(),)))
    assert plan.ranks == 1024
    assert len(one_step.exchanges) * plan.steps > 2000


def test_a_compact_run_has_few_rows_and_all_it_needs() -> None:
    plan = replace(PRESETS["ep8-nccl"], steps=1)
    full, small = simulate(plan), simulate(replace(plan, compact=True))
    assert len(small.spans) < len(full.spans) / 3
    assert len(small.ops) < len(full.ops)
    assert [e.message.traffic.collective for e in small.exchanges] == [
        e.message.traffic.collective for e in full.exchanges
    ]
    assert {span.kind for span in small.spans} == {"annotation", "call"}


def test_fusing_small_kernels_hardly_changes_how_much_is_computed() -> None:
    plan = replace(PRESETS["ep8-balanced"], steps=1, jitter=0.0)
    full, small = (
        rank_figures(simulate(replace(plan, compact=compact)), 0)["all"]["compute_ns"]
        for compact in (False, True)
    )
    assert small == pytest.approx(full, rel=0.03)
