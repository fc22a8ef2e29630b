"""Folded parallelism: who talks to whom, against a plain enumeration of the two grids; pipeline order."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.synth import PRESETS, WRITERS, Workload, simulate, truth
from traceview.synth.schedule import Action, one_f_one_b
from traceview.synth.topology import topology

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDED = Workload(
    ranks=16,
    ranks_per_host=4,
    tensor_parallel=2,
    context_parallel=2,
    pipeline_parallel=2,
    expert_parallel=4,
    steps=1,
    microbatches=3,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
)


def sets_of(coordinates: Mapping[int, tuple[int, ...]], free: tuple[int, ...]) -> list[list[int]]:
    """Ranks that agree in all coordinates but the ``free`` ones."""
    sets = defaultdict(list)
    for rank, place in sorted(coordinates.items()):
        sets[tuple(c for axis, c in enumerate(place) if axis not in free)].append(rank)
    return sorted(sets.values())


def document(workload: Workload, rank: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(WRITERS["kineto"](simulate(workload), rank))
    return loaded


@given(
    tp=st.sampled_from([1, 2]), cp=st.sampled_from([1, 2, 3]), dp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 3]), expert_share=st.sampled_from([1, 2, 3, 4]),
)  # fmt: skip
def test_groups_are_the_lines_of_two_grids_that_share_the_pipeline(
    tp: int, cp: int, dp: int, pp: int, expert_share: int
) -> None:
    per_stage = tp * cp * dp
    ep = expert_share if per_stage % expert_share == 0 else 1
    plan = Workload(
        ranks=per_stage * pp, tensor_parallel=tp, context_parallel=cp, pipeline_parallel=pp,
        expert_parallel=ep, layers=6, experts=12, tokens=48,
    )  # fmt: skip
    dense = dict(enumerate(product(range(pp), range(dp), range(cp), range(tp))))
    experts = dict(enumerate(product(range(pp), range(per_stage // ep), range(ep))))
    groups = topology(plan)
    for group, expected in (
        (groups.world, [list(range(plan.ranks))]),
        (groups.pipeline, sets_of(dense, (0,))),
        (groups.data, sets_of(dense, (1, 2))),
        (groups.context, sets_of(dense, (2,))),
        (groups.tensor, sets_of(dense, (3,))),
        (groups.expert_data, sets_of(experts, (1,))),
        (groups.expert, sets_of(experts, (2,))),
    ):
        assert sorted(group.members.tolist()) == expected


@given(ranks_per_host=st.integers(1, 9), expert_parallel=st.sampled_from([1, 2, 4, 8]))
def test_a_peer_is_far_when_it_is_on_another_host(ranks_per_host: int, expert_parallel: int) -> None:
    plan = Workload(ranks_per_host=ranks_per_host, expert_parallel=expert_parallel)
    group = topology(plan).expert
    for members in group.members.tolist():
        for rank in members:
            far = [peer // ranks_per_host != rank // ranks_per_host for peer in members]
            assert group.is_far[rank].tolist() == far
            assert group.position[rank] == members.index(rank)


def test_sets_of_an_axis_share_a_name_or_have_one_each() -> None:
    for naming, distinct in (("per_axis", 1), ("per_set", 4)):
        timeline = simulate(replace(FOLDED, group_names=naming, microbatches=1))  # type: ignore[arg-type]
        named = defaultdict(set)
        for rank in range(FOLDED.ranks):
            for entry in json.loads(WRITERS["kineto"](timeline, rank))["distributedInfo"]["pg_config"]:
                assert rank in entry["ranks"]
                assert len(entry["ranks"]) == entry["pg_size"]
                named[entry["pg_desc"]].add((entry["pg_name"], *entry["ranks"]))
        names = {name for name, *_ in named["EXPERT_MODEL_PARALLEL_GROUP"]}
        assert len(named["EXPERT_MODEL_PARALLEL_GROUP"]) == 4
        assert len(names) == distinct
    every = [name for entries in named.values() for name, *_ in entries]
    assert len(every) == len(set(every))


def test_attention_is_gathered_before_and_scattered_after() -> None:
    timeline = simulate(replace(FOLDED, pipeline_parallel=1, microbatches=1, layers=1))
    forward = [
        op.kernel.category if op.exchange is None else timeline.exchanges[op.exchange].message.group.axis
        for op in timeline.ops
        if (op.scope.phase, op.scope.layer) == ("forward", 0)
    ]
    assert forward[:8] == ["norm", "tp", "gemm", "cp", "attention", "gemm", "tp", "elementwise"]


def test_compute_waits_for_the_sequence_to_be_gathered() -> None:
    timeline = simulate(replace(FOLDED, pipeline_parallel=1, microbatches=1, layers=1))
    for exchange in timeline.exchanges:
        if exchange.message.group.axis in {"tp", "cp"}:
            row = exchange.ops[0]
            follower = next(i for i in range(row + 1, len(timeline.ops)) if timeline.ops[i].exchange is None)
            assert (timeline.op_start_ns[follower] > timeline.op_end_ns[row]).all()


def test_gathering_moves_the_whole_sequence() -> None:
    known = truth(simulate(replace(FOLDED, microbatches=1, pipeline_parallel=1)), {})
    gathers = [i for i in known["collectives"] if (i["axis"], i["phase"]) == ("tp", "forward")]
    own = FOLDED.tokens // 4 * FOLDED.hidden * 2  # tokens of one rank, BF16
    assert {i["collective"] for i in gathers} == {"all_gather", "reduce_scatter"}
    assert {b for i in gathers for b in i["sent_bytes"]} == {own}
    assert {(min(i["in_bytes"]), min(i["out_bytes"])) for i in gathers} == {(own, 2 * own), (2 * own, own)}


# --- pipeline ----------------------------------------------------------------------------------------


@given(stages=st.integers(1, 6), microbatches=st.integers(1, 9))
def test_a_pipeline_runs_everything_once_and_nothing_before_its_input(stages: int, microbatches: int) -> None:
    rounds = list(one_f_one_b(stages, microbatches))
    when = {action: number for number, ready in enumerate(rounds) for action in ready}
    every = [
        Action(stage, phase, microbatch)  # type: ignore[arg-type]
        for stage, phase, microbatch in product(range(stages), ("forward", "backward"), range(microbatches))
    ]
    assert sorted(when, key=repr) == sorted(every, key=repr)
    for action in every:
        if action.phase == "forward" and action.stage > 0:
            assert when[Action(action.stage - 1, "forward", action.microbatch)] < when[action]
        if action.phase == "backward":
            assert when[Action(action.stage, "forward", action.microbatch)] < when[action]
            if action.stage < stages - 1:
                assert when[Action(action.stage + 1, "backward", action.microbatch)] < when[action]
    assert all(len({action.stage for action in ready}) == len(ready) for ready in rounds)


@given(stages=st.integers(1, 6), microbatches=st.integers(1, 9))
def test_a_stage_never_holds_more_microbatches_than_stages_follow(stages: int, microbatches: int) -> None:
    held = [0] * stages
    for ready in one_f_one_b(stages, microbatches):
        for action in ready:
            held[action.stage] += 1 if action.phase == "forward" else -1
            assert held[action.stage] <= stages - action.stage
    assert len(list(one_f_one_b(stages, microbatches))) == 2 * (microbatches + stages - 1)


@pytest.fixture(scope="module")
def stages() -> list[list[dict[str, Any]]]:
    """Timed rows of the first and the last rank: one of each stage."""
    return [
        [event for event in document(FOLDED, rank)["traceEvents"] if event["ph"] == "X"] for rank in (0, 15)
    ]


def test_a_stage_runs_its_own_layers_only(stages: list[list[dict[str, Any]]]) -> None:
    layers = [{row["name"] for row in rows if row["name"].startswith("layer_")} for rows in stages]
    assert layers == [{"layer_0f", "layer_0b"}, {"layer_1f", "layer_1b"}]
    for rows, embeds in zip(stages, (True, False), strict=True):
        names = {row["name"] for row in rows if row["cat"] == "kernel"}
        assert ("triton_poi_fused_embedding_0" in names) == embeds
        assert ("triton_red_fused__log_softmax_nll_loss_forward_1" in names) != embeds


def test_sender_and_receiver_name_the_transfer_from_their_side(stages: list[list[dict[str, Any]]]) -> None:
    first, last = ({row["name"] for row in rows if row["cat"] == "user_annotation"} for rows in stages)
    for microbatch in range(FOLDED.microbatches):
        assert {f"PP:0SEND_F{microbatch}", f"PP:0RECV_B{microbatch}"} <= first
        assert {f"PP:1RECV_F{microbatch}", f"PP:1SEND_B{microbatch}"} <= last
    assert {"nccl:send 0->1", "nccl:recv 0<-1"} <= first
    assert {"nccl:recv 1<-0", "nccl:send 1->0"} <= last
    calls = [
        (row["args"]["Collective name"], row["args"]["Src Rank"], row["args"]["Dst Rank"])
        for row in stages[0]
        if "Src Rank" in row["args"]
    ]
    assert set(calls) == {("send", 0, 8), ("recv", 8, 0)}


def test_a_stage_computes_only_after_its_input_has_arrived() -> None:
    known = truth(simulate(FOLDED), {})
    for instance in known["collectives"]:
        if instance["axis"] == "pp":
            assert sum(bytes_ > 0 for bytes_ in instance["sent_bytes"]) == 1
            assert instance["sent_bytes"] == instance["received_bytes"][::-1]
    arrived = {
        (instance["group_ranks"][1], instance["microbatch"]): instance["end_ns"][1]
        for instance in known["collectives"]
        if (instance["axis"], instance["phase"]) == ("pp", "forward")
    }
    assert len(arrived) == 8 * FOLDED.microbatches
    for instance in known["collectives"]:
        if (instance["axis"], instance["phase"], instance["layer"]) == ("ep", "forward", 1):
            for rank, start in zip(instance["group_ranks"], instance["start_ns"], strict=True):
                assert start > arrived[rank, instance["microbatch"]]


def test_only_the_ranks_that_hold_a_layer_report_its_experts() -> None:
    known = truth(simulate(FOLDED), {})
    for entry in known["experts"]:
        assert len(entry["tokens"]) == 2  # expert-parallel sets of one stage
        assert np.sum(entry["tokens"]) == 8 * FOLDED.tokens // 4 * FOLDED.top_k
    ranks = {tuple(i["group_ranks"]) for i in known["collectives"] if i["axis"] == "ep" and i["layer"] == 0}
    assert ranks == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_folded_presets_say_what_they_are() -> None:
    for name, axes in (("tp2-ep4", {"tp", "ep"}), ("tp2-cp2-ep8", {"tp", "cp"}), ("pp2-ep4", {"pp", "ep"})):
        plan = PRESETS[name]
        used = {exchange.message.group.axis for exchange in simulate(replace(plan, steps=1)).exchanges}
        assert axes <= used
