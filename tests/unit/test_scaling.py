"""Scaling: the shipped samples against their truth, planted causes, and sums that hold to the nanosecond."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import traceview as tv
from traceview.cli import main
from traceview.comparisons._losses import apportioned
from traceview.errors import UsageError
from traceview.recipe import Recipe
from traceview.synth import Workload, recipe, write

if TYPE_CHECKING:
    from fractions import Fraction

    from traceview.comparisons.scaling import Scaling
    from traceview.run import Run

SAMPLES = Path(__file__).parents[2] / "sample_traces" / "scaling"
SIZES = (256, 512, 1024)
SMALL = Workload(
    ranks=4, expert_parallel=4, experts=16, steps=6, layers=1, expert_imbalance=0.1, compact=True
)


@pytest.fixture(scope="module")
def samples() -> list[Run]:
    return [tv.load(SAMPLES / str(size)) for size in SIZES]


@pytest.fixture(scope="module")
def truths() -> dict[str, dict[str, Any]]:
    return {str(size): json.loads((SAMPLES / str(size) / "truth.json").read_text()) for size in SIZES}


@pytest.fixture(scope="module")
def found(samples: list[Run], truths: dict[str, dict[str, Any]]) -> Scaling:
    tokens = {name: truth["throughput"]["tokens_per_step"] for name, truth in truths.items()}
    return tv.scaling(samples, tokens_per_step=tokens)


def _written(folder: Path, **plans: Workload) -> list[Run]:
    for name, plan in plans.items():
        write(plan, folder / name)
        recipe.write(plan, folder / name)
    return [tv.load(folder / name) for name in plans]


def _unsaid(runs: list[Run]) -> list[Run]:
    """``runs`` without what stands in their ``run.toml``."""
    return [replace(run, recipe=Recipe()) for run in runs]


def _last(found: Scaling) -> dict[str, Any]:
    row: dict[str, Any] = found.sizes.row(-1, named=True)
    return row


def _check_sums(found: Scaling) -> None:
    """Losses add up to what a step takes beyond the ideal, and change to the difference, in whole ns."""
    base = found.sizes.row(0, named=True)
    for row in found.sizes.rows(named=True)[1:]:
        mine = found.losses.filter(pl.col("run") == row["run"])
        totals = {
            name: int(mine[name].sum()) for name in ("base_ns", "ideal_ns", "time_ns", "change_ns", "loss_ns")
        }
        assert totals["base_ns"] == round(base["step_ns"])
        assert totals["time_ns"] == round(row["step_ns"])
        assert totals["change_ns"] == totals["time_ns"] - totals["base_ns"]
        assert totals["loss_ns"] == totals["time_ns"] - totals["ideal_ns"]
        if row["retention"] is not None:
            work = row["tokens_per_rank_over_base"]
            rounding = 2 * (1 + row["retention"]) / row["step_ns"]
            assert totals["ideal_ns"] == pytest.approx(work * base["step_ns"], abs=1)
            assert mine["loss_ratio"].sum() == pytest.approx(1 - row["retention"], abs=rounding)
            product = row["compute_scaling"] * row["parallel_scaling"]
            assert product == pytest.approx(row["retention"], rel=1e-12)
            assert row["speedup"] == pytest.approx(row["retention"] * row["linear_speedup"])


# --- the shipped samples -----------------------------------------------------------------------------


def test_the_truth_of_the_samples_keeps_98_5_percent(truths: dict[str, dict[str, Any]]) -> None:
    speed = {name: truth["throughput"]["tokens_per_second_per_rank"] for name, truth in truths.items()}
    assert speed["1024"] / speed["256"] == pytest.approx(0.985, abs=0.0005)


def test_the_retention_of_the_samples_is_that_of_the_truth_within_its_interval(
    found: Scaling, truths: dict[str, dict[str, Any]]
) -> None:
    speed = {name: truth["throughput"]["tokens_per_second_per_rank"] for name, truth in truths.items()}
    for row in found.sizes.rows(named=True)[1:]:
        assert row["scaling"] == "weak"
        assert row["retention_low"] < speed[row["run"]] / speed["256"] < row["retention_high"]
        assert row["retention"] == pytest.approx(speed[row["run"]] / speed["256"], abs=0.0005)
        assert row["tokens_per_second_per_rank"] == pytest.approx(speed[row["run"]], rel=0.001)
        assert (row["recorded_count"], row["rank_count"]) == (8, int(row["run"]))


def test_every_loss_of_the_samples_is_that_of_the_truth(
    found: Scaling, truths: dict[str, dict[str, Any]]
) -> None:
    """Means over the steps and ranks of what the generator knows of each window."""

    def owners(truth: dict[str, Any]) -> dict[tuple[str, str | None, str | None], float]:
        sums: Counter[tuple[str, str | None, str | None]] = Counter()
        windows = [figures for rank in truth["ranks"] for figures in rank["steps"].values()]
        for figures in windows:
            sums["compute", None, None] += figures["compute_ns"]
            sums["copy", None, None] += figures["exposed_copy_ns"]
            sums["idle", None, None] += figures["idle_ns"]
            sums["several", None, None] += figures["exposed_by_several_ns"]
            for part in figures["exposed_by_exchange"]:
                for cause in ("wait", "transfer"):
                    # only of expert parallelism are all ranks recorded
                    key = ("comm", part["axis"], cause if part["axis"] == "ep" else None)
                    sums[key] += part[f"{cause}_ns"]
        return {key: time / len(windows) for key, time in sums.items()}

    base = owners(truths["256"])
    for name in ("512", "1024"):
        mine = owners(truths[name])
        measured: Counter[tuple[str, str | None, str | None]] = Counter()
        for row in found.losses.filter(pl.col("run") == name).to_dicts():
            axes = None if row["part"] == "several" else row["axes"]
            measured[row["part"], axes, row["cause"]] += row["loss_ns"]
        for key in set(base) | set(mine):
            assert measured[key] == pytest.approx(mine.get(key, 0) - base.get(key, 0), abs=3), (name, key)


def test_losses_of_the_samples_go_to_rings_that_grew_and_to_waiting(found: Scaling) -> None:
    causes = {row["axis"]: row["cause"] for row in found.axes.filter(pl.col("run") == "1024").to_dicts()}
    assert causes == {"ep": "waiting", "dp": "larger_group", "edp": "larger_group", "world": "larger_group"}


def test_rows_of_the_samples_add_up_exactly(found: Scaling) -> None:
    _check_sums(found)


def test_without_tokens_the_samples_are_compared_by_evidence(samples: list[Run]) -> None:
    guessed = tv.scaling(_unsaid(samples))
    for row in guessed.sizes.rows(named=True)[1:]:
        assert (row["scaling"], row["tokens_from"], row["tokens_per_second_per_rank"]) == (
            "weak",
            "evidence",
            None,
        )
        assert row["retention"] is not None


def test_the_command_says_98_5_percent_and_adds_up(samples: list[Run]) -> None:
    assert len(samples) == 3
    places = [str(SAMPLES / str(size)) for size in SIZES]
    result = CliRunner().invoke(main, ["scaling", *places])
    assert result.exit_code == 0, result.stderr
    assert "From 256 to 1,024 ranks a rank keeps 98.5 % of its speed" in result.stdout
    assert "8 of 1024 ranks are here; figures describe these ranks only" in result.stdout
    content = json.loads(CliRunner().invoke(main, ["scaling", *places, "-f", "json"]).stdout)
    assert content["schema"] == "traceview/scaling/1"
    last = content["rows"][-1]
    lost = [row["loss_ns"] for row in content["losses"] if row["run"] == "1024"]
    assert sum(lost) == round(last["step_ns"]) - round(content["rows"][0]["step_ns"])


# --- what was held fixed -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    plan = replace(SMALL, microbatches=4)
    return _written(
        tmp_path_factory.mktemp("strong"),
        small=plan,
        middle=replace(plan, ranks=8, microbatches=2),
        large=replace(plan, ranks=16, microbatches=1),
    )


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "by evidence"])
def test_strong_scaling_holds_the_tokens_of_a_step(strong: list[Run], *, is_said: bool) -> None:
    found = tv.scaling(strong if is_said else _unsaid(strong))
    _check_sums(found)
    base, *larger = found.sizes.rows(named=True)
    for row in larger:
        n = row["rank_count"] / base["rank_count"]
        assert (row["scaling"], row["tokens_per_rank_over_base"]) == ("strong", 1 / n)
        speedup = base["step_ns"] / row["step_ns"]
        assert row["retention"] == pytest.approx(speedup / n)
        assert row["serial_fraction"] == pytest.approx((1 / speedup - 1 / n) / (1 - 1 / n))


def test_runs_may_come_in_any_order(strong: list[Run]) -> None:
    forwards, backwards = tv.scaling(strong), tv.scaling(strong[::-1])
    for one, other in ((forwards.sizes, backwards.sizes), (forwards.losses, backwards.losses)):
        assert one.equals(other)


def test_tokens_that_are_neither_held_per_rank_nor_per_step_refuse_a_retention(strong: list[Run]) -> None:
    found = tv.scaling(strong[:2], tokens_per_step={"small": 1000, "middle": 1500})
    row = _last(found)
    assert (row["scaling"], row["retention"], row["serial_fraction"]) == (None, None, None)
    assert "neither tokens per rank nor per step" in row["reason"]
    _check_sums(found)


def test_weak_scaling_has_no_serial_fraction(found: Scaling) -> None:
    assert found.sizes["serial_fraction"].to_list() == [None] * 3


def test_experts_that_grow_with_the_ranks_are_a_weak_scaling_of_their_own(tmp_path: Path) -> None:
    runs = _written(tmp_path, a=SMALL, b=replace(SMALL, ranks=8, expert_parallel=8, experts=32))
    assert _last(tv.scaling(runs))["scaling"] == "moe_weak"  # run.toml says so
    runs = _unsaid(runs)
    unknown = _last(tv.scaling(runs))
    assert unknown["scaling"] == "weak"
    assert "EP 4 → 8" in unknown["held"]
    assert "not known" in unknown["held"]
    grown = _last(tv.scaling(runs, experts={"a": 16, "b": 32}))
    assert (grown["scaling"], "experts 16 → 32" in grown["held"]) == ("moe_weak", True)
    assert _last(tv.scaling(runs, experts=16))["scaling"] == "weak"


def test_another_amount_of_work_refuses_a_retention_until_tokens_are_given(tmp_path: Path) -> None:
    runs = _unsaid(_written(tmp_path, a=SMALL, b=replace(SMALL, ranks=8, tokens=2048)))
    refused = _last(tv.scaling(runs))
    assert (refused["retention"], refused["tokens_from"]) == (None, None)
    assert "bytes dispatched" in refused["reason"]
    given = _last(tv.scaling(runs, tokens_per_step={"a": 4 * 4096, "b": 8 * 2048}))
    assert (given["scaling"], given["tokens_from"]) == ("strong", "given")


def test_another_tensor_parallel_size_refuses_to_compare_by_evidence(tmp_path: Path) -> None:
    runs = _unsaid(_written(tmp_path, a=SMALL, b=replace(SMALL, ranks=8, tensor_parallel=2)))
    assert "TP changes from 1 to 2" in _last(tv.scaling(runs))["reason"]


def test_the_same_job_twice_keeps_all_of_its_speed_within_the_interval(tmp_path: Path) -> None:
    plan = replace(SMALL, expert_imbalance=0.0)
    runs = _written(tmp_path, a=plan, b=replace(plan, seed=2))
    row = _last(tv.scaling(runs))
    assert row["scaling"] == "same_size"
    assert row["retention_low"] < 1 < row["retention_high"]


def test_few_steps_give_a_retention_without_an_interval(strong: list[Run]) -> None:
    row = _last(tv.scaling(strong[:2], steps=range(11, 13)))
    assert row["retention"] is not None
    assert (row["retention_low"], row["retention_high"]) == (None, None)


def test_the_whole_window_can_be_compared_too(strong: list[Run]) -> None:
    found = tv.scaling(strong[:2], steps="all")
    _check_sums(found)
    assert found.sizes["step_count"].to_list() == [0, 0]


# --- causes ------------------------------------------------------------------------------------------


def test_an_expert_group_that_leaves_the_nvlink_domain_is_named(tmp_path: Path) -> None:
    plan = Workload(ranks=16, expert_parallel=8, experts=16, steps=5, layers=1, expert_imbalance=0.1)
    runs = _written(tmp_path, a=plan, b=replace(plan, ranks=32, expert_parallel=16))
    found = tv.scaling(runs, tokens_per_step={"a": 16 * 4096, "b": 32 * 4096})
    _check_sums(found)
    first = found.axes.row(0, named=True)
    assert (first["axis"], first["cause"]) == ("ep", "left_domain")
    assert first["base_far_ratio"] == 0
    assert first["far_ratio"] == pytest.approx(8 / 15, abs=0.02)  # 8 of 15 peers are on the other host
    worst = found.losses.sort("loss_ns", descending=True).row(0, named=True)
    assert (worst["axes"], worst["cause"]) == ("ep", "transfer")
    result = CliRunner().invoke(main, ["scaling", str(tmp_path / "a"), str(tmp_path / "b")])
    assert "leave the scale-up (NVLink) domain" in result.stdout.splitlines()[-1]


def test_an_axis_that_is_new_sends_more_than_nothing(strong: list[Run]) -> None:
    found = tv.scaling(strong[:2])
    [edp] = found.axes.filter(pl.col("axis") == "edp").to_dicts()
    assert (edp["cause"], edp["base_sent_bytes"], edp["base_dur_ns"]) == ("more_bytes", 0, 0)


# --- edges -------------------------------------------------------------------------------------------


def test_one_run_has_an_efficiency_and_nothing_to_compare(strong: list[Run]) -> None:
    found = tv.scaling(strong[:1])
    assert (len(found.sizes), len(found.losses), len(found.axes), len(found.efficiency)) == (1, 0, 0, 1)


def test_runs_of_one_name_are_refused(strong: list[Run]) -> None:
    with pytest.raises(UsageError, match="different names"):
        tv.scaling([strong[0], strong[0]])


def test_a_number_for_a_run_that_is_not_there_is_refused(strong: list[Run]) -> None:
    with pytest.raises(UsageError, match="there is no run 'huge'"):
        tv.scaling(strong, tokens_per_step={"huge": 1})


@pytest.mark.parametrize("text", ["many", "0", "a=", "=5", "a=-1"])
def test_tokens_that_are_no_number_exit_2(text: str) -> None:
    result = CliRunner().invoke(main, ["scaling", str(SAMPLES / "256"), "--tokens-per-step", text])
    assert result.exit_code == 2


def test_a_retention_below_the_bar_exits_1(strong: list[Run]) -> None:
    places = [str(run.folder) for run in strong[:2]]
    kept = _last(tv.scaling(strong[:2]))["retention"]
    passed = CliRunner().invoke(main, ["scaling", *places, "--fail-on", f"retention<{kept - 0.01}"])
    assert passed.exit_code == 0
    failed = CliRunner().invoke(main, ["scaling", *places, "--fail-on", f"retention<{kept + 0.01}"])
    assert failed.exit_code == 1
    assert "run=middle" in failed.stderr


def test_the_additive_tree_is_shown_on_request(strong: list[Run]) -> None:
    places = [str(run.folder) for run in strong[:2]]
    additive = CliRunner().invoke(main, ["scaling", *places, "--additive"]).stdout
    assert "adds up to 100 − parallel" in additive
    assert "serial %" in additive


@given(
    totals=st.lists(st.integers(0, 10**15), min_size=1, max_size=8),
    share=st.fractions(min_value=0, max_value=4, max_denominator=10**6),
)
def test_apportioned_times_are_the_exact_ones_rounded_and_add_up(totals: list[int], share: Fraction) -> None:
    parts = apportioned(totals, share)
    assert sum(parts) == round(sum(totals) * share)
    assert all(abs(part - total * share) < 1 for part, total in zip(parts, totals, strict=True))


def test_identities_hold_on_public_runs_of_several_ranks(traces: Path) -> None:
    folder = traces / "pytorch" / "pytorch-torchrec" / "trace"
    runs = [run for place in sorted(folder.iterdir()) for run in tv.load_runs(place)]
    runs.append(tv.load(traces / "pytorch" / "KellerJordan-modded-nanogpt" / "2025-12-11_baseline_8ranks"))
    assert {len(run.ranks) for run in runs} >= {4, 8}
    tokens = {run.name: 1000 * (run.world_size or len(run.ranks)) for run in runs}
    found = tv.scaling(runs, tokens_per_step=tokens)
    _check_sums(found)
    assert found.sizes["retention"].count() == len(runs) - 1
