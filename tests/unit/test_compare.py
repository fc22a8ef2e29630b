"""Two runs side by side: exact sums, honest verdicts, planted regressions, and what must not be claimed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import traceview as tv
from traceview import api
from traceview.analyzers import breakdown, families, ledger
from traceview.comparisons._alignment import Aligned
from traceview.comparisons.compare import TABLES, Comparison, Side, _certainty, compare, questions
from traceview.errors import AnalysisError, UsageError
from traceview.recipe import Recipe
from traceview.run import Run
from traceview.statistics import Steps
from traceview.synth import PRESETS, Regression, Workload, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.schema import Table

# --- sides made by hand ------------------------------------------------------------------------------

Step = dict[str, float]
"""Times of one step: parts of the ledger by "compute", "idle", "ep dispatch"; families by "f:gemm"."""


def _run(name: str, **facts: Any) -> Run:
    return Run(name, (Trace(Facts("hand.json", "kineto", rank=0, **facts), {}),))


def _labels(text: str) -> dict[str, str | None]:
    words = text.split()
    axis = words[0] if words[0] in {"ep", "dp", "unknown"} else None
    role = next((word for word in words if word in {"dispatch", "combine"}), None)
    phase = next((word for word in words if word in {"forward", "backward"}), None)
    return {"axis": axis, "role": role, "phase": phase}


def _side(name: str, steps: list[Step], *, ranks: int = 1, numbered: bool = True, **facts: Any) -> Side:
    """A run whose steps took these times on each of its ranks."""
    windows: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    for number, step in enumerate(steps, start=10):
        at: dict[str, Any] = {"step": number if numbered else None}
        parts = {key: round(ranks * time) for key, time in step.items() if not key.startswith("f:")}
        total = {"window_ns": sum(parts.values()), "window_count": ranks}
        blank = dict.fromkeys(breakdown.MEASURES, 0)
        windows.append(at | blank | {"compute_ns": parts.get("compute", 0)} | total)
        for key, spent in parts.items():
            part = key if key in ledger.PARTS else "comm"
            entries.append(at | _labels(key) | total | {"part": part, "time_ns": spent})
        for key, time in step.items():
            if key.startswith("f:"):
                label = _labels(key[2:]) | {"family": key.split()[-1].removeprefix("f:")}
                work.append(at | label | total | {"op_count": 2 * ranks, "busy_ns": round(ranks * time)})
    return Side(
        _run(name, **facts),
        breakdown.RESULT.frame(windows),
        ledger.RESULT.frame(pl.DataFrame(entries, infer_schema_length=None)),
        families.RESULT.frame(pl.DataFrame(work, infer_schema_length=None))
        if work
        else families.RESULT.empty(),
        families.RESULT.empty(),
        families.RESULT.empty(),
    )


def _noisy(draws: np.random.Generator, count: int, **slower: float) -> list[Step]:
    """Steps of a job with its rows in realistic sizes, each scattering by 1 %, the whole by 1 % more."""
    usual: Step = {
        "compute": 8e6,
        "ep dispatch forward": 6e5,
        "ep combine forward": 7e5,
        "idle": 2e5,
        "copy": 5e3,
    }
    usual |= {
        "f:gemm": 4e6,
        "f:grouped_gemm": 3e6,
        "f:ep dispatch all_to_all": 6e5,
        "f:norm": 1e5,
        "f:memory": 5e3,
    }
    steps = []
    for _ in range(count):
        common = 1 + 0.01 * draws.standard_normal()
        steps.append(
            {
                key: time
                * common
                * (1 + 0.01 * draws.standard_normal())
                * slower.get(key.removeprefix("f:"), 1)
                for key, time in usual.items()
            }
        )
    return steps


def _row(found: Comparison, **labels: Any) -> dict[str, Any]:
    [row] = [row for row in found.summary() if all(row[name] == value for name, value in labels.items())]
    return row


# --- arithmetic --------------------------------------------------------------------------------------


def test_times_are_per_rank_and_step_so_runs_of_different_size_stand_beside_each_other() -> None:
    steps = [{"compute": 100.0, "idle": 10.0}, {"compute": 120.0, "idle": 30.0}]
    found = compare(_side("a", steps), _side("b", [*steps, *steps], ranks=64))
    assert _row(found, scope="step") | {"verdict": ""} == {
        **dict.fromkeys(found.changes.columns),
        "scope": "step",
        "part": "step",
        "a_ns": 130,
        "b_ns": 130,
        "delta_ns": 0,
        "delta_ratio": 0,
        "verdict": "",
        "a_total_ns": 260,
        "b_total_ns": 64 * 520,
    }
    assert _row(found, part="idle")["b_ns"] == 20


def test_a_row_that_one_run_lacks_took_no_time_there() -> None:
    found = compare(
        _side("a", [{"compute": 90.0, "f:gemm": 90.0}]),
        _side("b", [{"compute": 80.0, "idle": 5.0, "f:norm": 7.0}]),
    )
    idle = _row(found, part="idle")
    assert (idle["a_ns"], idle["b_ns"], idle["delta_ratio"]) == (0, 5, None)
    gemm = _row(found, family="gemm")
    assert (gemm["delta_ns"], gemm["a_count"], gemm["b_count"]) == (-90, 2, 0)


def test_the_ledger_comes_in_its_own_order_and_families_by_size_of_the_difference() -> None:
    draws = np.random.default_rng(1)
    found = compare(_side("a", _noisy(draws, 5)), _side("b", _noisy(draws, 5)))
    parts = found.changes.filter(pl.col("scope") != "family")["part"].to_list()
    assert parts == ["step", "compute", "comm", "comm", "copy", "idle"]
    sizes = found.changes.filter(pl.col("scope") == "family")["delta_ns"].abs().to_list()
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_documented_and_has_the_unit_of_its_name(table: Table) -> None:
    assert table.doc
    for name, column in table.columns.items():
        assert column.doc
        assert (column.unit == "ns") == name.endswith("_ns")
        assert not name.endswith("_ratio") or column.dtype == pl.Float64()


# --- alignment ---------------------------------------------------------------------------------------


def test_a_label_that_only_one_run_knows_does_not_tear_rows_in_two() -> None:
    annotated = [
        {"compute": 10.0, "ep dispatch forward": 3.0, "ep dispatch backward": 4.0, "f:forward gemm": 6.0}
    ]
    bare = [{"compute": 10.0, "ep dispatch": 8.0, "f:gemm": 5.0}]
    found = compare(_side("a", annotated), _side("b", bare))
    dispatch = _row(found, axis="ep", part="comm")
    assert (dispatch["phase"], dispatch["a_ns"], dispatch["b_ns"]) == (None, 7, 8)
    assert _row(found, family="gemm")["delta_ns"] == -1
    [note] = found.notes.to_dicts()
    assert (note["code"], note["severity"]) == ("compare.label_dropped", "warning")
    assert "'b' knows no phase" in note["text"]


def test_a_dense_model_keeps_the_axes_of_the_other_and_is_no_gap_in_the_evidence() -> None:
    found = compare(
        _side("dense", [{"compute": 10.0, "f:gemm": 5.0}]),
        _side("moe", [{"compute": 10.0, "ep dispatch": 8.0, "f:ep dispatch all_to_all": 8.0, "f:gemm": 5.0}]),
    )
    assert _row(found, axis="ep", scope="ledger")["role"] == "dispatch"
    assert len(found.notes) == 0


def test_an_unknown_label_may_be_asked_for_only_by_name() -> None:
    with pytest.raises(UsageError, match="compared by rank; choose from: phase, layer"):
        questions(("rank",))


# --- certainty ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(3, 8), (8, 3), (1, 1)])
def test_with_fewer_than_four_steps_nothing_is_claimed(counts: tuple[int, int]) -> None:
    draws = np.random.default_rng(2)
    sides = [
        _side(name, _noisy(draws, count, compute=factor))
        for name, count, factor in zip("ab", counts, (1, 9), strict=True)
    ]
    found = compare(*sides)
    assert found.changes["verdict"].unique().to_list() == ["unknown"]
    assert found.changes.select("low_ns", "high_ns", "noise_ns", "p_value").null_count().sum_horizontal()[
        0
    ] == 4 * len(found.changes)
    assert found.totals.select("significant_step_ns", "more_count").row(0) == (None, None)


def test_windows_that_are_no_steps_cannot_be_drawn_however_many() -> None:
    draws = np.random.default_rng(2)
    found = compare(_side("a", _noisy(draws, 6), numbered=False), _side("b", _noisy(draws, 6)))
    assert found.changes["verdict"].unique().to_list() == ["unknown"]
    assert found.totals["a_step_count"].item() == 0
    assert "compare.no_steps" in found.notes["code"].to_list()


def test_halves_of_one_run_show_nothing_in_at_least_95_of_100_runs() -> None:
    draws = np.random.default_rng(20)
    rounds = 150
    alarms = 0
    for _ in range(rounds):
        times = np.array([list(step.values()) for step in _noisy(draws, 10)])
        first, second = (Steps(half, np.ones(5)) for half in (times[:5], times[5:]))
        aligned = Aligned(pl.DataFrame(), first, second, first, second, ())
        verdicts = _certainty(aligned, second.means() - first.means(), 5)["verdict"]
        alarms += bool({"more", "less"} & set(verdicts))
    assert alarms / rounds <= 0.05 + 2 * sqrt(0.05 * 0.95 / rounds)


def test_a_few_percent_more_of_one_family_are_found_and_nothing_else_is_blamed() -> None:
    draws = np.random.default_rng(21)
    found = 0
    for _ in range(8):
        before, after = _noisy(draws, 10), _noisy(draws, 10, grouped_gemm=1.06)
        told = compare(_side("a", before), _side("b", after))
        found += [row["family"] for row in told.summary() if row["verdict"] == "more"] == ["grouped_gemm"]
    assert found >= 7


def test_drift_within_the_runs_is_no_difference_between_them() -> None:
    drifting = [{"compute": 1e6 * (1 + 0.02 * step), "idle": 0.0} for step in range(8)]
    shifted = [{key: time * 1.005 for key, time in step.items()} for step in drifting]
    found = compare(_side("a", drifting), _side("b", shifted))
    assert set(found.changes["verdict"]) == {"insignificant"}
    assert _row(found, scope="step")["noise_ns"] == pytest.approx(0.08e6, rel=0.01)


def test_a_run_without_any_window_is_refused_by_name() -> None:
    side = _side("a", [{"compute": 1.0}])
    with pytest.raises(AnalysisError, match="run 'none' holds no device work"):
        compare(side, replace(side, run=_run("none"), windows=side.windows.clear()))


def test_a_run_differs_in_nothing_from_itself() -> None:
    side = _side("a", _noisy(np.random.default_rng(3), 6))
    found = compare(side, side)
    assert set(found.changes["delta_ns"]) == {0}
    assert set(found.changes["verdict"]) == {"insignificant"}
    assert set(found.changes["p_value"]) == {1}


# --- what else differs -------------------------------------------------------------------------------


def test_the_overhead_of_the_profiler_is_the_profiled_step_over_that_of_the_log() -> None:
    sides = [_side(name, [{"compute": time}]) for name, time in (("a", 110.0), ("b", 150.0))]
    total = compare(*sides, log_step_ns=(100.0, 120.0)).totals.row(0, named=True)
    assert total["a_overhead_ratio"] == pytest.approx(0.1)
    assert total["b_overhead_ratio"] == pytest.approx(0.25)
    assert total["delta_log_ratio"] == pytest.approx(0.2)
    assert compare(*sides).totals.select("a_overhead_ratio", "delta_log_ratio").row(0) == (None, None)


def test_configuration_tells_what_differs_and_what_only_one_run_knows() -> None:
    found = compare(
        _side("a", [{"compute": 1.0}], world_size=8, device_name="H100", versions={"nccl_version": "2.29"}),
        _side("b", [{"compute": 1.0}], world_size=16, device_name="H100"),
    ).configuration
    told = {row["fact"]: (row["a"], row["b"], row["is_different"]) for row in found.to_dicts()}
    assert told["world size"] == ("8", "16", True)
    assert told["device"] == ("H100", "H100", False)
    assert told["nccl_version"] == ("2.29", None, None)
    assert "hosts" not in told


def test_what_the_owner_says_of_a_job_is_part_of_its_configuration() -> None:
    said = Recipe(seq_len=4096, global_batch_size=512, tokens_per_step=4096 * 512, parallel={"ep": 8})
    other = replace(said, global_batch_size=1024, tokens_per_step=4096 * 1024)
    before, after = (
        replace(side, run=replace(side.run, recipe=recipe))
        for side, recipe in ((_side("a", [{"compute": 1.0}]), said), (_side("b", [{"compute": 1.0}]), other))
    )
    told = {row["fact"]: (row["a"], row["b"]) for row in compare(before, after).configuration.to_dicts()}
    assert told["sequences per step (run.toml)"] == ("512", "1,024")
    assert told["tokens per step (run.toml)"] == ("2,097,152", "4,194,304")
    assert told["ep (run.toml)"] == ("8", "8")
    assert "precision (run.toml)" not in told


def _with_kernels(side: Side, kernels: dict[str, tuple[int, int]]) -> Side:
    rows = [
        {
            "family": "gemm",
            "name": name,
            "op_count": count,
            "busy_ns": time,
            "window_ns": 1,
            "window_count": 2,
        }
        for name, (count, time) in kernels.items()
    ]
    return replace(side, kernels=families.RESULT.frame(rows))


def test_kernels_are_added_removed_or_kept_whatever_number_the_compiler_gave_them() -> None:
    side = _side("a", [{"compute": 1.0}])
    before = {"triton_poi_fused_add_7": (2, 40), "loop_add_fusion.12": (2, 10), "old_kernel_2": (4, 6)}
    after = {"triton_poi_fused_add_11": (2, 50), "loop_add_fusion.3": (2, 10), "old_kernel_3": (4, 6)}
    found = compare(_with_kernels(side, before), _with_kernels(side, after)).kernels
    told = {
        row["name"]: (row["change"], row["a_count"], row["a_ns"], row["delta_ns"]) for row in found.to_dicts()
    }
    assert told == {
        "triton_poi_fused_add": ("kept", 1, 20, 5),
        "loop_add_fusion": ("kept", 1, 5, 0),
        "old_kernel_2": ("removed", 2, 3, -3),
        "old_kernel_3": ("added", 0, 0, 3),
    }


# --- generated runs ----------------------------------------------------------------------------------

BASE = Workload(
    ranks=2, expert_parallel=2, experts=4, top_k=2, steps=8, layers=2, hidden=1024, expert_hidden=4096,
    expert_imbalance=0.0, jitter=0.01,
)  # fmt: skip


def _written(folder: Path, workload: Workload | str) -> Run:
    write(workload, folder)
    return tv.load(folder)


def _sides(run: Run) -> Side:
    return Side(run, *(result.frame for result in api.analyze_all(run, questions())))


def _only(side: Side, steps: list[int]) -> Side:
    kept = {
        name: getattr(side, name).filter(pl.col("step").is_in(steps))
        for name in ("windows", "ledger", "families")
    }
    return replace(side, **kept)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _written(tmp_path_factory.mktemp("base"), BASE)


@pytest.fixture(scope="module")
def regressed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    slow = (Regression("grouped_gemm", 1.03, "backward"),)
    return _written(tmp_path_factory.mktemp("slow"), replace(BASE, seed=2, regressions=slow))


@pytest.fixture(scope="module", params=["ep8-nccl-shared", "ep8-deepep-overlap", "tp2-ep4"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _written(tmp_path_factory.mktemp("other"), replace(PRESETS[request.param], steps=2))


@pytest.mark.parametrize("by", [("phase",), (), ("phase", "layer")], ids=str)
def test_rows_of_the_ledger_add_up_exactly_to_the_difference_of_the_step(
    base: Run, other: Run, by: tuple[str, ...]
) -> None:
    found = tv.compare(base, other, by=by)
    ledger_rows = found.changes.filter(pl.col("scope") == "ledger")
    step, total = _row(found, scope="step"), found.totals.row(0, named=True)
    for letter, run in (("a", base), ("b", other)):
        windows = tv.breakdown(run, by=("rank", "step")).frame
        assert (
            ledger_rows[f"{letter}_total_ns"].sum()
            == step[f"{letter}_total_ns"]
            == windows["window_ns"].sum()
        )
        assert total[f"{letter}_window_count"] == len(windows)
    a, b = (
        [Fraction(time, total[f"{letter}_window_count"]) for time in ledger_rows[f"{letter}_total_ns"]]
        for letter in "ab"
    )
    exact = sum(b) - sum(a)
    assert step["delta_ns"] == pytest.approx(float(exact), rel=1e-12)
    assert ledger_rows["delta_ns"].sum() == pytest.approx(float(exact), rel=1e-9)


def test_halves_of_generated_runs_show_nothing(base: Run, regressed: Run) -> None:
    draws = np.random.default_rng(30)
    alarms, rounds = 0, 20
    for run in (base, regressed):
        side = _sides(run)
        numbers = side.steps["step"].to_numpy()
        for _ in range(rounds):
            dealt = draws.permutation(numbers).tolist()
            found = compare(_only(side, dealt[:4]), _only(side, dealt[4:]))
            alarms += found.changes["verdict"].is_in(["more", "less"]).any()
    assert alarms <= 2  # 5 % of 40


def test_a_planted_three_percent_regression_is_found_measured_and_named(base: Run, regressed: Run) -> None:
    found = tv.compare(base, regressed)
    row = _row(found, family="grouped_gemm", phase="backward")
    assert row["verdict"] == "more"
    assert row["low_ns"] <= 0.03 * row["a_ns"] <= row["high_ns"]
    others = found.changes.filter(
        (pl.col("scope") == "family") & (pl.col("verdict") == "more") & pl.col("axis").is_null()
    )
    assert others.select("family", "phase").rows() == [("grouped_gemm", "backward")]
    assert _row(found, part="compute")["verdict"] == "more"


def test_two_parts_of_one_run_can_be_asked_for(base: Run) -> None:
    found = tv.compare(base, base, steps=(range(10, 14), range(14, 18)))
    assert found.totals.select("a_step_count", "b_step_count").row(0) == (4, 4)
    assert not found.changes["verdict"].is_in(["more", "less"]).any()


def test_formats_and_sizes_align(base: Run, tmp_path: Path) -> None:
    write(replace(BASE, ranks=4, expert_parallel=4), tmp_path, trace_format="nsys")
    found = tv.compare(base, tv.load(tmp_path))
    told = {row["fact"]: (row["a"], row["b"]) for row in found.configuration.to_dicts()}
    assert told["format"] == ("kineto", "nsys")
    assert told["ep group size"] == ("2", "4")
    assert _row(found, family="attention", phase="forward")["delta_ratio"] == pytest.approx(0, abs=0.02)
    both = found.kernels.filter(pl.col("change") == "kept")
    assert both["a_count"].to_list() == pytest.approx(both["b_count"].to_list())


def test_another_transport_is_the_same_exchange(tmp_path: Path) -> None:
    first, second = (
        _written(
            tmp_path / name, replace(PRESETS[name], steps=2, ranks=4, expert_parallel=4, experts=8, top_k=2)
        )
        for name in ("ep8-nccl", "ep8-deepep-overlap")
    )
    found = tv.compare(first, second)
    row = _row(found, scope="family", family="all_to_all", role="dispatch", phase="forward")
    assert row["a_ns"] > 0
    assert row["b_ns"] > 0
    assert len(found.notes) == 0


def test_the_result_speaks_arrow_and_names_its_runs(base: Run) -> None:
    found = tv.compare(base, base)
    assert pl.DataFrame(found).equals(found.frame)
    assert base.name in repr(found)
