"""Public pairs of traces compared: figures computed from the raw JSON, and verdicts that make sense."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.comparisons.compare import Comparison

pytestmark = pytest.mark.traces

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _events(path: Path) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    events: list[dict[str, Any]] = document["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def _by_step(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Device events by the step whose host range contains their launch."""
    events = _events(path)
    steps = {
        int(event["name"].partition("#")[2]): (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["name"].startswith("ProfilerStep#") and event.get("cat") != "gpu_user_annotation"
    }
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event.get("args", {})
    }
    found: dict[int, list[dict[str, Any]]] = {step: [] for step in steps}
    for event in events:
        at = launched.get(event.get("args", {}).get("correlation")) if event.get("cat") in DEVICE else None
        for step, (start, end) in steps.items():
            if at is not None and start <= at < end:
                found[step].append(event)
    return found


def _adds_up(found: Comparison) -> None:
    ledger = found.changes.filter(pl.col("scope") == "ledger")
    [step] = found.changes.filter(pl.col("scope") == "step").to_dicts()
    for name in ("a_total_ns", "b_total_ns"):
        assert ledger[name].sum() == step[name]
    assert ledger["delta_ns"].sum() == pytest.approx(step["delta_ns"], rel=1e-9)


@pytest.fixture(scope="module")
def trace_diff(traces: Path) -> tuple[Path, Path]:
    folder = traces / "pytorch" / "facebookresearch-HolisticTraceAnalysis" / "trace_diff"
    return folder / "control" / "control.json.gz", folder / "test" / "test.json.gz"


def test_the_pair_of_hta_differs_where_its_own_kernels_say_so(trace_diff: tuple[Path, Path]) -> None:
    before, after = trace_diff
    found = tv.compare(tv.load(before), tv.load(after))
    _adds_up(found)
    work = [_by_step(path) for path in trace_diff]
    counts: list[Counter[str]] = [Counter(), Counter()]
    spent: list[Counter[str]] = [Counter(), Counter()]
    for side, steps in enumerate(work):
        for event in itertools.chain(*steps.values()):
            counts[side][event["name"]] += 1
            spent[side][event["name"]] += event["dur"]
    names = [set(count) for count in counts]
    told = {row["name"]: row for row in found.kernels.to_dicts()}
    for name in names[0] | names[1]:
        if name.startswith("triton_"):
            continue
        row = told[" ".join(name.split())]
        expected = "kept" if name in names[0] & names[1] else "removed" if name in names[0] else "added"
        assert row["change"] == expected
        for side, letter in enumerate("ab"):
            assert row[f"{letter}_count"] == pytest.approx(counts[side][name] / len(work[side]))
            expected_ns = 1000 * spent[side][name] / len(work[side])
            assert row[f"{letter}_ns"] == pytest.approx(expected_ns, rel=1e-6, abs=1)


def test_the_pair_of_hta_is_told_by_device_and_the_slower_device_loses(trace_diff: tuple[Path, Path]) -> None:
    before, after = trace_diff
    found = tv.compare(tv.load(before), tv.load(after))
    facts = {row["fact"]: (row["a"], row["b"]) for row in found.configuration.to_dicts()}
    assert facts["device"] == ("NVIDIA A100-PG509-200", "Tesla V100-SXM2-16GB")
    assert facts["world size"] == ("8", "2")
    told = found.totals.row(0, named=True)
    assert told["verdict"] == "more"
    gemm = found.changes.filter(pl.col("family") == "gemm")
    assert set(gemm["verdict"]) == {"more"}


def test_halves_of_a_real_run_do_not_differ(trace_diff: tuple[Path, Path]) -> None:
    run = tv.load(trace_diff[0])
    found = tv.compare(run, run, steps=(range(1009, 1012), range(1012, 1015)))
    assert set(found.changes["verdict"]) == {"unknown"}  # 3 steps against 3: not to be told
    _adds_up(found)


MODELS = (
    "gaunernst_bert-small-uncased__1016001",
    "Falconsai_nsfw_image_detection__1016002",
    "Qwen_Qwen1.5-0.5B-Chat__1016005",
    "facebook_timesformer-base-finetuned-k400__1016002",
)


@pytest.mark.parametrize("model", MODELS)
def test_one_model_on_two_vendors_aligns_by_family(traces: Path, model: str) -> None:
    folder = traces / "pytorch" / "AMD-AGI-TraceLens"
    paths = [folder / vendor / f"{model}.json.gz" for vendor in ("h100", "mi300")]
    runs = [tv.load(path) for path in paths]
    found = tv.compare(*runs, steps="all")
    _adds_up(found)
    assert found.totals["verdict"].item() == "unknown"
    families = found.changes.filter(pl.col("scope") == "family")
    for letter, path in zip("ab", paths, strict=True):
        device = [event for event in _events(path) if event.get("cat") in DEVICE]
        assert families[f"{letter}_count"].sum() == len(device)
        assert families[f"{letter}_ns"].sum() == pytest.approx(1000 * sum(e["dur"] for e in device), rel=1e-6)
        copies = families.filter(pl.col("family") == "memory")[f"{letter}_count"].sum()
        assert copies >= sum(event["cat"] != "kernel" for event in device)
    shared = families.filter((pl.col("a_count") > 0) & (pl.col("b_count") > 0))
    assert {"gemm", "elementwise"} <= set(shared["family"])


def test_the_torchrec_variants_differ_in_their_exchanges_and_not_in_their_kernels(traces: Path) -> None:
    folder = traces / "pytorch" / "pytorch-torchrec" / "trace"
    runs = [tv.load(folder / f"sst_long_a2a_optimizer_{number}") for number in (3, 5)]
    found = tv.compare(*runs)
    _adds_up(found)
    assert len(found.notes) == 0
    families = found.changes.filter(pl.col("scope") == "family")
    assert families["a_count"].to_list() == families["b_count"].to_list()
    compute = families.filter(pl.col("axis").is_null() & (pl.col("a_ns") > 5e6))
    assert max(map(abs, compute["delta_ratio"].to_list())) < 0.05
    for letter, run in zip("ab", runs, strict=True):
        windows = tv.breakdown(run, by=("rank", "step")).frame
        assert found.totals[f"{letter}_step_ns"].item() == pytest.approx(windows["window_ns"].mean())


def test_a_variant_that_trains_and_one_that_only_waits_are_told_apart(traces: Path) -> None:
    folder = traces / "pytorch" / "pytorch-torchrec" / "trace"
    runs = [tv.load(folder / name) for name in ("sst_long_a2a_optimizer", "sst_long_a2a_optimizer_5")]
    found = tv.compare(*runs)
    _adds_up(found)
    backward = found.changes.filter((pl.col("phase") == "backward") & (pl.col("scope") == "family"))
    assert backward["a_count"].sum() == 0
    assert backward["b_count"].sum() > 0
