"""The library as a notebook sees it: loading, asking, and what comes back."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import traceview as tv
from traceview import registry
from traceview.comparisons import compare, scaling
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ep8")
    write(PRESETS["ep8-deepep"], place)
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return tv.load(folder)


ASKED = {
    "all_to_all": "alltoall",
    "breakdown": "breakdown",
    "clock_fit": "clocks",
    "collective_latency": "collectives",
    "counters": "counters",
    "efficiency": "efficiency",
    "expert_load": "experts",
    "hideability": "hideability",
    "idle": "idle",
    "interference": "interference",
    "kernels": "kernels",
    "latencies": "latencies",
    "ledger": "ledger",
    "overlap": "overlap",
    "ranges": "ranges",
    "roofline": "roofline",
    "stragglers": "stragglers",
    "traffic": "traffic",
}
WITHIN_OTHERS = {"copies", "nsys_overlap", "sm_share"}
"""Parts of other pages: they have no verb of their own."""


def test_every_analysis_has_a_verb_or_a_comparison_that_asks_it_and_every_verb_answers(run: Run) -> None:
    compared = {name for name, _ in compare.questions()} | set(scaling.QUESTIONS)
    assert {*ASKED.values(), *compared, *WITHIN_OTHERS} == set(registry.analyses())
    for verb, analysis in ASKED.items():
        result = getattr(tv, verb)(run)
        assert result.analysis.name == analysis
        assert result.frame.columns == list(registry.analyses()[analysis].result.columns)


def test_public_names_are_sorted_exist_and_are_no_modules() -> None:
    assert sorted(tv.__all__) == tv.__all__
    modules = {info.name for info in pkgutil.iter_modules(tv.__path__)}
    assert not modules & set(tv.__all__), "a submodule of that name would replace the function once imported"
    for name in tv.__all__:
        assert getattr(importlib.import_module("traceview"), name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tv.nothing


def test_a_result_is_an_arrow_stream_and_plain_values(run: Run) -> None:
    result = tv.breakdown(run, by=("rank", "step"))
    assert pa.table(result).num_rows == len(result.frame)
    assert pl.DataFrame(result).equals(result.frame)
    assert json.loads(json.dumps(result.summary()))[0]["rank"] == 0
    assert "breakdown by rank, step" in repr(result)


def test_a_run_says_what_it_is_in_one_line(run: Run) -> None:
    assert repr(run).count("\n") == 0
    assert "8 ranks" in repr(run)


def test_questions_nobody_can_answer_name_those_that_can_be_asked(run: Run) -> None:
    with pytest.raises(tv.TraceViewError, match="no analysis 'magic'; there are: alltoall"):
        tv.analyze(run, "magic")
    with pytest.raises(tv.TraceViewError, match="cannot be shown by weather; choose from: rank"):
        tv.breakdown(run, by=("weather",))
    with pytest.raises(tv.TraceViewError, match="none of the steps asked for"):
        tv.breakdown(run, steps=range(900, 901))


def test_a_cache_gives_the_same_answers_and_is_used(folder: Path, run: Run, tmp_path: Path) -> None:
    expected = tv.breakdown(run, by=("rank", "step")).frame
    seen: list[str] = []
    for _ in range(2):
        cached = tv.load(folder, cache=tmp_path, workers=1, progress=lambda *about: seen.append(about[2]))
        assert tv.breakdown(cached, by=("rank", "step")).frame.equals(expected)
    assert len(seen) == 16
    stored = sorted(path.name for path in tmp_path.iterdir())
    assert len(stored) == 8
    assert not any(name.startswith(".partial") for name in stored)


def test_other_rules_do_not_find_the_tables_of_these(folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text("[[rule]]\nid = 'mine'\npattern = 'nvjet'\ncategory = 'attention'\nsource = 'test'\n")
    cache = tmp_path / "cache"
    plain = tv.load(folder / "rank0_trace.json.gz", cache=cache)
    mine = tv.load(folder / "rank0_trace.json.gz", cache=cache, rules=rules)
    named = [run.ops.filter(pl.col("rule_id") == "mine").collect().height for run in (plain, mine)]
    assert named[0] == 0
    assert named[1] > 0


def test_only_the_ranks_asked_for_are_kept(folder: Path) -> None:
    assert tv.load(folder, ranks={1, 5}).ranks == (1, 5)


def test_a_damaged_rank_is_skipped_said_and_costs_no_other_rank(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("rank*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "rank3_trace.json.gz").write_bytes(b"\x1f\x8b\x08damaged")
    damaged = tv.load(tmp_path)
    assert damaged.ranks == (0, 1, 2, 4, 5, 6, 7)
    skipped = damaged.diagnostics.filter(pl.col("code") == "input.skipped")
    assert "rank3" in skipped["text"][0]
