"""Device work gets its context from the host range around its launch."""

from __future__ import annotations

import polars as pl

from traceview.attribution import with_context, with_launch
from traceview.schema import LAUNCHES, OPS, RANGES


def launches(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Calls from (time, correlation, thread)."""
    return LAUNCHES.frame(
        {"rank": [0] * len(rows), "pid": [1] * len(rows), "tid": [r[2] for r in rows], "ts_ns": [r[0] for r in rows],
         "dur_ns": [1] * len(rows), "name": ["cudaLaunchKernel"] * len(rows), "correlation": [r[1] for r in rows]}
    )  # fmt: skip


def work(*correlations: int | None, step: int | None = 1) -> pl.DataFrame:
    """Device ops that run long after everything else, so device time could not attribute them."""
    n = len(correlations)
    return OPS.frame(
        {"op": range(n), "rank": [0] * n, "device": [0] * n, "ts_ns": [10_000 + i for i in range(n)], "dur_ns": [1] * n,
         "name": ["k"] * n, "kind": ["kernel"] * n, "category": ["gemm"] * n, "class": ["compute"] * n,
         "rule_id": ["r"] * n, "correlation": pl.Series(correlations, dtype=pl.Int64),
         "step": pl.Series([step] * n, dtype=pl.Int64)}
    ).drop("launch_ts_ns", "microbatch", "layer", "phase", "module")  # fmt: skip


def ranges(*rows: dict[str, object]) -> pl.DataFrame:
    """Ranges from dicts with start, end and what they tell; on thread 1 unless said otherwise."""
    plain = [
        {"rank": 0, "pid": 1, "tid": 1, "name": "n", "raw_name": "n", "kind": "other"} | row for row in rows
    ]
    frame = pl.DataFrame(
        [{key: value for key, value in row.items() if key not in {"start", "end"}} for row in plain]
    )
    start = pl.Series("ts_ns", [row["start"] for row in rows])
    end = pl.Series("end", [row["end"] for row in rows])
    return RANGES.frame(frame.with_columns(start, dur_ns=end - start))


def test_one_graph_launch_starts_many_ops_and_orphans_stay() -> None:
    found = with_launch(work(5, 5, None, 9), launches((100, 5, 1)))
    assert found["launch_ts_ns"].to_list() == [100, 100, None, None]


def test_of_two_calls_with_one_correlation_the_outer_one_counts() -> None:
    found = with_launch(work(5), launches((104, 5, 1), (100, 5, 1)))
    assert found["launch_ts_ns"].to_list() == [100]


def test_each_attribute_comes_from_the_innermost_range_that_knows_it() -> None:
    around = ranges(
        {"start": 0, "end": 100, "layer": 3, "phase": "forward"},
        {"start": 10, "end": 60, "part": "dispatch"},
        {"start": 20, "end": 40, "microbatch": 7},
    )
    ops = with_context(with_launch(work(1, 2, 3), launches((30, 1, 1), (50, 2, 1), (70, 3, 1))), around)
    assert ops.select("layer", "phase", "microbatch", "module").rows() == [
        (3, "forward", 7, "dispatch"),
        (3, "forward", None, "dispatch"),
        (3, "forward", None, None),
    ]


def test_a_launch_from_another_thread_takes_what_its_own_thread_does_not_tell() -> None:
    around = ranges(
        {"start": 0, "end": 100, "layer": 3, "tid": 1},
        {"start": 20, "end": 60, "phase": "backward", "tid": 2},
        {"start": 0, "end": 100, "layer": 9, "pid": 8},
    )
    ops = with_context(with_launch(work(1), launches((30, 1, 2))), around)
    assert ops.select("layer", "phase").row(0) == (3, "backward")


def test_unnamed_work_is_forward_only_in_a_step_that_shows_a_backward() -> None:
    calls = launches((30, 1, 1), (200, 2, 1))
    shown = ranges({"start": 150, "end": 300, "phase": "backward"})
    assert with_context(with_launch(work(1, 2), calls), shown)["phase"].to_list() == ["forward", "backward"]
    silent = ranges({"start": 150, "end": 300, "layer": 1})
    assert with_context(with_launch(work(1, 2), calls), silent)["phase"].to_list() == [None, None]
    no_step = with_context(with_launch(work(1, 2, step=None), calls), shown)
    assert no_step["phase"].to_list() == [None, "backward"]
