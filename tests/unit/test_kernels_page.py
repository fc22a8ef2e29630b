"""The pages of kernels and ranges, from results made by hand and from synthetic runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview.analyzers import copies, kernels, ranges, roofline, sm_share
from traceview.cli import main
from traceview.reports import layout
from traceview.reports import ranges as ranges_page
from traceview.reports.about import About
from traceview.reports.kernels import Findings, page, sentence
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
ABOUT = About("job", (0, 1), 2, ("kineto",), ("NVIDIA H100 80GB HBM3",), ())
WINDOW = {"window_ns": 1_000_000, "window_count": 2, "rank_count": 2}
KERNEL = {"kernel_count": 4, "total_ns": 400_000, "busy_ns": 300_000, "sum_ratio": 0.5, "busy_ratio": 0.4}
LENGTHS = {
    "min_ns": 1000,
    "max_ns": 90_000,
    "median_ns": 2500.0,
    "p95_ns": 80_000.0,
    "quantile_method": "exact",
}


def _kernel(**more: Any) -> Row:
    return WINDOW | KERNEL | LENGTHS | {"window_ratio": 0.3} | more


def _findings(**tables: list[Row]) -> Findings:
    results = {
        "rows": kernels.RESULT,
        "products": roofline.RESULT,
        "moe_parts": kernels.RESULT,
        "moe": kernels.RESULT,
        "sm_share": sm_share.RESULT,
        "copies": copies.RESULT,
    }
    default = {"rows": [_kernel(category="gemm")], "moe_parts": [_kernel()], "moe": [_kernel(is_moe=False)]}
    given = default | tables
    frames = {
        name: result.frame(pl.DataFrame(given[name], infer_schema_length=None))
        if given.get(name)
        else result.empty()
        for name, result in results.items()
    }
    return Findings(**frames)


def _text(found: Findings) -> str:
    return layout.plain(page(ABOUT, found, (), every_notice=False))


PRODUCT = {
    "operator": "aten::mm",
    "precision": "bf16",
    "name": "nvjet",
    "product_count": 3,
    "time_ns": 1_000_000,
    "unknown_count": 0,
    "unknown_ns": 0,
    "flops": 7e11,
    "tflops": 700.0,
    "intensity": 500.0,
    "ridge": 295.2,
    "peak_ratio": 0.7078,
    "achievable_ratio": 0.88,
    "roof_ratio": 0.7078,
    "window_count": 2,
}
UNKNOWN = {
    "name": "other_gemm",
    "product_count": 0,
    "time_ns": 0,
    "unknown_count": 5,
    "unknown_ns": 1_000_000,
}


def test_times_are_per_rank_and_step() -> None:
    assert any(line.split()[:3] == ["gemm", "4", "0.200"] for line in _text(_findings()).splitlines())


def test_products_are_shown_with_their_limits() -> None:
    text = _text(_findings(products=[PRODUCT]))
    [line] = [line for line in text.splitlines() if line.startswith("aten::mm")]
    assert line.split() == [
        "aten::mm",
        "bf16",
        "nvjet",
        "3",
        "0.500",
        "700",
        "70.8",
        "88.0",
        "500",
        "295",
        "70.8",
        "–",
    ]
    assert "Matrix products run at 700 TFLOP/s, 70.8 % of peak." in text


def test_a_rate_of_only_a_part_says_so_and_how_to_record_the_rest() -> None:
    text = _text(_findings(products=[PRODUCT, UNKNOWN | {"window_count": 2}]))
    assert "missing: the shapes of 50.0 % of GEMM time (5 kernels) are not known" in text
    assert "record_shapes=True" in text
    assert "(50.0 % of GEMM time is of known shape)" in text


def test_without_any_shape_no_rate_is_claimed() -> None:
    text = _text(_findings(products=[UNKNOWN | {"window_count": 2}]))
    assert "TFLOP/s" not in text
    assert "cannot be told, since their shapes were not recorded" in text


def test_a_peak_known_for_some_products_only_is_no_share_of_all() -> None:
    no_peak = PRODUCT | {"precision": None, "peak_ratio": None, "ridge": None, "achievable_ratio": None}
    assert "of peak" not in sentence(_findings(products=[PRODUCT, no_peak]))


def test_moe_parts_are_shares_of_the_step_and_of_moe_time_but_casts_are_not() -> None:
    parts = [
        _kernel(moe_part="permute", busy_ns=30_000, window_ratio=0.03),
        _kernel(moe_part="quantize", busy_ns=60_000, window_ratio=0.06),
        _kernel(),
    ]
    moe = [_kernel(is_moe=True, busy_ns=300_000), _kernel(is_moe=False)]
    lines = [line.split() for line in _text(_findings(moe_parts=parts, moe=moe)).splitlines()]
    assert ["permute", "4", "0.0150", "3.0", "10.0"] in lines
    assert ["quantize", "4", "0.0300", "6.0", "–"] in lines
    assert (
        "of the step, permute 3.0 %, quantize 6.0 %" in sentence(_findings(moe_parts=parts, moe=moe)).lower()
    )


def test_a_run_without_kernels_says_so() -> None:
    assert sentence(_findings(rows=[], moe_parts=[], moe=[])) == "No kernel was recorded."
    assert "No kernel was recorded." in _text(_findings(rows=[], moe_parts=[], moe=[]))


def test_a_run_with_neither_products_nor_experts_names_its_longest_row() -> None:
    assert sentence(_findings()) == "Gemm takes 50.0 % of summed kernel time."


def test_hostile_names_cannot_steer_the_terminal() -> None:
    text = _text(_findings(rows=[_kernel(name="\x1b[2Jevil\n" + "x" * 4000)]))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 400


# --- ranges ------------------------------------------------------------------------------------------


def test_the_range_closest_around_most_work_is_the_verdict() -> None:
    common = {
        "range_count": 2,
        "launching_count": 2,
        "op_count": 5,
        "own_op_count": 5,
        "host_ns": 10,
        "rank_count": 1,
    }
    rows = [
        common | {"name": "step", "projected_ns": 900, "device_ns": 900, "own_ns": 100},
        common | {"name": "mlp", "projected_ns": 700, "device_ns": 600, "own_ns": 300},
    ]
    told = ranges_page.sentence(ranges.RESULT.frame(pl.DataFrame(rows)))
    assert (
        told
        == "mlp is closest around most device work: 300 ns over 2 ranges, 75.0 % of what annotations hold."
    )


def test_without_annotations_the_page_says_how_to_make_some() -> None:
    assert "record_function" in ranges_page.sentence(ranges.RESULT.empty())
    row = {name: 0 for name, column in ranges.RESULT.columns.items() if not column.nullable}
    assert "launched inside" in ranges_page.sentence(ranges.RESULT.frame(pl.DataFrame([row])))


# --- the commands ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1), folder)
    return folder


def test_the_command_gives_what_the_library_gives(job: Path) -> None:
    content = json.loads(CliRunner().invoke(main, ["kernels", str(job), "--by", "name", "-f", "json"]).stdout)
    run = tv.load(job)
    assert [row["total_ns"] for row in content["rows"]] == tv.kernels(run, by=("name",)).frame[
        "total_ns"
    ].to_list()
    assert {"products", "moe_parts", "moe", "sm_share", "copies"} < set(content)
    found = json.loads(CliRunner().invoke(main, ["ranges", str(job), "-f", "json"]).stdout)
    assert [row["own_ns"] for row in found["rows"]] == tv.ranges(run).frame["own_ns"].to_list()


def test_a_condition_on_a_share_of_the_step_makes_it_a_check(job: Path) -> None:
    ask = ["kernels", str(job), "--by", "moe_part", "--fail-on"]
    assert CliRunner().invoke(main, [*ask, "window_ratio>0"]).exit_code == 1
    assert CliRunner().invoke(main, [*ask, "window_ratio>1"]).exit_code == 0


def test_names_are_whole_in_csv_and_short_on_the_page(job: Path) -> None:
    name = "void transformer_engine::fused_router::fused_topk_with_score_function_forward_kernel<float>(float const*"
    assert name in CliRunner().invoke(main, ["kernels", str(job), "--by", "name", "-f", "csv"]).stdout
    assert name not in CliRunner().invoke(main, ["kernels", str(job), "--by", "name"]).stdout
