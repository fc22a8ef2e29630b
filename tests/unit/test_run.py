"""Which files make one run; two recordings are never mixed."""

from __future__ import annotations

import polars as pl
import pytest

from traceview.errors import UsageError
from traceview.run import Run, group, only_ranks
from traceview.schema import OPS
from traceview.trace import Facts, Trace


def trace(path: str, rank: int | None, start: int = 0, end: int = 100, *, world: int | None = 4) -> Trace:
    ops = OPS.empty()
    facts = Facts(path=path, format="kineto", rank=rank, world_size=world, start_ns=start, end_ns=end)
    return Trace(facts, {"ops": ops})


def members(runs: list[Run]) -> list[list[str]]:
    return [[trace.facts.path for trace in run.traces] for run in runs]


def test_the_ranks_of_a_folder_are_one_run_ordered_by_rank() -> None:
    [run] = group([trace("a/x1", 1), trace("a/x0", 0, start=50, end=300)])
    assert run.ranks == (0, 1)
    assert run.name == "a"


def test_a_second_recording_of_the_same_ranks_is_a_second_run() -> None:
    first = [trace(f"a/p{n}", n, start=n, end=100) for n in range(4)]
    second = [trace(f"a/q{n}", n, start=5000 + n, end=5100) for n in range(4)]
    runs = group([*second, *first])
    assert members(runs) == [[f"a/p{n}" for n in range(4)], [f"a/q{n}" for n in range(4)]]
    assert [run.name for run in runs] == ["a#1", "a#2"]


def test_folders_are_never_mixed_but_a_folder_per_rank_is_looked_through() -> None:
    assert len(group([trace("a/x", 0), trace("b/x", 1)])) == 2
    [run] = group([trace("job/rank_0/x", 0), trace("job/rank_1/x", 1)])
    assert (run.name, run.ranks) == ("job", (0, 1))


def test_jobs_of_different_size_are_never_mixed() -> None:
    assert len(group([trace("a/x", 0, world=4), trace("a/y", 1, world=8)])) == 2


def test_files_that_name_no_rank_are_one_run_only_if_they_were_recorded_together() -> None:
    together = [trace("a/x", None, 0, 100, world=None), trace("a/y", None, 50, 150, world=None)]
    [run] = group(together)
    assert run.ranks == (0, 1)
    assert "run.rank_assumed" in set(run.diagnostics["code"])
    apart = [trace("a/x.json", None, 0, 100, world=None), trace("a/y.json", None, 500, 600, world=None)]
    assert [run.name for run in group(apart)] == ["x", "y"]


def test_assumed_ranks_avoid_the_known_ones() -> None:
    mixed = [trace("a/x", 1, 0, 100), trace("a/y", None, 10, 90), trace("a/z", None, 20, 80)]
    [run] = group(mixed)
    assert run.ranks == (0, 1, 2)


def test_missing_ranks_are_said() -> None:
    [run] = group([trace("a/x", 2, world=64)])
    note = run.diagnostics.filter(pl.col("code") == "run.ranks_missing")
    assert note["count"].to_list() == [63]
    assert "1 of 64" in note["text"][0]


def test_asking_for_absent_ranks_names_those_there_are() -> None:
    [run] = group([trace("a/x", 2), trace("a/y", 3)])
    assert only_ranks(run, {3, 9}).ranks == (3,)
    with pytest.raises(UsageError, match="2, 3"):
        only_ranks(run, {7})


def test_tables_are_attributes_and_others_are_named_in_the_error() -> None:
    [run] = group([trace("a/x", 0)])
    assert run.ops.collect_schema() == OPS.schema()
    assert run.counters.collect().is_empty()
    with pytest.raises(AttributeError, match="collectives"):
        _ = run.kernels
