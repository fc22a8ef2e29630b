"""Steps: what marks them, which launches belong to them, and the windows they tile."""

from __future__ import annotations

import polars as pl

from traceview.schema import LAUNCHES, RANGES
from traceview.steps import device_steps, host_steps, step_of_launch


def ranges(*rows: tuple[str, int, int, int | None, str]) -> pl.DataFrame:
    """Ranges from (name, start, end, step, kind)."""
    columns = {
        "rank": [0] * len(rows),
        "pid": [1] * len(rows),
        "tid": [1] * len(rows),
        "ts_ns": [row[1] for row in rows],
        "dur_ns": [row[2] - row[1] for row in rows],
        "raw_name": [row[0] for row in rows],
        "name": [row[0].split("#")[0].split(" ")[0] for row in rows],
        "step": [row[3] for row in rows],
        "kind": [row[4] for row in rows],
    }
    return RANGES.frame(pl.DataFrame(columns, schema_overrides={"step": pl.Int64}))


def ops(*rows: tuple[int, int, int | None, int]) -> pl.DataFrame:
    """Device ops from (start, end, step, correlation)."""
    return pl.DataFrame(
        {
            "rank": [0] * len(rows),
            "ts_ns": [row[0] for row in rows],
            "dur_ns": [row[1] - row[0] for row in rows],
            "step": pl.Series([row[2] for row in rows], dtype=pl.Int64),
            "correlation": [row[3] for row in rows],
        },
        schema_overrides={"rank": pl.Int32},
    )


def launches(*rows: tuple[int, int]) -> pl.DataFrame:
    """Kernel launches from (time, correlation)."""
    return LAUNCHES.frame(
        {"rank": [0] * len(rows), "ts_ns": [r[0] for r in rows], "dur_ns": [1] * len(rows),
         "name": ["cudaLaunchKernel"] * len(rows), "correlation": [r[1] for r in rows]}
    )  # fmt: skip


def test_profiler_steps_win_over_other_marks() -> None:
    marks = ranges(
        ("iteration 4", 0, 50, 4, "step"), ("ProfilerStep#7", 10, 40, 7, "step"), ("x", 0, 9, None, "other")
    )
    host = host_steps(marks)
    assert host.select("step", "ts_ns", "dur_ns", "source").rows() == [(7, 10, 30, "ProfilerStep")]


def test_a_step_range_that_reaches_into_the_next_one_is_cut_there() -> None:
    host = host_steps(ranges(("ProfilerStep#1", 0, 120, 1, "step"), ("ProfilerStep#2", 100, 200, 2, "step")))
    assert host["dur_ns"].to_list() == [100, 100]


def test_without_marks_the_optimizer_ends_the_steps_and_both_ends_are_parts() -> None:
    marks = ranges(
        ("forward", 0, 20, None, "other"),
        ("Optimizer.step#Muon.step", 20, 25, None, "phase"),
        ("Optimizer.step#Adam.step", 26, 30, None, "phase"),
        ("Optimizer.step#Muon.step", 120, 125, None, "phase"),
        ("Optimizer.step#Adam.step", 126, 130, None, "phase"),
        ("forward", 131, 150, None, "other"),
    )
    host = host_steps(marks)
    assert host.select("ts_ns", "dur_ns", "whole").rows() == [
        (0, 30, False),
        (30, 100, True),
        (130, 20, False),
    ]


def test_an_optimizer_seen_once_marks_nothing() -> None:
    assert len(host_steps(ranges(("Optimizer.step#Adam.step", 20, 25, None, "phase")))) == 0


def test_a_launch_belongs_to_the_step_whose_host_range_contains_it() -> None:
    host = host_steps(ranges(("ProfilerStep#1", 0, 100, 1, "step"), ("ProfilerStep#2", 100, 200, 2, "step")))
    found = step_of_launch(host, pl.Series([-1, 0, 99, 100, 199, 200, None], dtype=pl.Int64))
    assert found.to_list() == [None, 1, 1, 2, 2, None, None]


def test_device_windows_tile_from_first_start_to_first_start_and_end_with_the_last_work() -> None:
    host = host_steps(ranges(("ProfilerStep#1", 0, 100, 1, "step"), ("ProfilerStep#2", 100, 200, 2, "step")))
    # work of step 1 still runs when step 2 begins on another stream, and step 2 runs past its host range
    work = ops((50, 130, 1, 1), (140, 180, 1, 2), (160, 170, 2, 3), (200, 390, 2, 4), (395, 500, None, 5))
    steps = device_steps(host, work, launches((10, 1), (20, 2), (110, 3), (120, 4)))
    assert steps.select("step", "ts_ns", "dur_ns", "op_count", "status").rows() == [
        (1, 50, 110, 2, "complete"),
        (2, 160, 230, 2, "complete"),
    ]


def test_a_step_whose_launches_left_no_device_work_is_partial() -> None:
    host = host_steps(ranges(("ProfilerStep#1", 0, 100, 1, "step"), ("ProfilerStep#2", 100, 200, 2, "step")))
    work = ops((50, 60, 1, 1), (160, 170, 2, 3))
    steps = device_steps(host, work, launches((10, 1), (110, 3), (120, 4), (130, 5)))
    assert steps["status"].to_list() == ["complete", "partial"]


def test_long_leading_steps_are_warmup_and_long_later_ones_are_not() -> None:
    marks = [(f"ProfilerStep#{n}", 100 * n, 100 * n + 100, n, "step") for n in range(5)]
    starts = [0, 900, 1000, 1100, 1900]
    work = ops(*[(start, start + 10, n, n) for n, start in enumerate(starts)])
    steps = device_steps(host_steps(ranges(*marks)), work, launches(*[(100 * n + 1, n) for n in range(5)]))
    assert steps["dur_ns"].to_list() == [900, 100, 100, 800, 10]
    assert steps["status"].to_list() == ["warmup", "complete", "complete", "complete", "complete"]
