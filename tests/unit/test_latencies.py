"""Distributions of durations: against numpy on synthetic runs, and the page on frames made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import traceview as tv
from traceview.analyzers.latencies import QUANTILES, RESULT
from traceview.reports import latencies as pages
from traceview.reports.about import About
from traceview.reports.layout import Grid, Verdict
from traceview.run import only_ranks
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.run import Run

ABOUT = About("job", (0, 1), 2, ("kineto",), (), ())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("ep8")
    write(PRESETS["ep8-nccl"], folder)
    return tv.load(folder)


def test_quantiles_are_those_of_the_kernels_durations(run: Run) -> None:
    rows = tv.latencies(run, by=("role", "phase")).frame
    ops = run.collectives.filter(pl.col("collective") == "all_to_all").collect()
    steps = tv.breakdown(run, by=("step",)).frame["step"]
    ops = ops.filter(pl.col("step").is_in(steps.implode()))
    for (role, phase), group in ops.group_by("role", "phase"):
        found = rows.filter((pl.col("role") == str(role)) & (pl.col("phase") == str(phase)))
        assert found["quantile"].to_list() == list(QUANTILES)
        assert found["op_count"].unique().to_list() == [len(group)]
        assert np.allclose(found["dur_ns"], np.quantile(group["dur_ns"], QUANTILES), rtol=1e-12)


def test_medians_and_counts_are_those_of_collectives(run: Run) -> None:
    known = tv.collective_latency(run, by=("axis", "collective", "role")).frame
    rows = tv.latencies(run, by=("axis", "collective", "role")).frame.filter(pl.col("quantile") == 0.5)
    both = known.join(rows, on=["axis", "collective", "role"])
    assert len(both) == len(known) == len(rows)
    assert both["op_count"].to_list() == both["op_count_right"].to_list()
    assert np.allclose(both["dur_p50_ns"], both["dur_ns_right"], atol=0.5)


def test_quantiles_never_fall_and_a_lone_rank_has_no_waiting(run: Run) -> None:
    rows = tv.latencies(run, by=()).frame
    assert (rows["dur_ns"].diff().drop_nulls() >= 0).all()
    assert rows["wait_ns"].null_count() == 0
    alone = tv.latencies(only_ranks(run, {0})).frame
    assert alone["wait_ns"].count() == 0
    assert alone["split_count"].sum() == 0


def _rows(role: str, durations: dict[float, float]) -> pl.DataFrame:
    given = [
        {
            "collective": "all_to_all",
            "role": role,
            "quantile": quantile,
            "op_count": 10,
            "split_count": 0,
            "dur_ns": ns,
        }
        for quantile, ns in durations.items()
    ]
    return RESULT.frame(pl.DataFrame(given))


def test_the_page_names_the_longest_tail() -> None:
    rows = pl.concat(
        [
            _rows("dispatch", {0.0: 1e6, 0.5: 2e6, 0.9: 3e6, 0.99: 8e6, 0.999: 9e6, 1.0: 9e6}),
            _rows("combine", {0.0: 1e6, 0.5: 4e6, 0.9: 4e6, 0.99: 4e6, 0.999: 4e6, 1.0: 4e6}),
        ]
    )
    blocks = pages.page(ABOUT, rows, ())
    (grid,) = [block for block in blocks if isinstance(block, Grid)]
    assert grid.rows[0] == (
        "all_to_all",
        "combine",
        "10",
        "1.00",
        "4.00",
        "4.00",
        "4.00",
        "4.00",
        "4.00",
        "–",
    )
    assert isinstance(blocks[-1], Verdict)
    assert blocks[-1].text == (
        "The longest tail has all_to_all dispatch: its p99 of 8.00 ms is 4.00 times the median of 2.00 ms."
    )
    nothing = pages.page(ABOUT, RESULT.empty(), ())
    assert isinstance(nothing[-1], Verdict)
    assert nothing[-1].text == pages.EMPTY
