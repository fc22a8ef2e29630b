"""Kernels by label: an oracle in plain Python, the generator's truth, public traces read another way."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers.kernels import ANALYSIS
from traceview.contracts import Options
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]


def op(start: int, length: int, category: str = "gemm", **more: Any) -> Row:
    return {"ts_ns": start, "dur_ns": length, "category": category, "kind": "kernel"} | more


def _answer(traces: list[Trace], *by: str, steps: str = "auto") -> list[Row]:
    options = Options(steps=steps, by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


# --- an oracle in plain Python -----------------------------------------------------------------------


def _covered(rows: list[Row], start: int, end: int) -> int:
    """Nanoseconds of [start, end) in which one of the rows runs."""
    return len(
        {at for row in rows for at in range(row["ts_ns"], row["ts_ns"] + row["dur_ns"]) if start <= at < end}
    )


def _told(ranks: list[list[Row]], key: str, steps: list[tuple[int, int, int]]) -> dict[Any, Row]:
    """By value of ``key``: counts, sums, unions and quantiles, over steps of ranks with one device each."""
    told: dict[Any, Row] = defaultdict(lambda: {"lengths": [], "busy_ns": 0, "ranks": set()})
    for rank, rows in enumerate(ranks):
        kernels = [row for row in rows if row["kind"] in {"kernel", "graph"}]
        for _, start, length in steps:
            for label in {row.get(key) for row in kernels}:
                own = [row for row in kernels if row.get(key) == label]
                begun = [row for row in own if start <= row["ts_ns"] < start + length]
                busy = _covered(own, start, start + length)
                if begun or busy:
                    told[label]["lengths"] += [row["dur_ns"] for row in begun]
                    told[label]["busy_ns"] += busy
                    told[label]["ranks"] |= {rank} if begun else set()
    return told


_ROWS = st.lists(
    st.builds(
        op,
        st.integers(0, 60),
        st.integers(0, 25),
        st.sampled_from(["gemm", "attention", "all_gather"]),
        kind=st.sampled_from(["kernel", "kernel", "graph", "memcpy"]),
        layer=st.sampled_from([None, 1, 2]),
    ),
    max_size=14,
)
_STEPS = [(5, 0, 40), (6, 40, 25)]


@settings(max_examples=60)
@given(ranks=st.lists(_ROWS, min_size=1, max_size=3), key=st.sampled_from(["category", "layer"]))
def test_every_figure_is_that_of_a_walk_over_all_kernels_of_all_ranks(
    made: Callable[..., Trace], ranks: list[list[Row]], key: str
) -> None:
    found = _answer([made(rows, rank=rank, steps=_STEPS) for rank, rows in enumerate(ranks)], key)
    told = _told(ranks, key, _STEPS)
    assert {row[key] for row in found} == set(told)
    every = sum(sum(one["lengths"]) for one in told.values())
    busy = sum(_covered(rows, start, start + length) for rows in ranks for _, start, length in _STEPS)
    seen = sum(length for rows in ranks for _, _, length in _STEPS if rows)
    for row in found:
        one = told[row[key]]
        lengths = one["lengths"]
        assert row["kernel_count"] == len(lengths)
        assert (row["total_ns"], row["busy_ns"]) == (sum(lengths), one["busy_ns"])
        assert row["rank_count"] == len(one["ranks"])
        assert (row["min_ns"], row["max_ns"]) == ((min(lengths), max(lengths)) if lengths else (None, None))
        for name, share in (("median_ns", 50), ("p95_ns", 95)):
            assert row[name] == (pytest.approx(np.percentile(lengths, share)) if lengths else None)
        assert row["sum_ratio"] == (pytest.approx(sum(lengths) / every) if every else None)
        assert row["busy_ratio"] == (pytest.approx(one["busy_ns"] / busy) if busy else None)
        assert row["window_ns"] == seen


# --- by hand -----------------------------------------------------------------------------------------


def test_kernels_at_once_are_one_busy_moment_and_two_durations(made: Callable[..., Trace]) -> None:
    rows = [op(0, 10), op(5, 10), op(15, 5, "norm"), op(30, 10, kind="memcpy", category="memory")]
    [gemm, norm] = _answer([made(rows)], "category")
    assert (gemm["total_ns"], gemm["busy_ns"], gemm["window_ns"]) == (20, 15, 40)
    assert gemm["sum_ratio"] == pytest.approx(20 / 25)
    assert gemm["busy_ratio"] == pytest.approx(15 / 30)  # the copy is busy time too
    assert gemm["window_ratio"] == pytest.approx(15 / 40)
    assert norm["kernel_count"] == 1


def test_a_kernel_that_a_step_cuts_counts_whole_where_it_starts_and_is_busy_in_both(
    made: Callable[..., Trace],
) -> None:
    rows = [op(0, 10), op(90, 30), op(150, 10)]
    first, second = _answer([made(rows, steps=[(1, 0, 100), (2, 100, 60)])], "step")
    assert [(row["kernel_count"], row["total_ns"], row["busy_ns"]) for row in (first, second)] == [
        (2, 40, 20),
        (1, 10, 30),
    ]


def test_a_kernel_belongs_to_the_step_that_launched_it_however_late_it_runs(
    made: Callable[..., Trace],
) -> None:
    rows = [op(0, 10, step=1), op(120, 30, step=1), op(105, 10, step=2), op(110, 5)]
    first, second = _answer([made(rows, steps=[(1, 0, 100), (2, 100, 60)])], "step")
    assert [(row["kernel_count"], row["busy_ns"]) for row in (first, second)] == [(2, 10), (2, 40)]
    [only] = _answer([made(rows, steps=[(2, 100, 60)])], "step")  # the first step was not asked for
    assert only["kernel_count"] == 2


def test_a_kernel_without_duration_counts_even_at_the_very_end(made: Callable[..., Trace]) -> None:
    [row] = _answer([made([op(0, 10), op(10, 0), op(10, 0)])])
    assert (row["kernel_count"], row["min_ns"], row["median_ns"]) == (3, 0, 0.0)


def test_only_kernels_that_start_in_a_chosen_step_count(made: Callable[..., Trace]) -> None:
    rows = [op(0, 10), op(50, 10), op(100, 10)]
    [row] = _answer([made(rows, steps=[(1, 50, 40)])])
    assert row["kernel_count"] == 1


def test_the_range_is_the_innermost_one_around_the_launch_on_its_own_thread(
    made: Callable[..., Trace],
) -> None:
    ranges = [{"name": "outer", "ts_ns": 0, "dur_ns": 100}, {"name": "inner", "ts_ns": 10, "dur_ns": 20}]
    launches = [(5, 1), (15, 1), (29, 1), (30, 1), (15, 2), (200, 1), None]
    rows = [op(1000 + 10 * place, 1, launch=launch) for place, launch in enumerate(launches)]
    found = {row["range"]: row["kernel_count"] for row in _answer([made(rows, ranges=ranges)], "range")}
    assert found == {"outer": 2, "inner": 2, None: 3}


@pytest.mark.parametrize(
    ("more", "part", "serves"),
    [
        ({"category": "dispatch", "role": "dispatch"}, "exchange", True),
        ({"category": "ep_sync"}, "exchange", True),
        ({"category": "all_to_all", "role": "combine"}, "exchange", True),
        ({"category": "all_to_all"}, None, False),
        ({"category": "grouped_gemm"}, "expert", True),
        ({"category": "elementwise", "module": "expert"}, "expert", True),
        ({"category": "gemm", "module": "router"}, "router", True),
        (
            {"category": "route_permute", "name": "fused_topk_with_score_function_forward_kernel"},
            "router",
            True,
        ),
        ({"category": "route_permute", "name": "_permute_kernel"}, "permute", True),
        ({"category": "route_permute", "name": "multi_padding_kernel"}, "padding", True),
        ({"category": "quantize"}, "quantize", False),
        ({"category": "quantize", "module": "attention"}, "quantize", False),
        ({"category": "quantize", "module": "pre_dispatch"}, "quantize", True),
        ({"category": "gemm", "module": "shared_expert"}, None, True),
        ({"category": "gemm", "module": "attention"}, None, False),
    ],
)
def test_what_serves_the_moe_layer_is_told_by_role_category_module_and_name(
    made: Callable[..., Trace], more: Row, part: str | None, serves: object
) -> None:
    rows = [op(0, 10, more["category"], **{key: value for key, value in more.items() if key != "category"})]
    [row] = _answer([made(rows)], "moe_part", "is_moe")
    assert (row["moe_part"], row["is_moe"]) == (part, serves)


# --- the generator's truth ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ep8-deepep-overlap", "ep8-nccl"])
def test_counts_by_category_are_those_the_generator_knows_for_every_rank_and_step(
    name: str, tmp_path: Path
) -> None:
    write(PRESETS[name], tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    run = tv.load(tmp_path)
    rows = tv.kernels(run, by=("rank", "step", "category")).frame
    found: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    for row in rows.to_dicts():
        found[row["rank"], str(row["step"])][row["category"]] = row["kernel_count"]
    told = {rank["rank"]: rank["steps"] for rank in truth["ranks"]}
    assert len(found) >= 16
    for (rank, step), counts in found.items():
        known = told[rank][step]["op_count_by_category"]
        assert counts == {category: count for category, count in known.items() if category not in _COPIED}
    busy = {
        row["rank"]: row["busy_ns"] for row in tv.kernels(run, by=("rank",), steps="all").frame.to_dicts()
    }
    for rank in truth["ranks"]:
        whole = rank["all"]
        assert busy[rank["rank"]] == whole["window_ns"] - whole["idle_ns"] - whole["exposed_copy_ns"]


_COPIED = {"memory"}


# --- public traces -----------------------------------------------------------------------------------


def _kernels_of(path: Path) -> list[tuple[str, int]]:
    """Name and duration in ns of every kernel in a Kineto file."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return [(event["name"], round(event["dur"] * 1000)) for event in events if event.get("cat") == "kernel"]


@pytest.mark.parametrize(
    "place",
    [
        "KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks",
        "deepseek-ai-profile-data/train.json.gz",
        "facebookresearch-HolisticTraceAnalysis/trace_filter",
    ],
)
def test_public_traces_give_the_figures_of_plain_python_over_their_json(traces: Path, place: str) -> None:
    path = traces / "pytorch" / place
    files = sorted(path.glob("*rank*.json.gz")) if path.is_dir() else [path]
    lengths: dict[str, list[int]] = defaultdict(list)
    for file in files:
        for name, length in _kernels_of(file):
            lengths[name].append(length)
    run = tv.load(files)
    rows = tv.kernels(run, by=("name",), steps="all").frame.to_dicts()
    assert {row["name"]: row["kernel_count"] for row in rows} == {
        n: len(found) for n, found in lengths.items()
    }
    total = sum(map(sum, lengths.values()))
    for row in rows:
        found = lengths[row["name"]]
        assert (row["total_ns"], row["min_ns"], row["max_ns"]) == (sum(found), min(found), max(found))
        assert row["sum_ratio"] == pytest.approx(sum(found) / total)
        within = 1e-12 if row["quantile_method"] == "exact" else 2**-9
        assert row["median_ns"] == pytest.approx(np.percentile(found, 50), rel=within)
        assert row["p95_ns"] == pytest.approx(np.percentile(found, 95), rel=within)
    assert [row["total_ns"] for row in rows] == sorted((row["total_ns"] for row in rows), reverse=True)


@pytest.mark.parametrize("name", ["mfu_2gpu_before", "h100_2gpu_1s"])
def test_an_nsight_report_gives_the_figures_of_sql_over_it(traces: Path, name: str, tmp_path: Path) -> None:
    report = tmp_path / f"{name}.sqlite"
    report.write_bytes(gzip.decompress((traces / "nsys" / "nsys-ai" / f"{name}.sqlite.gz").read_bytes()))
    query = """
        SELECT s.value, COUNT(*), SUM(k.end - k.start), MIN(k.end - k.start), MAX(k.end - k.start)
        FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value
    """
    with closing(sqlite3.connect(report)) as base:
        told = {row[0]: row[1:] for row in base.execute(query)}
    rows = tv.kernels(tv.load(report), by=("name",), steps="all").frame
    figures = ("kernel_count", "total_ns", "min_ns", "max_ns")
    assert {row["name"]: tuple(row[key] for key in figures) for row in rows.to_dicts()} == told


def test_an_nsight_reports_kernels_have_the_innermost_range_that_sql_finds(
    traces: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.sqlite"
    report.write_bytes(gzip.decompress((traces / "nsys/nsys-ai/mfu_2gpu_before.sqlite.gz").read_bytes()))
    query = """
        SELECT k.globalPid, s.value, r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
          AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000
        JOIN StringIds s ON s.id = k.demangledName
    """
    annotations = """
        SELECT n.globalTid, n.start, n.end, COALESCE(n.text, s.value) FROM NVTX_EVENTS n
        LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType IN (59, 60) AND n.end IS NOT NULL
    """
    with closing(sqlite3.connect(report)) as base:
        kernels = base.execute(query).fetchall()
        ranges: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for tid, start, end, text in base.execute(annotations):
            if not text.startswith("aten::"):  # operators, which are no annotations
                ranges[tid].append((start, end, text.partition(", ")[0].partition(" (")[0]))
    told: Counter[str | None] = Counter()
    for _, _, launch, tid in kernels:
        around = [one for one in ranges[tid] if one[0] <= launch < one[1]]
        told[max(around, key=lambda one: (one[0], -one[1]))[2] if around else None] += 1
    rows = tv.kernels(tv.load(report), by=("range",), steps="all").frame.to_dicts()
    found = {row["range"]: row["kernel_count"] for row in rows}
    assert sum(told.values()) == 3986
    found[None] -= 4010 - 3986  # kernels whose launch lies outside of the report
    assert {name: count for name, count in found.items() if count} == dict(told)
