"""Every preset, read back by traceview itself: what it finds must be what the generator knows."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pytest

from traceview.api import breakdown, load
from traceview.synth import PRESETS, WRITERS, simulate
from traceview.synth.figures import rank_figures

if TYPE_CHECKING:
    from pathlib import Path

SIZE_LIMIT = 500_000
MEASURES = (
    "window_ns",
    "compute_ns",
    "comm_ns",
    "hidden_comm_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
    "idle_ns",
)
LOOKED_AT = (0, 3, 6)
"""Ranks that are read: enough to meet every late start and both pipeline stages."""


@pytest.mark.parametrize("name", [name for name, workload in PRESETS.items() if workload.ranks <= 64])
def test_traceview_finds_in_a_preset_what_the_generator_knows(name: str, tmp_path: Path) -> None:
    timeline = simulate(PRESETS[name])
    for rank in LOOKED_AT:
        (tmp_path / f"rank{rank}.json").write_text(WRITERS["kineto"](timeline, rank), encoding="utf-8")
    run = load(tmp_path)
    assert run.ranks == LOOKED_AT
    known = {rank: rank_figures(timeline, rank) for rank in LOOKED_AT}
    for row in breakdown(run, steps="all").frame.iter_rows(named=True):
        expected = known[row["rank"]]["all"]
        assert {name: row[name] for name in MEASURES} == {name: expected[name] for name in MEASURES}
    by_step = breakdown(run, by=("rank", "step")).frame
    assert len(by_step) > len(LOOKED_AT)
    for row in by_step.iter_rows(named=True):
        expected = known[row["rank"]]["steps"][str(row["step"])]
        assert {name: row[name] for name in MEASURES} == {name: expected[name] for name in MEASURES}
    for trace in run.traces:
        found = Counter(trace.table("ops")["category"].cast(pl.String).to_list())
        if PRESETS[name].graphs:  # a replayed exchange leaves nothing that says what it was
            found["all_to_all"] = found.pop("p2p_or_a2a")
        assert dict(found) == known[trace.facts.rank or 0]["all"]["op_count_by_category"]


@pytest.mark.parametrize("name", [name for name, workload in PRESETS.items() if workload.ranks == 8])
def test_presets_of_eight_ranks_stay_small(name: str) -> None:
    timeline = simulate(PRESETS[name])
    sizes = [len(gzip.compress(WRITERS["kineto"](timeline, rank).encode())) for rank in (0, 7)]
    assert sum(sizes) * 4 < SIZE_LIMIT
