"""A real training run over four processes, recorded by the shipped example, analysed end to end."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import traceview as tv

if TYPE_CHECKING:
    from traceview.run import Run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "record_tiny_moe.py"
# what the example trains: see its constants
RANKS, LAYERS, TOKENS, HIDDEN, STEPS = 4, 2, 512, 64, 5
FLOAT_BYTES = 4

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(made)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return tv.load(folder)


def test_every_rank_writes_one_file_and_nothing_half_written_stays(folder: Path, run: Run) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        f"rank{rank}_trace.json.gz" for rank in range(RANKS)
    ]
    assert (run.ranks, run.world_size) == ((0, 1, 2, 3), RANKS)


def test_all_work_belongs_to_a_step_and_a_phase(run: Run) -> None:
    ops = run.ops.collect()
    assert ops.select(pl.col("step", "phase").null_count()).row(0) == (0, 0)
    assert set(ops["phase"]) == {"forward", "backward", "optimizer"}
    assert ops.group_by("rank").agg(pl.col("step").n_unique())["step"].to_list() == [STEPS] * RANKS


def test_exchanges_are_told_apart_by_layer_phase_and_role(run: Run) -> None:
    moving = run.collectives.collect().filter(pl.col("role").is_not_null())
    kinds = moving.group_by("layer", "phase", "role").len().sort("layer", "phase", "role")
    expected = [
        (layer, phase, role, RANKS * STEPS)
        for layer in range(LAYERS)
        for phase in ("forward", "backward")
        for role in ("dispatch", "combine")
        # the tokens need no gradient, so nothing flows back through the first dispatch
        if (layer, phase, role) != (0, "backward", "combine")
    ]
    assert kinds.with_columns(pl.col("phase", "role").cast(pl.String)).rows() == expected
    assert set(moving["axis"]) == {"ep"}


def test_bytes_are_those_of_the_tokens_the_example_routes(run: Run) -> None:
    collectives = run.collectives.collect()
    dispatched = collectives.filter((pl.col("role") == "dispatch") & (pl.col("phase") == "forward"))
    rows = dispatched.group_by("step", "layer").agg(
        sent=pl.col("in_bytes").sum(), received=pl.col("out_bytes").sum()
    )
    every_token_once = RANKS * TOKENS * HIDDEN * FLOAT_BYTES
    assert set(rows["sent"]) == set(rows["received"]) == {every_token_once}


def test_every_exchange_is_matched_over_all_ranks(run: Run) -> None:
    rows = tv.collective_latency(run, by=("axis", "collective", "role"), steps="all").frame
    per_step = LAYERS * 2 + (LAYERS * 2 - 1) + 4 + LAYERS  # forward, backward, router gradients, counts
    assert rows["complete_count"].sum() == rows["instance_count"].sum() == per_step * STEPS
    assert rows["wait_ns"].null_count() == 0


def test_busy_time_is_that_of_the_backends_own_ranges(folder: Path, run: Run) -> None:
    [busy] = tv.overlap(run, by=("rank",), steps="all").frame.filter(pl.col("rank") == 0)["comm_ns"].to_list()
    document = json.loads(gzip.decompress((folder / "rank0_trace.json.gz").read_bytes()))
    spans = sorted(
        (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000))
        for event in document["traceEvents"]
        if str(event.get("name")).startswith("gloo:")
    )
    covered, until = 0, 0
    for start, end in spans:
        covered += max(0, end - max(start, until))
        until = max(until, end)
    assert busy == pytest.approx(covered, abs=2 * len(spans))  # stamps are decimal microseconds
