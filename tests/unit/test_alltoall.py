"""Waiting, transfer, bytes and bandwidth of all-to-alls: against the truth, an oracle, and a real trace."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview import api
from traceview.analyzers._latency import PARTIAL
from traceview.analyzers.alltoall import ANALYSIS
from traceview.contracts import Options
from traceview.synth import PRESETS, Straggler, Workload, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Instance = dict[str, Any]
KEYS = ("step", "layer", "phase", "role")
CLOCK_NS = 64
"""What the fit of two clocks may be off by on synthetic stamps, whose epoch float64 rounds."""

SMALL = Workload(steps=2, layers=2, tokens=512, hidden=1024)


def rows_of(folder: Path, *, by: Sequence[str] = KEYS, ranks: Sequence[int] | None = None) -> pl.DataFrame:
    return api.analyze(api.load(folder, ranks=ranks), "alltoall", by=by, steps="all").frame


def truth_of(folder: Path, collective: str = "all_to_all") -> list[Instance]:
    found = json.loads((folder / "truth.json").read_text())["collectives"]
    return [instance for instance in found if instance["collective"] == collective]


def waits(instance: Instance) -> int:
    return sum(max(instance["start_ns"]) - start for start in instance["start_ns"])


def true_rate(instance: Instance) -> float:
    """Bytes/s of the busiest rank, once all are there."""
    busiest = max(*instance["sent_bytes"], *instance["received_bytes"])
    return float(busiest / instance["transfer_ns"] * 1e9)


def imbalance(instance: Instance) -> float:
    moved = np.add(instance["sent_bytes"], instance["received_bytes"])
    return float(moved.max() / moved.mean())


# --- synthetic truth ---------------------------------------------------------------------------------

WORKLOADS = {
    "one host": (SMALL, 0),
    "imbalanced": (replace(SMALL, expert_imbalance=0.9, seed=3), 0),
    "fp8": (replace(SMALL, dispatch_dtype="Float8_e4m3fn"), 0),
    "two hosts": (replace(PRESETS["ep8-straggler"], steps=2, tokens=512, hidden=1024), CLOCK_NS),
}


@pytest.fixture(scope="module", params=WORKLOADS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A job, and what its clocks may be off by."""
    workload, tolerance = WORKLOADS[request.param]
    folder = tmp_path_factory.mktemp("job")
    write(workload, folder)
    return folder, tolerance


def test_waiting_transfer_bytes_and_bandwidth_equal_the_truth(job: tuple[Path, int]) -> None:
    folder, tolerance = job
    rows, truth = rows_of(folder), truth_of(folder)
    assert rows["instance_count"].sum() == len(truth)
    for row in rows.iter_rows(named=True):
        same = [one for one in truth if all(one[key] == row[key] for key in KEYS)]
        transfers = [one["transfer_ns"] for one in same]
        members = sum(len(one["start_ns"]) for one in same)
        assert row["complete_count"] == len(same)
        assert row["op_count"] == members
        assert abs(row["wait_ns"] - sum(map(waits, same))) <= tolerance * members
        assert abs(row["transfer_p50_ns"] - median(transfers)) <= tolerance
        assert abs(row["transfer_max_ns"] - max(transfers)) <= tolerance
        assert row["sent_bytes"] == sum(sum(one["sent_bytes"]) for one in same)
        assert row["scale_up_bytes"] + row["scale_out_bytes"] == row["sent_bytes"]
        assert row["bytes_method"] == "exact"
        assert row["bytes_imbalance"] == pytest.approx(median(map(imbalance, same)))
        assert row["busbw_bytes_per_s"] == pytest.approx(median(map(true_rate, same)), rel=1e-3)
        assert row["algbw_floor_bytes_per_s"] < row["algbw_bytes_per_s"]


def test_bytes_leave_the_domain_only_where_the_group_does(job: tuple[Path, int]) -> None:
    folder, tolerance = job
    rows = rows_of(folder)
    assert (rows["scale_out_bytes"] > 0).all() == (tolerance > 0)
    assert (rows["scale_out_bytes"] > 0).any() == (tolerance > 0)


def test_a_straggler_costs_waiting_and_no_bandwidth(tmp_path: Path) -> None:
    late = replace(SMALL, stragglers=(Straggler(rank=7, cause="slow_kernels", factor=1.5),), jitter=0.0)
    write(late, tmp_path)
    truth = truth_of(tmp_path)
    (row,) = rows_of(tmp_path, by=()).to_dicts()
    assert row["busbw_bytes_per_s"] == pytest.approx(median(map(true_rate, truth)))
    # what dividing by the time from the first start to the last end would give
    naive = median(
        max(*one["sent_bytes"], *one["received_bytes"]) / (max(one["end_ns"]) - min(one["start_ns"])) * 1e9
        for one in truth
    )
    assert naive < 0.9 * row["busbw_bytes_per_s"]
    by_rank = rows_of(tmp_path, by=("rank",))
    last = by_rank.sort("wait_ns").row(0, named=True)
    assert last["rank"] == 7
    assert by_rank["busbw_bytes_per_s"].n_unique() == 1


def test_barriers_of_a_transport_stand_apart_and_its_unknown_bytes_give_no_bandwidth(tmp_path: Path) -> None:
    write(replace(SMALL, transport="deepep", dispatch_dtype="Float8_e4m3fn"), tmp_path)
    payload, barriers = truth_of(tmp_path), truth_of(tmp_path, "barrier")
    for row in rows_of(tmp_path).iter_rows(named=True):
        same, sync = (
            [one for one in found if all(one[key] == row[key] for key in KEYS)]
            for found in (payload, barriers)
        )
        spent = [
            end - start for one in sync for start, end in zip(one["start_ns"], one["end_ns"], strict=True)
        ]
        assert row["sync_count"] == len(spent)
        assert row["sync_ns"] == sum(spent)
        assert row["wait_ns"] == sum(map(waits, same))
        assert row["transfer_max_ns"] == max(one["transfer_ns"] for one in same)
        unknown = ("sent_bytes", "scale_up_bytes", "bytes_method", "busbw_bytes_per_s", "expected_ratio")
        assert [row[name] for name in unknown] == [None] * len(unknown)


def test_one_rank_alone_has_durations_and_exposure_but_no_waiting_and_no_bandwidth(tmp_path: Path) -> None:
    write(SMALL, tmp_path)
    alone, all_ranks = rows_of(tmp_path, ranks=[3]), rows_of(tmp_path, by=("rank", *KEYS))
    mine = all_ranks.filter(pl.col("rank") == 3)
    for name in ("dur_ns", "dur_p50_ns", "exposed_ns", "hidden_ns", "sent_bytes", "algbw_floor_bytes_per_s"):
        assert alone[name].to_list() == mine[name].to_list()
    assert alone["algbw_floor_bytes_per_s"].null_count() == 0
    assert alone["complete_count"].sum() == 0
    unknown = [name for name in alone.columns if name.startswith(("wait", "transfer", "algbw_b", "busbw"))]
    unknown += ["exposed_wait_ns", "exposed_transfer_ns", "shortest_ns", "uncertainty_ns", "bytes_imbalance"]
    assert [name for name in unknown if alone[name].count()] == []


# --- hand-made exchanges -----------------------------------------------------------------------------


def op(rank: int, seq: int, start: int, end: int, **facts: Any) -> dict[str, Any]:
    """One all-to-all op of ``PARTIAL`` in a group of 4 on one host."""
    return {
        "op": seq,
        "rank": rank,
        "device": 0,
        "axis": "ep",
        "collective": "all_to_all",
        "group_size": 4,
        "group_key": "g",
        "seq": seq,
        "ts_ns": start,
        "dur_ns": end - start,
        "host": "a",
        "is_host_known": True,
        "node": 0,
        "hidden_ns": 0,
        "resolved_by": "kernel_args",
        "confidence": 1.0,
        "alone_start_ns": [start],
        "alone_end_ns": [end],
    } | facts


def asked(ops: Sequence[dict[str, Any]], *by: str) -> list[dict[str, Any]]:
    frame = PARTIAL.frame(pl.DataFrame(ops, schema_overrides=_OVERRIDES, infer_schema_length=None))
    return ANALYSIS.reduce(frame, Options(by=by)).to_dicts()


_OVERRIDES = {name: column.dtype for name, column in PARTIAL.columns.items()}

instants = st.integers(0, 10_000)
sizes = st.integers(0, 1 << 33)


@st.composite
def exchanges(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Instances of a group of 4: each ends everywhere at once, some lack a rank."""
    found = []
    for seq in range(draw(st.integers(1, 4))):
        base = 100_000 * seq
        starts = draw(st.lists(instants, min_size=4, max_size=4))
        end = base + draw(st.integers(10_000, 20_000))
        members = []
        for rank, start in enumerate(starts):
            sent, received = draw(sizes), draw(sizes)
            facts = {
                "sent_bytes": sent,
                "received_bytes": received,
                "in_bytes": sent + draw(sizes),
                "out_bytes": received + draw(sizes),
                "scale_out_bytes": draw(st.integers(0, sent)),
                "bytes_method": draw(st.sampled_from(["exact", "even"])),
                "role": "dispatch",
            }
            members.append(op(rank, seq, base + start, end, **facts))
        found.append(members[draw(st.sampled_from([0, 0, 0, 1])) :])
    return found


@settings(max_examples=60)
@given(exchanges())
def test_every_measure_equals_that_of_plain_loops(found: list[list[dict[str, Any]]]) -> None:
    ops = [one for members in found for one in members]
    (row,) = asked(ops)
    whole = [members for members in found if len(members) == 4]
    durations = [one["dur_ns"] for one in ops]
    assert row["op_count"] == len(ops)
    assert row["instance_count"] == len(found)
    assert row["complete_count"] == len(whole)
    assert row["dur_ns"] == sum(durations)
    for percent in (50, 90, 99):
        assert row[f"dur_p{percent}_ns"] == pytest.approx(np.percentile(durations, percent), abs=0.5)
    assert row["exposed_ns"] == sum(durations)
    assert row["sent_bytes"] == sum(one["sent_bytes"] for one in ops)
    assert row["scale_out_bytes"] == sum(one["scale_out_bytes"] for one in ops)
    methods = {one["bytes_method"] for one in ops}
    assert row["bytes_method"] == (methods.pop() if len(methods) == 1 else "mixed")
    if not whole:
        assert row["wait_ns"] is row["transfer_ns"] is row["busbw_bytes_per_s"] is None
        return
    lasts = [max(one["ts_ns"] for one in members) for members in whole]
    ends = [members[0]["ts_ns"] + members[0]["dur_ns"] for members in whole]
    waited = sum(last - one["ts_ns"] for members, last in zip(whole, lasts, strict=True) for one in members)
    transfers = [end - last for end, last in zip(ends, lasts, strict=True)]
    assert row["wait_ns"] == row["exposed_wait_ns"] == waited
    assert row["transfer_ns"] == row["exposed_transfer_ns"] == 4 * sum(transfers)
    assert row["transfer_p50_ns"] == pytest.approx(median(transfers), abs=0.5)
    assert row["transfer_max_ns"] == max(transfers)
    assert row["shortest_ns"] == sum(min(one["dur_ns"] for one in members) for members in whole)
    assert row["busbw_bytes_per_s"] == _median_rate(whole, transfers, ("sent_bytes", "received_bytes"))
    assert row["algbw_bytes_per_s"] == _median_rate(whole, transfers, ("in_bytes", "out_bytes"))


def _median_rate(whole: list[list[dict[str, Any]]], transfers: list[int], names: tuple[str, str]) -> Any:
    rates = [
        max(one[name] for one in members for name in names) / transfer * 1e9
        for members, transfer in zip(whole, transfers, strict=True)
        if transfer > 0
    ]
    return pytest.approx(median(rates)) if rates else None


BYTES = {"sent_bytes": 300, "received_bytes": 300, "in_bytes": 400, "out_bytes": 400, "scale_out_bytes": 0}


def test_a_group_of_one_waits_for_nobody_and_moves_nothing() -> None:
    nothing = {"group_size": 1, "sent_bytes": 0, "received_bytes": 0, "in_bytes": 400, "bytes_method": "even"}
    (row,) = asked([op(0, 0, 100, 900, **nothing)])
    assert (row["op_count"], row["complete_count"], row["sent_bytes"]) == (1, 0, 0)
    assert row["busbw_bytes_per_s"] is None
    assert row["wait_ns"] is None


def test_without_any_op_there_is_no_row() -> None:
    assert ANALYSIS.reduce(PARTIAL.empty(), Options(by=())).rows() == []


def test_other_collectives_are_not_all_to_alls() -> None:
    assert asked([op(0, 0, 0, 9, collective="all_reduce"), op(0, 1, 10, 19, collective="barrier")]) == []


def test_a_transfer_within_the_residual_of_the_clocks_has_no_bandwidth() -> None:
    # two hosts whose ends disagree by 400 ns, now one way and now the other, which no clock can mend
    late = [0, 400, 400, 0, 0, 400, 400, 0]
    ops = []
    for seq, off in enumerate(late):
        base, transfer = 1_000_000 * seq, 300 if seq == 0 else 100_000
        for rank in range(4):
            shift = off if rank > 1 else 400 - off
            facts = BYTES | {"host": "ab"[rank // 2], "bytes_method": "exact", "layer": min(seq, 1)}
            ops.append(op(rank, seq, base + shift, base + shift + transfer, **facts))
    short, long = asked(ops, "layer")
    assert short["uncertainty_ns"] > short["transfer_max_ns"] > 0
    assert short["busbw_bytes_per_s"] is None
    assert short["expected_ratio"] is None
    assert long["busbw_bytes_per_s"] == pytest.approx(300 / 100_000 * 1e9, rel=0.02)


def test_the_share_of_the_expected_rate_is_that_of_the_link() -> None:
    facts = BYTES | {"near_count": 4, "crosses": False, "device_name": "NVIDIA H100 80GB HBM3"}
    (row,) = asked([op(rank, 0, 0, 100, bytes_method="exact", **facts) for rank in range(4)])
    assert row["expected_bytes_per_s"] == 450e9
    assert row["expected_ratio"] == pytest.approx(300 / 100 * 1e9 / 450e9)


def test_an_exchange_has_one_size_class_though_its_ranks_differ() -> None:
    given_sizes = [400, 512, 513, 100]
    ops = [op(rank, 0, 0, 100, in_bytes=size, out_bytes=1) for rank, size in enumerate(given_sizes)]
    ops += [op(rank, 1, 200, 300, in_bytes=64, out_bytes=64) for rank in range(4)]
    rows = asked(ops, "size")
    assert [row["size_bytes"] for row in rows] == [64, 1024]
    assert [row["op_count"] for row in rows] == [4, 4]


@settings(max_examples=40)
@given(st.integers(0, 1 << 61))
def test_a_size_class_is_the_next_power_of_two(size: int) -> None:
    (row,) = asked([op(0, 0, 0, 100, in_bytes=size, out_bytes=0)], "size")
    assert row["size_bytes"] >= size
    assert size == 0 or row["size_bytes"] < 2 * size
    assert row["size_bytes"].bit_count() == (size > 0)


def test_a_kernel_that_a_user_s_rule_calls_a_barrier_is_no_payload() -> None:
    (row,) = asked([op(0, 0, 0, 100, collective="unknown", subrole="barrier")])
    assert (row["op_count"], row["sync_count"], row["sync_ns"]) == (0, 1, 100)


def test_local_copies_of_a_transport_are_no_payload() -> None:
    ops = [op(0, 0, 0, 100, subrole="payload"), op(0, 1, 100, 130, subrole="local_epilogue")]
    (row,) = asked(ops)
    assert (row["op_count"], row["dur_ns"], row["local_ns"]) == (1, 100, 30)


# --- a real trace ------------------------------------------------------------------------------------


def test_the_public_expert_parallel_trace_has_payload_and_waiting_apart(traces: Path) -> None:
    trace = traces / "pytorch" / "deepseek-ai-profile-data" / "train.json.gz"
    kernels: dict[str, list[float]] = {"dispatch": [], "combine": [], "notify": []}
    with gzip.open(trace) as file:
        for event in json.load(file)["traceEvents"]:
            name = event.get("name", "")
            if event.get("cat") == "kernel" and "ep::" in name:
                kind = next((part for part in ("notify", "dispatch", "combine") if part in name), None)
                if kind and "get_dispatch_layout" not in name:
                    kernels[kind].append(event["dur"] * 1000)
    rows = {row["role"]: row for row in rows_of(trace, by=("role",)).to_dicts()}
    for role in ("dispatch", "combine"):
        assert rows[role]["dur_ns"] == sum(kernels[role])
        assert rows[role]["op_count"] == len(kernels[role]) == 8
        assert rows[role]["sent_bytes"] is rows[role]["busbw_bytes_per_s"] is None
    assert sum(row["sync_ns"] for row in rows.values()) == sum(kernels["notify"])
    assert sum(row["sync_count"] for row in rows.values()) == len(kernels["notify"]) == 16
    published = {"dispatch": 31.0, "combine": 49.4}
    assert {role: round(rows[role]["dur_ns"] / 1e6, 1) for role in published} == published
    assert round(sum(kernels["notify"]) / 1e6, 1) == 32.6
