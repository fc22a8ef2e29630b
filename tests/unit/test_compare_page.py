"""The page and the command of ``traceview compare``: from small tables to text, and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from traceview.cli import main
from traceview.comparisons._configuration import CONFIGURATION
from traceview.comparisons._kernels import KERNELS
from traceview.comparisons.compare import CHANGES, TOTALS, Comparison
from traceview.reports import compare as pages
from traceview.reports import layout
from traceview.reports.about import About
from traceview.synth import Regression, Workload, write
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

ABOUTS = (
    About("base", tuple(range(8)), 64, ("kineto",), ("H100",), ()),
    About("new", (0,), None, ("nsys",), ("H100",), ()),
)
MS = 1_000_000


def _change(scope: str, delta: float, verdict: str, **more: Any) -> dict[str, Any]:
    a = more.pop("a", 100 * MS)
    told = (
        {}
        if verdict == "unknown"
        else {"low_ns": delta - MS / 2, "high_ns": delta + MS / 2, "noise_ns": MS / 4.0, "p_value": 0.01}
    )
    sizes = {"a_ns": a, "b_ns": a + delta, "delta_ns": delta, "delta_ratio": delta / a if a else None}
    return {"scope": scope, "verdict": verdict, "a_total_ns": 1, "b_total_ns": 1} | sizes | told | more


def _found(*changes: dict[str, Any], kernels: Any = (), facts: Any = (), **totals: Any) -> Comparison:
    frame = CHANGES.frame(pl.DataFrame(changes, infer_schema_length=None))
    step = frame.row(0, named=True)
    usual = {name: step[name] for name in ("low_ns", "high_ns", "noise_ns", "p_value", "verdict")}
    usual |= {"a_step_ns": step["a_ns"], "b_step_ns": step["b_ns"], "delta_step_ns": step["delta_ns"]}
    usual |= {"delta_step_ratio": step["delta_ratio"], "a_step_count": 6, "b_step_count": 6}
    blank = {name: 0 for name, column in TOTALS.columns.items() if not column.nullable}
    return Comparison(
        ("base", "new"),
        TOTALS.frame([blank | usual | totals]),
        frame,
        KERNELS.frame(list(kernels)) if kernels else KERNELS.empty(),
        CONFIGURATION.frame(list(facts)) if facts else CONFIGURATION.empty(),
        diagnostic("info", "none", "", count=0).clear(),
    )


def _text(found: Comparison) -> str:
    return layout.plain(pages.page(ABOUTS, found, []))


SLOWER = (
    _change("step", 3.1 * MS, "more", part="step"),
    _change("ledger", 2.9 * MS, "more", part="compute"),
    _change("ledger", 0.2 * MS, "insignificant", part="idle"),
    _change("family", 9.9 * MS, "insignificant", family="gemm", phase="forward"),
    _change("family", 1.2 * MS, "more", family="grouped_gemm", phase="backward"),
    _change("family", 5.0 * MS, "more", family="all_to_all", axis="ep"),
)


# --- the sentence ------------------------------------------------------------------------------------


def test_a_slower_step_is_told_with_its_margin_and_the_family_behind_it() -> None:
    # the largest significant row of the ledger is compute, and of compute the one family that surely grew
    assert pages.sentence(_found(*SLOWER)) == (
        "B is 3.1 % ± 0.5 % slower (+3.10 ms per step), above all grouped_gemm backward +1.20 ms."
    )


def test_a_faster_step_names_the_exchange_that_shrank() -> None:
    found = _found(
        _change("step", -2.0 * MS, "less", part="step"),
        _change("ledger", -2.5 * MS, "less", part="comm", axis="ep", role="dispatch", phase="backward"),
        _change("ledger", 0.5 * MS, "more", part="idle"),
    )
    assert pages.sentence(found) == (
        "B is 2.0 % ± 0.5 % faster (-2.00 ms per step), above all exposed ep dispatch backward -2.50 ms."
    )


def test_an_insignificant_step_is_not_called_slower_and_a_row_that_differs_is_not_hidden() -> None:
    step = _change("step", 0.3 * MS, "insignificant", part="step")
    assert pages.sentence(_found(step)) == (
        "No significant difference of step time: +0.3 % ± 0.5 %, where halves of one run differ by up to 0.2 %."
    )
    row = _change("family", -0.4 * MS, "less", family="norm", phase="forward")
    assert pages.sentence(_found(step, row)).endswith("; yet one row differs: norm forward (-400 µs).")
    assert "yet 2 rows differ, most of all norm forward" in pages.sentence(
        _found(step, row, row | {"delta_ns": 9.0})
    )


def test_too_few_steps_give_a_difference_and_no_claim() -> None:
    found = _found(_change("step", 3.0 * MS, "unknown", part="step"), a_step_count=2)
    assert pages.sentence(found) == (
        "B's step is 3.0 % longer (3.00 ms); no single row stands out; with 2 steps in one run no interval can "
        "be given, and chance cannot be told from change (record at least 4 in each)."
    )
    assert "no marked step" in pages.sentence(
        _found(_change("step", 0.0, "unknown", part="step"), b_step_count=0)
    )


def test_a_run_without_device_work_is_nothing_to_compare_with() -> None:
    empty = _change("step", 0.0, "unknown", part="step", a=0)
    assert "holds no device work" in pages.sentence(_found(empty))


# --- the page ----------------------------------------------------------------------------------------


def test_the_page_shows_what_is_significant_sums_up_the_rest_and_ends_in_the_verdict() -> None:
    text = _text(_found(*SLOWER))
    significant = text.partition("significant changes\n")[2].partition("\n\n")[0]
    assert "grouped_gemm backward" in significant
    assert "gemm forward" not in significant
    assert (
        "2 rows without a significant change; the largest difference of them: gemm forward +9.90 ms" in text
    )
    made_of = text.partition("what the step is made of; rows add up to it\n")[2].partition("\n\n")[0]
    assert [line.split("  ")[0] for line in made_of.splitlines()] == ["what", "step", "compute", "idle"]
    assert "a repeat of A shows how much runs differ anyway" in text
    assert text.splitlines()[-1].startswith("B is 3.1 %")


def test_without_an_interval_no_column_pretends_one() -> None:
    text = _text(
        _found(
            *(_change("step", MS, "unknown", part="step"), _change("family", MS, "unknown", family="gemm"))
        )
    )
    assert "interval  " not in text
    assert "significant changes" not in text
    assert "families of work that differ most" in text


def test_the_head_tells_ranks_and_steps_of_both() -> None:
    text = _text(_found(*SLOWER, b_step_count=0))
    assert "A       base: 8 of 64 ranks, 6 steps, 100 ms each on average" in text
    assert "B       new: 1 rank, one window, 103 ms each on average" in text


def test_hostile_names_stay_text_and_long_ones_are_cut() -> None:
    kernel = {
        "family": "gemm",
        "change": "added",
        "a_count": 0,
        "b_count": 1,
        "a_ns": 0,
        "b_ns": 5 * MS,
        "delta_ns": 5 * MS,
    }
    text = _text(_found(*SLOWER, kernels=[kernel | {"name": "evil\x1b[31m" + "x" * 500}]))
    assert "\x1b" not in text
    assert "x" * 61 not in text
    assert "1 kernel only in B: 5.00 ms per rank and step" in text


def test_configuration_shows_only_what_differs_or_is_known_once() -> None:
    facts = [
        {"fact": "device", "a": "H100", "b": "H100", "is_different": False},
        {"fact": "ep group size", "a": "8", "b": "64", "is_different": True},
        {"fact": "dispatch dtype", "a": None, "b": "BFloat16", "is_different": None},
    ]
    table = (
        _text(_found(*SLOWER, facts=facts)).partition("configuration that differs\n")[2].partition("\n\n")[0]
    )
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["ep", "group", "size", "8", "64"],
        ["dispatch", "dtype", "–", "BFloat16"],
    ]


def test_the_overhead_of_the_profiler_is_told_when_the_log_is_given() -> None:
    text = _text(_found(*SLOWER, a_log_step_ns=90.0 * MS, a_overhead_ratio=1 / 9, delta_log_ratio=-0.05))
    assert "info: A's step takes 90.0 ms without the profiler, +11.1 % with it" in text
    assert "info: without it B's step is 5.0 % shorter than A's" in text


# --- the command -------------------------------------------------------------------------------------

TINY = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=5, layers=1, expert_imbalance=0.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    write(TINY, folder / "base")
    write(replace(TINY, seed=2, regressions=(Regression("attention", 1.5),)), folder / "new")
    return str(folder / "base"), str(folder / "new")


def _compare(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


@pytest.mark.parametrize("form", ["table", "csv", "md", "json"])
def test_the_command_answers_in_every_format(pair: tuple[str, str], form: str) -> None:
    result = _compare(*pair, "-f", form)
    assert result.exit_code == 0, result.stderr
    assert "attention" in result.stdout
    assert result.stderr == ""


def test_json_has_named_tables_and_both_runs(pair: tuple[str, str]) -> None:
    content = json.loads(_compare(*pair, "-f", "json").stdout)
    assert content["schema"] == "traceview/compare/1"
    assert content["inputs"] == list(pair)
    assert [run["name"] for run in content["runs"]] == ["base", "new"]
    for name, table in (
        ("totals", TOTALS),
        ("changes", CHANGES),
        ("kernels", KERNELS),
        ("configuration", CONFIGURATION),
    ):
        assert list(content[name][0]) == list(table.columns)
    grown = {
        row["family"] for row in content["changes"] if row["verdict"] == "more" and row["scope"] == "family"
    }
    assert "attention" in grown


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("delta_step_ratio<=0.5", 0),
        ("delta_step_ratio<=0.0001", 1),
        ("exposed_comm_ratio<=0.9", 0),
        ("exposed_comm_ratio<=0.0001", 1),
        ("delta_log_ratio<=1", 1),  # not given: unknown is no pass
        ("no_such_column<=1", 2),
        ("exposed_comm_ratio", 2),
    ],
)
def test_a_gate_must_hold(pair: tuple[str, str], gate: str, code: int) -> None:
    result = _compare(*pair, "--gate", "delta_step_ratio<9", "--gate", gate)
    assert result.exit_code == code
    told = [line for line in result.stderr.splitlines() if line.startswith(f"gate {gate}: ")]
    assert len(told) == (code == 1)
    assert ("is unknown" in result.stderr) == (gate == "delta_log_ratio<=1")


def test_parts_of_one_run_are_told_apart_and_do_not_differ(pair: tuple[str, str]) -> None:
    result = _compare(pair[0], pair[0], "--steps", "10:12", "--steps-b", "12:15")
    assert "base (A): 2 of 2 ranks, 2 steps" in result.stdout
    assert "base (B): 2 of 2 ranks, 3 steps" in result.stdout


def test_log_step_times_reach_the_page(pair: tuple[str, str]) -> None:
    result = _compare(*pair, "--log-step-ms", "5", "6")
    assert "without it B's step is 20.0 % longer than A's" in result.stdout
    assert _compare(*pair, "--log-step-ms", "0", "6").exit_code == 2


def test_a_wrong_grain_or_a_missing_run_is_told_before_anything_is_analysed(pair: tuple[str, str]) -> None:
    assert _compare(*pair, "--by", "rank").exit_code == 2
    assert _compare(pair[0], "/nowhere/at/all").exit_code == 3


def test_several_runs_at_one_place_are_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(replace(TINY, steps=1), tmp_path / name)
    result = _compare(pair[0], str(tmp_path))
    assert result.exit_code == 2
    assert "never mixed" in result.stderr
