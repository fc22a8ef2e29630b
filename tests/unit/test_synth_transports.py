"""Transports and platforms: what each leaves in the trace, and what it leaves out."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from traceview.synth import WRITERS, Workload, simulate, truth

PLAN = Workload(
    ranks=4,
    ranks_per_host=4,
    expert_parallel=4,
    steps=1,
    microbatches=2,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=512,
    vocabulary=1024,
)
Rows = list[dict[str, Any]]


def document(workload: Workload, rank: int = 1) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(WRITERS["kineto"](simulate(workload), rank))
    return loaded


def rows(workload: Workload, *categories: str) -> Rows:
    return [event for event in document(workload)["traceEvents"] if event.get("cat") in categories]


def kernel_counts(workload: Workload, *parts: str) -> Counter[str]:
    """How many kernel names contain each part."""
    names = [row["name"] for row in rows(workload, "kernel")]
    return Counter({part: sum(part in name for name in names) for part in parts})


EXCHANGES = 2 * 2 * 4
"""Dispatches and combines of a rank, forward and backward: microbatches x layers x 4."""


def test_hybrid_ep_synchronises_on_the_device_before_each_payload() -> None:
    plan = replace(PLAN, transport="hybridep")
    counts = kernel_counts(
        plan,
        "hybrid_ep::dispatch_kernel",
        "hybrid_ep::combine_kernel",
        "device_sync_kernel",
        "hybrid_ep::scan",
    )
    assert list(counts.values()) == [EXCHANGES // 2, EXCHANGES // 2, EXCHANGES, EXCHANGES // 4]
    ordered = [row["name"] for row in rows(plan, "kernel") if row["tid"] == 35]
    assert all("device_sync" in first for first in ordered[::2])
    assert not any("device_sync" in second for second in ordered[1::2])


def test_low_latency_deep_ep_needs_one_kernel_per_exchange() -> None:
    plan = replace(PLAN, transport="deepep_low_latency")
    counts = kernel_counts(
        plan, "internode_ll::dispatch", "internode_ll::combine", "notify", "ncclDevKernel_SendRecv"
    )
    assert list(counts.values()) == [EXCHANGES // 2, EXCHANGES // 2, 0, 0]


@pytest.mark.parametrize("transport", ["deepep", "deepep_low_latency", "hybridep"])
def test_transports_beside_nccl_leave_no_metadata(transport: str) -> None:
    for row in rows(replace(PLAN, transport=transport), "kernel"):  # type: ignore[arg-type]
        assert ("Collective name" in row["args"]) == row["name"].startswith("nccl")


# --- copy engines ------------------------------------------------------------------------------------


def test_copy_engines_carry_an_all_to_all_without_a_kernel() -> None:
    plan = replace(PLAN, transport="copy_engine")
    timeline = simulate(plan)
    copies = [row for row in rows(plan, "gpu_memcpy") if "PtoP" in row["name"]]
    assert len(copies) == EXCHANGES * 3
    assert kernel_counts(plan, "SendRecv")["SendRecv"] == 0
    exchanges = [exchange for exchange in timeline.exchanges if exchange.message.role]
    for exchange, mine in zip(
        exchanges, np.array_split(np.array(copies, dtype=object), EXCHANGES), strict=True
    ):
        assert [row["args"]["toDevice"] for row in mine] == [2, 3, 0]
        assert sum(row["args"]["bytes"] for row in mine) == exchange.message.traffic.sent_bytes[1]
        assert all(row["args"]["fromDevice"] == 1 and "device" not in row["args"] for row in mine)


def test_copies_are_launched_inside_the_annotation_of_the_call() -> None:
    plan = replace(PLAN, transport="copy_engine")
    annotations = [row for row in rows(plan, "user_annotation") if row["name"] == "nccl:all_to_all"]
    calls = {row["args"]["correlation"]: row for row in rows(plan, "cuda_runtime") if "args" in row}
    inside: Counter[float] = Counter()
    for copy in rows(plan, "gpu_memcpy"):
        if "PtoP" in copy["name"]:
            ts = calls[copy["args"]["correlation"]]["ts"]
            (around,) = [a["ts"] for a in annotations if a["ts"] <= ts < a["ts"] + a["dur"]]
            inside[around] += 1
    assert set(inside.values()) == {3}
    assert len(inside) == len(annotations) == EXCHANGES


def test_copies_begin_together_and_no_wait_shows() -> None:
    known = truth(simulate(replace(PLAN, transport="copy_engine")), {})
    for instance in known["collectives"]:
        if instance["role"]:
            assert len(set(instance["start_ns"])) == 1
            assert max(instance["end_ns"]) == instance["start_ns"][0] + instance["transfer_ns"]
            assert instance["last_arriver"] is None


# --- ROCm --------------------------------------------------------------------------------------------


def test_rccl_has_one_kernel_for_all_collectives_and_metadata_to_tell_them() -> None:
    plan = replace(PLAN, platform="rocm")
    comm = [row for row in rows(plan, "kernel") if row["name"].startswith("nccl")]
    assert {row["name"].split("(")[0] for row in comm} == {"ncclDevKernel_Generic_4"}
    named = Counter(row["args"]["Collective name"] for row in comm)
    assert named == {
        "all_to_allv": EXCHANGES, "_reduce_scatter_base": 2, "_allgather_base": 1, "allreduce": 1
    }  # fmt: skip


def test_rocm_runs_the_same_program_at_the_same_times() -> None:
    cuda, rocm = simulate(PLAN), simulate(replace(PLAN, platform="rocm"))
    assert np.array_equal(cuda.op_start_ns, rocm.op_start_ns)
    assert [op.kernel.category for op in cuda.ops] == [op.kernel.category for op in rocm.ops]


def test_nothing_of_cuda_is_named_on_rocm() -> None:
    text = WRITERS["kineto"](simulate(replace(PLAN, platform="rocm")), 0)
    for word in ('"cuda', "cuLaunch", "nvjet", "__nv_", "NVIDIA", "cbid", "flash::"):
        assert word not in text.replace('"cuda_runtime"', "").replace('"cuda:nccl"', "")
    assert "hipExtModuleLaunchKernel" in text
    assert "AMD Instinct MI300X" in text


# --- graphs ------------------------------------------------------------------------------------------


def test_a_graph_is_one_call_and_its_nodes_carry_its_correlation() -> None:
    plan = replace(PLAN, graphs=True)
    calls = [row for row in rows(plan, "cuda_runtime") if row["name"] == "cudaGraphLaunch"]
    assert len(calls) == 4  # a forward and a backward per microbatch
    nodes = defaultdict(list)
    for row in rows(plan, "kernel", "gpu_memcpy", "gpu_memset"):
        if row["args"]["graph node id"]:
            nodes[row["args"]["correlation"]].append(row)
    assert set(nodes) == {call["args"]["correlation"] for call in calls}
    for call in calls:
        launched = nodes[call["args"]["correlation"]]
        assert len(launched) > 30
        assert {row["args"]["graph node id"] >> 32 for row in launched} == {launched[0]["args"]["graph id"]}
        assert len({row["args"]["graph node id"] for row in launched}) == len(launched)
        assert min(row["ts"] for row in launched) >= call["ts"] + call["dur"]


def test_replays_of_one_graph_number_their_nodes_alike() -> None:
    replays = defaultdict(list)
    for row in rows(replace(PLAN, graphs=True), "kernel"):
        if row["args"]["graph id"]:
            replays[row["args"]["graph id"], row["args"]["correlation"]].append(
                (row["name"], row["args"]["graph node id"])
            )
    forwards = [sorted(nodes) for (graph, _), nodes in replays.items() if graph == 1]
    assert len(forwards) == 2
    assert forwards[0] == forwards[1]


def test_a_replayed_exchange_leaves_neither_metadata_nor_annotation() -> None:
    plan = replace(PLAN, graphs=True)
    exchanges = [row for row in rows(plan, "kernel") if "SendRecv" in row["name"]]
    assert len(exchanges) == EXCHANGES
    assert not any("Collective name" in row["args"] or "External id" in row["args"] for row in exchanges)
    names = {row["name"] for row in rows(plan, "user_annotation")}
    assert not names & {"nccl:all_to_all", "layer_0f", "moe_dispatch forward"}
    known = truth(simulate(plan), {})
    assert {i["seq"] for i in known["collectives"] if i["axis"] == "ep"} == {None}


def test_a_graph_keeps_the_order_of_its_streams() -> None:
    streams = defaultdict(list)
    for row in rows(replace(PLAN, graphs=True), "kernel", "gpu_memcpy", "gpu_memset"):
        streams[row["tid"]].append((round(row["ts"] * 1000), round((row["ts"] + row["dur"]) * 1000)))
    for spans in streams.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def test_a_graph_spares_the_host() -> None:
    eager, graphed = (
        len(rows(replace(PLAN, graphs=graphs), "cuda_runtime", "cuda_driver")) for graphs in (False, True)
    )
    assert graphed < eager / 5
