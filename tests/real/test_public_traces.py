"""Public traces: published figures, figures computed another way, and no file that is not understood.

The expected numbers were computed by independent interval-union code on nanosecond integers, not by
traceview; the oracle below does it once more, by plain Python over sorted edges.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv
from traceview.errors import UnknownFormatError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.traces

REFUSED = {
    "AMD-AGI-TraceLens/tracediff_test": "without trace events",
    "IBM-aiu-trace-analyzer/tests/test_data/allreduce_tp4": "AIU",
    "IBM-aiu-trace-analyzer/tests/test_data/sample_flex": "AIU",
    "IBM-aiu-trace-analyzer/tests/test_data/meta_events_only": "without complete",
    "Lightning-AI-pytorch-lightning/0_trace": "legacy autograd profiler",
    "facebookresearch-HolisticTraceAnalysis/execution_trace/benchmark_simple_add_et": "execution trace",
    "facebookresearch-HolisticTraceAnalysis/memory_analysis": "without trace events",
    "facebookresearch-param/dlrm_pytorch_et": "execution trace",
    "mosaicml-composer": "without complete",
    "pytorch-torchtitan/tl_out": "torch.compile",
}
"""Files that are no traces of device work, by how their paths begin, and what each must be called."""


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def _swept(events: list[tuple[int, int, str]]) -> dict[str, int]:
    """ns spent in each combination of kinds, walked from edge to edge."""
    edges = sorted([(a, 1, kind) for a, _, kind in events] + [(b, -1, kind) for _, b, kind in events])
    running: dict[str, int] = {}
    spent: dict[str, int] = {}
    for (at, change, kind), (until, _, _) in pairwise(edges):
        running[kind] = running.get(kind, 0) + change
        now = "+".join(sorted(k for k, n in running.items() if n))
        spent[now] = spent.get(now, 0) + until - at
    return spent


def _kind(event: dict[str, Any]) -> str:
    if event["cat"] != "kernel":
        return "copy"
    name = event["name"]
    return "comm" if "nccl" in name or "internode" in name else "compute"


def _device_events(document: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Start, end and kind of device work; the stamps of these files have at most three decimals."""
    rows = [e for e in document["traceEvents"] if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    return [
        (start, start + round(e["dur"] * 1000), _kind(e))
        for e in rows
        for start in [round(e["ts"] * 1000) if e["ts"] < 1e15 else e["ts"] * 1000]
    ]


def _only_row(path: Path) -> dict[str, Any]:
    [row] = tv.breakdown(tv.load(path), steps="all").summary()
    return row


def test_every_public_file_is_analysed_soundly_or_refused_by_its_name(traces: Path, public_file: str) -> None:
    says = next((text for start, text in REFUSED.items() if public_file.startswith(start)), None)
    path = traces / "pytorch" / public_file
    if says is not None:
        with pytest.raises(UnknownFormatError, match=says):
            tv.load(path)
        return
    run = tv.load(path)
    for steps in ("all", "auto"):
        total = tv.breakdown(run, by=(), steps=steps).frame
        by_layer = tv.overlap(run, by=("axis", "collective", "layer", "phase"), steps=steps).frame
        for frame in (total, tv.breakdown(run, by=("rank", "step"), steps=steps).frame, by_layer):
            for column in frame.columns:
                values = frame[column].drop_nulls()
                if column.endswith("_ns"):
                    assert (values >= 0).all(), column
                if column.endswith("_ratio"):
                    assert values.is_between(0, 1).all(), column
        assert by_layer["exclusive_ns"].sum() == total["exposed_comm_ns"].sum()


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai-profile-data/train.json.gz",
        "pytorch-ao/ref_ep_moe_fwd.json.gz",
        "KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks/rank3-chrome-trace.json.gz",
        "astra-sim-astra-sim/megatron-tp8/megatron_kineto_5.json.gz",
    ],
)
def test_the_breakdown_equals_a_plain_walk_over_the_edges(traces: Path, name: str) -> None:
    path = traces / "pytorch" / name
    spent = _swept(_device_events(_load(path)))
    row = _only_row(path)
    assert row["compute_ns"] == sum(t for kinds, t in spent.items() if "compute" in kinds)
    assert row["comm_ns"] == sum(t for kinds, t in spent.items() if "comm" in kinds.split("+"))
    assert row["hidden_comm_ns"] == sum(
        t for k, t in spent.items() if {"comm", "compute"} <= set(k.split("+"))
    )
    assert row["exposed_copy_ns"] == spent.get("copy", 0)
    assert row["idle_ns"] == spent.get("", 0)
    assert row["window_ns"] == sum(spent.values())


def test_deepseeks_own_trace_hides_96_percent_of_its_communication(traces: Path) -> None:
    path = traces / "pytorch/deepseek-ai-profile-data/train.json.gz"
    row = _only_row(path)
    expected = {
        "window_ns": 129_012_000,
        "compute_ns": 124_338_000,
        "comm_ns": 113_030_000,
        "hidden_comm_ns": 108_868_000,
        "exposed_comm_ns": 4_162_000,
        "exposed_copy_ns": 15_000,
        "idle_ns": 497_000,
    }
    assert {name: row[name] for name in expected} == expected
    assert row["overlap_ratio"] == pytest.approx(0.963178, abs=1e-6)
    counts = dict(tv.load(path).ops.group_by("category").len().collect().rows())
    assert {name: counts[name] for name in ("dispatch", "combine", "ep_sync")} == {
        "dispatch": 8,
        "combine": 8,
        "ep_sync": 16,
    }


def test_torchaos_all_to_alls_are_resolved_from_metadata_with_their_splits(traces: Path) -> None:
    path = traces / "pytorch/pytorch-ao/ref_ep_moe_fwd.json.gz"
    row = _only_row(path)
    expected = {
        "compute_ns": 20_941_515,
        "comm_ns": 4_489_945,
        "hidden_comm_ns": 408_502,
        "exposed_comm_ns": 4_081_443,
        "idle_ns": 9_016_199,
    }
    assert {name: row[name] for name in expected} == expected
    found = tv.load(path).collectives.filter(pl.col("resolved_by") == "kernel_args").collect()
    assert found["collective"].cast(pl.String).to_list() == ["all_to_all"] * 30
    recorded = [e["args"] for e in _load(path)["traceEvents"] if "Collective name" in e.get("args", {})]
    of_kernels = [a for a in recorded if "stream" in a]
    assert sorted(found["in_splits"].to_list()) == sorted(json.loads(a["In split size"]) for a in of_kernels)
    assert found["splits_complete"].all()
    itemsize = {"BFloat16": 2, "Long": 8, "Float": 4}
    total = sum(a["In msg nelems"] * itemsize[a["dtype"]] for a in of_kernels)
    assert found["in_bytes"].sum() == total


def test_nanogpts_eight_files_are_one_run(traces: Path) -> None:
    run = tv.load(traces / "pytorch/KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks")
    assert run.ranks == tuple(range(8))
    rows = tv.breakdown(run, steps="all").frame.select("comm_ns", "hidden_comm_ns", "overlap_ratio").rows()
    assert rows[0][:2] == (48_340_162, 7_684_051)
    assert rows[0][2] == pytest.approx(0.158958, abs=1e-6)
    assert rows[3][2] == pytest.approx(0.139670, abs=1e-6)


def test_two_recordings_in_one_folder_are_two_runs(traces: Path) -> None:
    folder = traces / "pytorch/pytorch-torchrec/trace/sst_long_a2a_optimizer_2"
    runs = tv.load_runs(folder)
    assert [run.ranks for run in runs] == [(0, 1, 2, 3)] * 2
    # the writer's process ids are consecutive within a recording
    pids = [[trace.facts.pid or 0 for trace in run.traces] for run in runs]
    assert all(max(ids) - min(ids) < 100 for ids in pids)
    for run in runs:
        found = run.collectives.collect()
        exchanges = found.filter(pl.col("resolved_by") == "annotation", pl.col("collective") == "all_to_all")
        assert len(exchanges) > 40
        undecided = found.filter(pl.col("resolved_by") == "unresolved")
        launched = run.ops.select("rank", "op", "launch_ts_ns").collect()
        # only kernels launched before the window opened stay open: their annotation was not recorded
        assert undecided.join(launched, on=["rank", "op"])["launch_ts_ns"].is_null().all()
    with pytest.raises(tv.TraceViewError, match="never mixed"):
        tv.load(folder)


def test_graph_launches_start_many_ops_each(traces: Path) -> None:
    path = (
        traces
        / "pytorch/facebookresearch-HolisticTraceAnalysis/negative_queue_length_values_check/rank0.json.gz"
    )
    run = tv.load(path)
    launches = run.launches.filter(pl.col("name").cast(pl.String) == "cudaGraphLaunch").collect()
    started = run.ops.filter(pl.col("correlation").is_in(launches["correlation"].implode())).collect()
    assert len(launches) == 70
    assert started["launch_ts_ns"].null_count() == 0
    assert len(started) == 345
