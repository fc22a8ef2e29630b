"""Who shares exposed time: sums that are the ledger's and the truth's, and a moment by moment oracle."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

import traceview as tv
from traceview.analyzers.several import JOINED
from traceview.synth import write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("preset", ["ep8-nccl-shared", "tp2-ep4", "ep4-two-hosts", "ep8-deepep-overlap"])
def test_shared_time_is_that_of_the_ledger_and_of_the_truth(preset: str, tmp_path: Path) -> None:
    write(preset, tmp_path)
    run = tv.load(tmp_path)
    rows = tv.analyze(run, "several", by=("rank", "step")).frame
    ledger = tv.ledger(run, by=("rank", "step")).frame.filter(pl.col("part") == "several")
    for rank in json.loads((tmp_path / "truth.json").read_text())["ranks"]:
        for step, figures in rank["steps"].items():
            here = (pl.col("rank") == rank["rank"]) & (pl.col("step") == int(step))
            mine = rows.filter(here)
            assert mine["time_ns"].sum() == figures["exposed_by_several_ns"]
            assert mine["time_ns"].sum() == ledger.filter(here)["time_ns"].sum()
            mixed = mine.filter(pl.col("axes").str.contains(JOINED, literal=True))["time_ns"].sum()
            assert mixed == figures["exposed_comm_by_axis_ns"].get("several", 0)


def test_sets_of_axes_are_told_apart_moment_by_moment(tmp_path: Path) -> None:
    write("tp2-ep4", tmp_path)
    run = tv.load(tmp_path, ranks=[3])
    [step, *_] = run.steps.filter(pl.col("status") == "complete").collect().to_dicts()
    begin, end = step["ts_ns"], step["ts_ns"] + step["dur_ns"]
    ops = run.ops.select("op", "class", "ts_ns", "dur_ns").collect()
    axis = dict(run.collectives.select("op", pl.col("axis").cast(pl.String)).collect().rows())
    edges = sorted(
        {begin, end}
        | {t for op in ops.to_dicts() for t in (op["ts_ns"], op["ts_ns"] + op["dur_ns"]) if begin < t < end}
    )
    expected: dict[str, int] = {}
    for left, right in pairwise(edges):
        active = ops.filter((pl.col("ts_ns") <= left) & (pl.col("ts_ns") + pl.col("dur_ns") > left))
        comm = [axis[op] for op in active["op"] if op in axis]
        if len(comm) > 1 and not active["class"].cast(pl.String).is_in(["compute", "fused"]).any():
            order = ("ep", "tp", "etp", "dp", "edp", "pp", "cp", "world", "unknown")
            axes = JOINED.join(name for name in order if name in comm)
            expected[axes] = expected.get(axes, 0) + right - left
    found = tv.analyze(run, "several", by=("step",), steps=range(step["step"], step["step"] + 1)).frame
    assert dict(found.select("axes", "time_ns").rows()) == expected
    assert expected
