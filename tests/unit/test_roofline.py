"""Rates of matrix products: by hand, and on a public trace in plain Python from its JSON."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv
from traceview import hardware
from traceview.analyzers.roofline import ANALYSIS
from traceview.contracts import Options
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]
H100 = "NVIDIA H100 80GB HBM3"
SIZE = 4096


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


def _mm(start: int, n: int = 4096, *, kind: str = "c10::BFloat16") -> Row:
    """An operator of 100 ns: a square matrix times another, or times one of ``n`` columns."""
    shapes = json.dumps([[SIZE, SIZE], [SIZE, n]])
    times = {"ts_ns": start, "dur_ns": 100}
    return times | {"name": "aten::mm", "shapes": shapes, "dtypes": json.dumps([kind, kind])}


def _kernel(start: int, length: int, launch: int, name: str = "nvjet", category: str = "gemm") -> Row:
    return {"ts_ns": start, "dur_ns": length, "launch": (launch, 1), "name": name, "category": category}


FLOPS, LEAST = 2.0 * SIZE**3, 3 * 2 * SIZE**2
OPERATORS = [_mm(0), _mm(200)]
LENGTH = 200_000


def _products() -> list[Row]:
    """Two products, one of them with a second kernel that adds up its parts; and a GEMM of nobody's."""
    return [
        _kernel(1000, LENGTH, 50),
        _kernel(300_000, LENGTH - 10_000, 250),
        _kernel(490_000, 10_000, 260, "splitKreduce_kernel"),
        _kernel(600_000, 30_000, 400, "cublas_of_somebody"),
        _kernel(700_000, 500, 50, "fill", "elementwise"),
    ]


def test_a_product_takes_the_time_of_all_its_kernels_and_the_name_of_the_longest(
    made: Callable[..., Trace],
) -> None:
    one = made(_products()[:4], host_ops=OPERATORS, devices=[{"name": H100}])
    known, unknown = _answer([one], "operator", "precision", "name")
    assert (known["operator"], known["precision"], known["name"]) == ("aten::mm", "bf16", "nvjet")
    assert (known["product_count"], known["time_ns"], known["unknown_count"]) == (2, 2 * LENGTH, 0)
    assert (known["flops"], known["bytes"]) == (2 * FLOPS, 2 * LEAST)
    assert known["tflops"] == pytest.approx(FLOPS / LENGTH / 1e3)
    assert known["gb_per_s"] == pytest.approx(LEAST / LENGTH)
    assert known["intensity"] == pytest.approx(FLOPS / LEAST)
    assert (unknown["name"], unknown["unknown_count"], unknown["unknown_ns"]) == (
        "cublas_of_somebody",
        1,
        30_000,
    )
    assert [unknown[name] for name in ("flops", "bytes", "tflops", "peak_ratio", "roof_ratio")] == [None] * 5


def test_whatever_computes_inside_the_operator_is_part_of_the_product(made: Callable[..., Trace]) -> None:
    one = made(_products(), host_ops=OPERATORS)
    [row] = _answer([one])
    assert row["time_ns"] == 2 * LENGTH + 500


def test_limits_are_those_of_the_device_and_the_roof_is_the_lower_one(made: Callable[..., Trace]) -> None:
    gpu = hardware.named("H100")
    peak, memory = gpu.peak("bf16"), gpu.memory or hardware.of(H100).memory  # type: ignore[union-attr]
    assert peak is not None
    assert memory is not None
    # one bound by operations, one (a product with a vector) by memory
    operators = [_mm(0), _mm(200, 1)]
    rows = [_kernel(1000, LENGTH, 50, "wide"), _kernel(300_000, LENGTH, 250, "narrow")]
    one = made(rows, host_ops=operators, devices=[{"name": H100}])
    wide, narrow = sorted(_answer([one], "name"), key=lambda row: row["name"], reverse=True)
    for row in (wide, narrow):
        assert (row["peak_tflops"], row["memory_gb_per_s"]) == (peak.tflops, memory.gb_per_s)
        assert row["ridge"] == pytest.approx(peak.flops_per_s / memory.bytes_per_s)
        assert row["peak_ratio"] == pytest.approx(row["flops"] / peak.flops_per_s / (LENGTH / 1e9))
    assert wide["ceiling_tflops"] == pytest.approx(peak.tflops)
    assert wide["roof_ratio"] == pytest.approx(wide["peak_ratio"])
    assert narrow["intensity"] < narrow["ridge"]
    assert narrow["ceiling_tflops"] == pytest.approx(narrow["intensity"] * memory.bytes_per_s / 1e12)
    assert narrow["roof_ratio"] == pytest.approx(narrow["bytes"] / memory.bytes_per_s / (LENGTH / 1e9))
    best = gpu.achievable("bf16")
    assert best is not None
    assert wide["achievable_ratio"] == pytest.approx(wide["tflops"] / best.tflops)


def test_an_unknown_device_or_a_type_that_may_be_tf32_has_rates_and_no_share(
    made: Callable[..., Trace],
) -> None:
    rows, float32 = [_kernel(1000, LENGTH, 50)], [_mm(0, kind="float")]
    strange = made(rows, host_ops=OPERATORS, devices=[{"name": "Abacus 9000"}])
    for one in (strange, made(rows, host_ops=float32, devices=[{"name": H100}])):
        [row] = _answer([one])
        assert row["tflops"] == pytest.approx(FLOPS / LENGTH / 1e3)
        assert [row[name] for name in ("peak_tflops", "ridge", "peak_ratio", "roof_ratio")] == [None] * 4


def test_products_of_two_precisions_share_no_peak_but_add_up_their_times_at_it(
    made: Callable[..., Trace],
) -> None:
    operators = [_mm(0), _mm(200, kind="c10::Float8_e4m3fn")]
    rows = [_kernel(1000, LENGTH, 50), _kernel(300_000, LENGTH, 250)]
    [row] = _answer([made(rows, host_ops=operators, devices=[{"name": H100}])])
    gpu = hardware.named("H100")
    peaks = [gpu.peak(kind) for kind in ("bf16", "fp8")]
    at_peak = sum(FLOPS / peak.flops_per_s * 1e9 for peak in peaks if peak)
    assert row["peak_tflops"] is None
    assert row["peak_ratio"] == pytest.approx(at_peak / (2 * LENGTH))


def test_a_grouped_product_tells_its_mean_rows_per_expert(made: Callable[..., Trace]) -> None:
    operator = {
        "ts_ns": 0,
        "dur_ns": 100,
        "name": "aten::_grouped_mm",
        "shapes": "[[1000, 64], [8, 64, 32], [8], [], []]",
        "dtypes": json.dumps(["c10::BFloat16"] * 2 + ["int", "", ""]),
    }
    rows = [
        _kernel(500, 100, 40, "prepare_grouped_gemm_data", "grouped_gemm"),
        _kernel(600, 900, 50, "cutlass", "grouped_gemm"),
    ]
    [row] = _answer([made(rows, host_ops=[operator])], "category", "shape", "name")
    assert (row["name"], row["shape"], row["time_ns"]) == ("cutlass", "8:1000×32×64", 1000)
    assert (row["rows_per_group"], row["flops"]) == (125.0, 2.0 * 1000 * 32 * 64)


def test_ranks_add_up(made: Callable[..., Trace]) -> None:
    ranks = [made(_products(), rank=rank, host_ops=OPERATORS, devices=[{"name": H100}]) for rank in range(3)]
    [row] = _answer(ranks)
    [alone] = _answer(ranks[:1])
    for name in ("product_count", "time_ns", "unknown_ns", "flops", "bytes"):
        assert row[name] == 3 * alone[name]
    for name in ("tflops", "peak_ratio", "roof_ratio", "peak_tflops"):
        assert row[name] == pytest.approx(alone[name])


def test_without_shapes_nothing_is_claimed(tmp_path: Path) -> None:
    write(
        Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1), tmp_path
    )
    rows = tv.roofline(tv.load(tmp_path), by=()).frame
    assert rows["product_count"].to_list() == [0]
    assert rows["unknown_ns"].sum() > 0
    assert rows["tflops"].to_list() == [None]


def test_public_products_have_the_rates_of_plain_python_over_external_ids(traces: Path) -> None:
    """Kineto links kernels to operators by "External id" as well: another way than by the time of the launch."""
    file = next(
        (traces / "pytorch/KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks").glob("rank0-*.json.gz")
    )
    with gzip.open(file) as stream:
        events = json.load(stream)["traceEvents"]
    named = {"aten::mm": 0, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
    operators = {
        event["args"]["External id"]: event
        for event in events
        if event.get("cat") == "cpu_op" and event["name"] in named
    }
    told: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0])
    seen = set()
    for event in events:
        operator = operators.get(event.get("args", {}).get("External id"))
        if event.get("cat") != "kernel" or operator is None:
            continue
        name, dims = operator["name"], operator["args"]["Input Dims"][named[operator["name"]] :]
        told[name][0] += round(event["dur"] * 1000)
        if (number := operator["args"]["External id"]) not in seen:
            seen.add(number)
            batch = dims[0][0] if len(dims[0]) == 3 else 1
            told[name][1] += 1
            told[name][2] += 2 * batch * dims[0][-2] * dims[0][-1] * dims[1][-1]
    rows = tv.roofline(tv.load(file), by=("operator",), steps="all").frame.filter(pl.col("product_count") > 0)
    found = {row["operator"]: [row["time_ns"], row["product_count"], row["flops"]] for row in rows.to_dicts()}
    assert found == {name: [time, count, pytest.approx(flops)] for name, (time, count, flops) in told.items()}
    assert 600 < rows.filter(pl.col("operator") == "aten::mm")["tflops"][0] < 989
