"""What profilers miss: late starts, lost files, dropped rows, absent metadata; the run stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from traceview.synth import Capture, LateStart, Workload, simulate, truth, write

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Workload(
    ranks=4,
    ranks_per_host=4,
    expert_parallel=4,
    steps=3,
    layers=1,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
)
Rows = list[dict[str, Any]]


def written(directory: Path, plan: Workload = PLAN, **capture: Any) -> tuple[dict[int, Rows], dict[str, Any]]:
    """Timed rows by rank, and the truth."""
    *traces, known = write(replace(plan, capture=Capture(**capture)), directory, compress=False)
    documents = [json.loads(path.read_bytes()) for path in traces]
    rows = {
        document["distributedInfo"]["rank"]: [
            event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] != "Trace"
        ]
        for document in documents
    }
    return rows, json.loads(known.read_bytes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, Rows], dict[str, Any]]:
    return written(tmp_path_factory.mktemp("whole"))


def stamps(rows: Rows, *categories: str) -> list[tuple[float, str]]:
    return [(row["ts"], row["name"]) for row in rows if row["cat"] in categories]


DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")


@pytest.mark.parametrize(("missed", "steps"), [(1.0, {"11", "12"}), (1.5, {"12"})])
def test_a_late_start_cuts_away_what_began_before(
    missed: float, steps: set[str], whole: tuple[dict[int, Rows], dict[str, Any]], tmp_path: Path
) -> None:
    rows, known = written(tmp_path, late_starts=(LateStart(rank=2, steps=missed),))
    marks = {row["name"]: row for row in whole[0][2] if row["name"].startswith("ProfilerStep")}
    second = marks["ProfilerStep#11"]
    cut = second["ts"] + (missed - 1) * (marks["ProfilerStep#12"]["ts"] - second["ts"])
    for category in (*DEVICE, *HOST):
        expected = [stamp for stamp in stamps(whole[0][2], category) if stamp[0] >= cut - 0.001]
        assert stamps(rows[2], category) == expected
        assert stamps(rows[1], category) == stamps(whole[0][1], category)
    assert set(known["ranks"][2]["steps"]) == steps
    assert known["ranks"][2]["recorded_from_ns"] is not None
    assert known["ranks"][1] == whole[1]["ranks"][1]
    assert known["ranks"][2]["steps"]["12"] == whole[1]["ranks"][2]["steps"]["12"]


def test_work_launched_before_a_late_start_has_no_launch(tmp_path: Path) -> None:
    plan = replace(PLAN, tokens=8192, hidden=2048)  # kernels so long that the host runs ahead
    rows, _ = written(tmp_path, plan, late_starts=(LateStart(rank=2, steps=1.5),))
    calls = {row["args"]["correlation"] for row in rows[2] if row["cat"] in {"cuda_runtime", "cuda_driver"}}
    orphans = [row for row in rows[2] if row["cat"] in DEVICE and row["args"]["correlation"] not in calls]
    assert orphans
    assert not any("External id" in row["args"] for row in orphans)


def test_a_missing_rank_has_no_file_and_keeps_its_place_in_the_truth(
    whole: tuple[dict[int, Rows], dict[str, Any]], tmp_path: Path
) -> None:
    rows, known = written(tmp_path, missing_ranks=(1,))
    assert sorted(rows) == [0, 2, 3]
    assert [entry["file"] for entry in known["ranks"]] == [
        "rank0_trace.json", None, "rank2_trace.json", "rank3_trace.json"
    ]  # fmt: skip
    for instance, before in zip(known["collectives"], whole[1]["collectives"], strict=True):
        assert instance["start_ns"] == before["start_ns"]
        assert instance["recorded"] == [rank != 1 for rank in instance["group_ranks"]]


def test_dropped_rows_are_device_rows_and_a_share_of_them(
    whole: tuple[dict[int, Rows], dict[str, Any]], tmp_path: Path
) -> None:
    rows, known = written(tmp_path, dropped_share=0.2)
    for rank in range(PLAN.ranks):
        left = {stamp for category in DEVICE for stamp in stamps(rows[rank], category)}
        every = {stamp for category in DEVICE for stamp in stamps(whole[0][rank], category)}
        assert left < every
        assert len(left) / len(every) == pytest.approx(0.8, abs=0.06)
        for category in HOST:
            assert stamps(rows[rank], category) == stamps(whole[0][rank], category)
        counted = sum(known["ranks"][rank]["all"]["op_count_by_category"].values())
        assert counted == len(left)
    recorded = [flag for instance in known["collectives"] for flag in instance["recorded"]]
    nccl = sum(
        row["name"].startswith("nccl") for ranks in rows.values() for row in ranks if row["cat"] == "kernel"
    )
    assert sum(recorded) == nccl < len(recorded)


def test_without_sequence_numbers_the_rest_of_the_metadata_stays(tmp_path: Path) -> None:
    rows, known = written(tmp_path, sequence_numbers=False)
    described = [row["args"] for row in rows[0] if "Collective name" in row["args"]]
    assert {row["cat"] for row in rows[0] if "Collective name" in row["args"]} == {"kernel", "cpu_op"}
    assert not any("Seq" in args for args in described)
    assert all(instance["seq"] for instance in known["collectives"])


def test_without_metadata_only_annotations_name_the_calls(tmp_path: Path) -> None:
    rows, _ = written(tmp_path, metadata=False)
    assert not any("Collective name" in row["args"] or "Process Group Name" in row["args"] for row in rows[0])
    names = {row["name"] for row in rows[0] if row["cat"] == "user_annotation"}
    assert {"nccl:all_to_all", "nccl:all_reduce"} <= names


def test_defects_never_change_the_run() -> None:
    defects = Capture(late_starts=(LateStart(0, 1.2),), missing_ranks=(3,), dropped_share=0.3, metadata=False)
    plain, defective = (simulate(replace(PLAN, capture=capture)) for capture in (Capture(), defects))
    assert np.array_equal(plain.op_start_ns, defective.op_start_ns)
    known = [truth(timeline, {})["collectives"] for timeline in (plain, defective)]
    for one, other in zip(*known, strict=True):
        assert {key: one[key] for key in one if key != "recorded"} == {
            key: other[key] for key in other if key != "recorded"
        }
