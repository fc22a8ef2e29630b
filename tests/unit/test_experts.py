"""Balance of experts: against the router's own token counts, and against less and less evidence."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import traceview as tv
from traceview import api
from traceview.analyzers import experts
from traceview.contracts import Options
from traceview.reports import experts as pages
from traceview.reports import layout
from traceview.reports.about import About
from traceview.schema import COLLECTIVE_OPS, HOST_OPS
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceview.run import Run
    from traceview.trace import Trace

Job = Callable[[str], "tuple[Run, dict[str, Any]]"]
NAMES = ("ep8-imbalanced", "ep8-balanced", "ep8-nccl-overlap", "ep4-two-hosts", "ep8-deepep")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A preset's run and truth, written once."""
    known: dict[str, tuple[Run, dict[str, Any]]] = {}

    def of(name: str) -> tuple[Run, dict[str, Any]]:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            write(name, folder)
            known[name] = tv.load(folder), json.loads((folder / "truth.json").read_text())
        return known[name]

    return of


def _rows(run: Run, *by: str) -> list[dict[str, Any]]:
    return api.analyze(run, "experts", by=by).summary()


def _loads(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Tokens of every rank, per step, microbatch, layer and group: each rank holds a block of experts."""
    size = truth["workload"]["expert_parallel"]
    found = []
    for entry in truth["experts"]:
        for group, tokens in enumerate(entry["tokens"]):
            block = len(tokens) // size
            loads = {group * size + place: sum(tokens[place * block :][:block]) for place in range(size)}
            found.append({key: entry[key] for key in ("step", "layer")} | {"group": group, "loads": loads})
    return found


def _summed(exchanges: Iterable[dict[str, Any]]) -> dict[int, int]:
    total: dict[int, int] = defaultdict(int)
    for exchange in exchanges:
        for rank, load in exchange["loads"].items():
            total[rank] += load
    return dict(total)


def _measures(loads: dict[int, int]) -> dict[str, float | int | None]:
    values = list(loads.values())
    count, mean = len(values), sum(values) / len(values)
    shares = [value / sum(values) for value in values if value]
    hottest = [rank for rank, load in loads.items() if load == max(values)]
    return {
        "load_mean": mean,
        "load_max": max(values),
        "max_over_mean": max(values) / mean,
        "cv": math.sqrt(sum((value - mean) ** 2 for value in values) / count) / mean,
        "gini": sum(abs(x - y) for x in values for y in values) / (2 * count * sum(values)),
        "entropy_ratio": -sum(p * math.log(p) for p in shares) / math.log(count),
        "zero_ratio": values.count(0) / count,
        "hottest_rank": hottest[0] if len(hottest) == 1 else None,
    }


def _assert_equal(row: dict[str, Any], expected: dict[str, float | int | None]) -> None:
    for name, value in expected.items():
        assert row[name] == (None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name


# --- split lists against the truth -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES[:4])
@pytest.mark.parametrize("by", [(), ("layer",), ("step",), ("layer", "step")])
def test_measures_are_those_of_the_tokens_the_router_counted(
    name: str, by: tuple[str, ...], job: Job
) -> None:
    run, truth = job(name)
    rows = _rows(run, *by)
    scopes = {tuple(exchange[key] for key in by) for exchange in _loads(truth)}
    assert {tuple(row[key] for key in by) for row in rows} == scopes
    for row in rows:
        inside = [e for e in _loads(truth) if all(e[key] == row[key] for key in by)]
        assert (row["evidence"], row["level"], row["phase"]) == ("splits", "rank", "forward")
        assert (row["rank_count"], row["exchange_count"]) == (8, len(inside))
        _assert_equal(row, _measures(_summed(inside)))
        each = [_measures(exchange["loads"])["max_over_mean"] for exchange in inside]
        assert row["exchange_max_over_mean"] == pytest.approx(np.median(np.array(each, float)))


def test_groups_are_measured_apart_and_ranks_show_their_own_load(
    job: Job,
) -> None:
    run, truth = job("ep4-two-hosts")
    rows = _rows(run, "group", "rank")
    assert [row["rank"] for row in sorted(rows, key=lambda row: row["rank"])] == list(range(8))
    for row in rows:
        loads = _summed(e for e in _loads(truth) if row["rank"] in e["loads"])
        _assert_equal(row, _measures(loads))
        assert (row["rank_count"], row["load"]) == (4, loads[row["rank"]])
        assert row["load_over_mean"] == pytest.approx(loads[row["rank"]] / row["load_mean"])


def test_only_even_loads_look_forced(job: Job) -> None:
    assert {row["is_forced"] for row in _rows(job("ep8-balanced")[0], "layer", "step")} == {True}
    assert {row["is_forced"] for row in _rows(job("ep8-imbalanced")[0], "layer", "step")} == {False}
    few = tv.load(_folder(job("ep4-two-hosts")[0]), ranks=range(4))
    assert {row["is_forced"] for row in _rows(few, "layer", "step")} == {False}


def _folder(run: Run) -> Path:
    return Path(run.traces[0].facts.path).parent


def test_equal_loads_make_nobody_the_hottest(job: Job) -> None:
    assert {row["hottest_rank"] for row in _rows(job("ep8-balanced")[0], "layer")} == {None}


# --- less evidence -----------------------------------------------------------------------------------


def _without(run: Run, *columns: str) -> Run:
    """``run`` as if its collectives had not recorded ``columns``."""
    unknown = [pl.lit(None, COLLECTIVE_OPS.columns[name].dtype).alias(name) for name in columns]
    tables = [trace.table("collectives").with_columns(unknown) for trace in run.traces]
    traces = [trace.with_tables(collectives=t) for trace, t in zip(run.traces, tables, strict=True)]
    return replace(run, traces=tuple(traces))


SPLITS = ("in_splits", "out_splits", "splits_complete")
BYTES = ("in_bytes", "out_bytes")


def test_received_bytes_tell_the_same_as_split_lists(
    job: Job,
) -> None:
    run, truth = job("ep8-imbalanced")
    (row,) = _rows(_without(run, *SPLITS))
    assert row["evidence"] == "bytes"
    expected = _measures(_summed(_loads(truth)))
    row_bytes = 2 * truth["workload"]["hidden"]  # BF16
    for name in ("load_mean", "load_max"):
        row[name] /= row_bytes
    _assert_equal(row, expected)


def test_split_lists_that_the_profiler_cut_short_are_not_counted(
    job: Job,
) -> None:
    run, _ = job("ep8-imbalanced")
    tables = [trace.table("collectives") for trace in run.traces]
    cut = [
        t.with_columns(out_splits=pl.col("out_splits").list.head(3), splits_complete=False) for t in tables
    ]
    traces = [trace.with_tables(collectives=t) for trace, t in zip(run.traces, cut, strict=True)]
    (row,), (whole,) = _rows(replace(run, traces=tuple(traces))), _rows(run)
    assert row["evidence"] == "bytes"
    assert row["max_over_mean"] == pytest.approx(whole["max_over_mean"])


def _with_shapes(trace: Trace, rank: int) -> Trace:
    """An operator around each launch of a grouped GEMM; rank ``r`` multiplies ``100 + r`` rows."""
    launches = trace.table("ops").filter(pl.col("category") == "grouped_gemm").select("launch_ts_ns")
    shapes = pl.lit(f"[[{100 + rank}, 64], [8, 64, 32], [8], [], []]")
    around = launches.select(
        rank=pl.lit(rank),
        ts_ns=pl.col("launch_ts_ns") - 1,
        dur_ns=3,
        name=pl.lit("aten::_grouped_mm"),
        shapes=shapes,
    )
    return trace.with_tables(host_ops=HOST_OPS.frame(around))


def test_rows_of_grouped_gemms_count_where_transport_recorded_nothing(
    job: Job,
) -> None:
    run = _without(job("ep8-imbalanced")[0], *SPLITS, *BYTES)
    shaped = replace(run, traces=tuple(_with_shapes(trace, rank) for rank, trace in enumerate(run.traces)))
    (row,) = _rows(shaped)
    forward = [
        len(t.table("ops").filter((pl.col("category") == "grouped_gemm") & (pl.col("phase") == "forward")))
        for t in run.traces
    ]
    assert row["evidence"] == "shapes"
    _assert_equal(row, _measures({rank: (100 + rank) * count for rank, count in enumerate(forward)}))


@pytest.mark.parametrize("name", ["ep8-imbalanced", "ep8-deepep"])
def test_durations_stand_in_for_rows_and_price_nothing(name: str, job: Job) -> None:
    run, truth = job(name)
    (row,) = _rows(_without(run, *SPLITS, *BYTES))
    assert row["evidence"] == "grouped_gemm"
    known = _measures(_summed(_loads(truth)))
    assert row["hottest_rank"] == known["hottest_rank"]
    assert row["max_over_mean"] == pytest.approx(known["max_over_mean"], rel=0.02)
    assert (row["price_slope_ns"], row["price_point_count"], row["saving_ns"]) == (None, 0, None)


def test_counts_and_probabilities_that_travel_apart_are_no_tokens(
    job: Job,
) -> None:
    """Every dispatch gets a companion of the same group: eight rows of eight bytes for each peer."""
    run, _ = job("ep8-imbalanced")

    def accompanied(trace: Trace) -> Trace:
        comm = trace.table("collectives")
        even = pl.lit([8] * 8, pl.List(pl.Int64))
        extra = comm.filter(pl.col("role") == "dispatch").with_columns(
            pl.col("op") + 1_000_000, in_splits=even, out_splits=even, in_bytes=512, out_bytes=512
        )
        return trace.with_tables(
            collectives=COLLECTIVE_OPS.conform(pl.concat([comm, extra], how="vertical_relaxed"))
        )

    (row,) = _rows(replace(run, traces=tuple(map(accompanied, run.traces))))
    (plain,) = _rows(run)
    assert {name: row[name] for name in plain if not name.startswith(("price", "saving"))} == {
        name: value for name, value in plain.items() if not name.startswith(("price", "saving"))
    }


def test_quantised_tokens_are_tokens_although_gradients_are_wider(tmp_path: Path) -> None:
    plan = replace(PRESETS["ep8-imbalanced"], steps=1, layers=1, dispatch_dtype="Float8_e4m3fn")
    write(plan, tmp_path)
    (row,) = _rows(tv.load(tmp_path))
    assert row["evidence"] == "splits"
    _assert_equal(row, _measures(_summed(_loads(json.loads((tmp_path / "truth.json").read_text())))))


def test_a_group_that_lacks_a_rank_is_not_judged(job: Job) -> None:
    run, truth = job("ep4-two-hosts")
    folder = _folder(run)
    (none,) = _rows(tv.load(folder, ranks=[0, 1, 2]))
    assert (none["max_over_mean"], none["is_forced"], none["exchange_count"]) == (None, None, 0)
    assert none["reason"] == "3 of 4 ranks of a group show a load"
    (half,) = _rows(tv.load(folder, ranks=[0, 1, 2, 4, 5, 6, 7]))
    assert (half["rank_count"], half["reason"]) == (4, None)
    _assert_equal(half, _measures(_summed(e for e in _loads(truth) if e["group"] == 1)))


# --- price -------------------------------------------------------------------------------------------


def _points(run: Run, truth: dict[str, Any]) -> list[tuple[float, float]]:
    """``(max/mean, time of the slowest rank)`` per step and layer, from truth and device rows."""
    gemm: dict[tuple[int, int, int], int] = defaultdict(int)
    ops = run.ops.filter(pl.col("category") == "grouped_gemm").select("step", "layer", "rank", "dur_ns")
    for step, layer, rank, duration in ops.collect().iter_rows():
        gemm[step, layer, rank] += duration
    moved: dict[tuple[int, int], int] = defaultdict(int)
    for exchange in truth["collectives"]:
        if exchange["role"]:
            moved[exchange["step"], exchange["layer"]] += exchange["transfer_ns"]
    points: list[tuple[float, float]] = []
    for exchange in _loads(truth):
        place = exchange["step"], exchange["layer"]
        values = list(exchange["loads"].values())
        slowest = max(gemm[(*place, rank)] for rank in exchange["loads"]) + moved[place]
        points.append((max(values) * len(values) / sum(values), slowest))
    return points


def test_the_price_is_the_line_through_the_exchanges(
    job: Job,
) -> None:
    run, truth = job("ep8-imbalanced")
    x, y = np.array(_points(run, truth)).T
    slope, start = np.polyfit(x, y, 1)
    left = y - (slope * x + start)
    (row,) = _rows(run)
    assert row["price_point_count"] == len(x) == 8
    assert row["price_slope_ns"] == pytest.approx(slope, rel=1e-3)
    assert row["price_r_squared"] == pytest.approx(
        1 - left @ left / ((y - y.mean()) @ (y - y.mean())), rel=1e-3
    )
    steps = truth["workload"]["steps"]
    assert row["saving_ns"] == pytest.approx(slope * (x - 1).sum() / steps, rel=1e-3)


def test_savings_of_layers_add_up_to_that_of_the_step(
    job: Job,
) -> None:
    run, _ = job("ep8-imbalanced")
    (whole,) = _rows(run)
    assert sum(row["saving_ns"] for row in _rows(run, "layer")) == pytest.approx(whole["saving_ns"])
    by_step = [row["saving_ns"] for row in _rows(run, "step")]
    assert sum(by_step) / len(by_step) == pytest.approx(whole["saving_ns"])


@pytest.mark.parametrize("name", ["ep8-balanced", "ep8-nccl-overlap"])
def test_without_spread_or_points_there_is_no_price(name: str, job: Job) -> None:
    """Balanced loads show no spread to learn from; three steps of two microbatches are too few points."""
    (row,) = _rows(job(name)[0])
    assert row["saving_ns"] is None
    assert (row["price_slope_ns"] is None) == (name == "ep8-balanced")


# --- real traces -------------------------------------------------------------------------------------


def test_without_roles_the_exchange_before_the_grouped_gemms_is_the_dispatch(traces: Path) -> None:
    """Each pass of this recording exchanges counts, then rows to the experts, then rows back."""
    path = traces / "pytorch" / "pytorch-ao" / "ref_ep_moe_fwd.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    exchanges = sorted(
        (event["ts"], sum(json.loads(event["args"]["Out split size"])))
        for event in events
        if event.get("cat") == "kernel" and event["args"].get("Collective name") == "all_to_allv"
    )
    (row,) = _rows(tv.load(path), "rank")
    assert row["load"] == sum(rows for _, rows in exchanges[1::3])
    assert (row["evidence"], row["max_over_mean"]) == ("splits", None)
    assert row["reason"] == "1 of 2 ranks of a group show a load"


def test_one_rank_of_an_unknown_group_has_a_load_and_no_balance(traces: Path) -> None:
    path = traces / "pytorch" / "deepseek-ai-profile-data" / "train.json.gz"
    (row,) = _rows(tv.load(path), "rank")
    assert row["evidence"] == "grouped_gemm"
    assert row["load"] == 11_591_000  # eight forward kernels, added by hand from the file's microseconds
    assert (row["max_over_mean"], row["cv"], row["hottest_rank"]) == (None, None, None)
    assert row["reason"] == "the expert-parallel group is not known"


def test_a_dense_model_has_no_experts(traces: Path) -> None:
    folder = traces / "pytorch" / "KellerJordan-modded-nanogpt" / "2025-12-11_baseline_8ranks"
    assert _rows(tv.load(folder, ranks=[0, 1])) == []


# --- page --------------------------------------------------------------------------------------------


def _page(run: Run, *by: str) -> str:
    return layout.plain(pages.page(About.of(run), api.analyze(run, "experts", by=by).frame, []))


def test_the_page_ends_with_the_least_even_layer_and_the_price(
    job: Job,
) -> None:
    run, truth = job("ep8-imbalanced")
    last = _page(run, "layer").splitlines()[-1]
    per_layer = defaultdict(list)
    for exchange in _loads(truth):
        per_layer[exchange["layer"]].append(_measures(exchange["loads"])["max_over_mean"])
    worst = max(per_layer, key=lambda layer: float(np.median(np.array(per_layer[layer], float))))
    assert f"of layer {worst}, the least even" in last
    assert "perfect balance would save at most" in last


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("ep8-balanced", (), "looks forced or synthetic"),
        ("ep8-deepep", (), "what that costs is not clear"),
        ("ep8-imbalanced", SPLITS, "bytes received by the dispatch"),
    ],
)
def test_the_page_says_what_its_figures_are_worth(
    name: str, columns: tuple[str, ...], expected: str, job: Job
) -> None:
    assert expected in _page(_without(job(name)[0], *columns))


def test_the_page_says_why_there_is_no_answer(job: Job) -> None:
    page = _page(tv.load(_folder(job("ep4-two-hosts")[0]), ranks=[0]), "rank")
    assert "missing: 1 of 4 ranks of a group show a load" in page
    assert page.splitlines()[-1].startswith("Balance cannot be told")
    assert pages.sentence(experts.RESULT.empty()) == pages.NONE


def test_the_evidence_of_a_single_rank_is_read_without_the_others(
    job: Job,
) -> None:
    """What crosses processes is small: one row per load, none per expert or peer."""
    run, _ = job("ep8-nccl-overlap")
    partial = experts.ANALYSIS.map(run.traces[0], Options())
    loads = partial.drop_nulls("evidence")
    plan = PRESETS["ep8-nccl-overlap"]
    exchanges = plan.steps * plan.microbatches * plan.layers
    counted = dict(loads.group_by("evidence").len().iter_rows())
    # dispatches have two directions of travel in backward; grouped GEMMs run in both phases
    assert counted == {"splits": 2 * exchanges, "bytes": 2 * exchanges, "grouped_gemm": 2 * exchanges}
