"""The same run, as PyTorch's profiler writes it and as Nsight Systems exports it, gets the same answers.

What an export cannot tell, and what is therefore not compared:

- names, descriptions and members of process groups, hence the parallelism axis where no range tells it
- sequence numbers of collectives, element types, and how many rows of an all-to-all went to which peer
- source and destination of a transfer; NCCL records only what a rank really sends or receives, PyTorch the
  tensor in both directions, so the bytes of sends and receives differ
- how many ranks take part, and hence what all of them together put in or get out, where no payload of NCCL
  says so: other transports, communicators older than the recording, exports without blobs
- which collective a kernel of sends and receives is, where its launch was not recorded
- ``module``, where NCCL's own range around a launch takes the place of PyTorch's
- the order of ops that is left to the file, hence their numbers
- the size of the job
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.synth import Capture, Clock, LateStart, Workload, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.run import Run

PLAN = Workload(
    ranks=2,
    ranks_per_host=4,
    expert_parallel=2,
    steps=2,
    microbatches=2,
    layers=1,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
)
LATE = Capture(late_starts=(LateStart(1, 0.5),), dropped_share=0.05)
WORKLOADS = {
    "all-to-all over NCCL": replace(PLAN, ranks=4, expert_parallel=4),
    "two hosts, two clocks": replace(
        PLAN, ranks_per_host=1, clocks=(Clock(), Clock(offset_ns=-123_457, drift_ppm=31.0))
    ),
    "tensor parallel": replace(PLAN, ranks=4, tensor_parallel=2),
    "pipeline": replace(PLAN, ranks=4, pipeline_parallel=2, layers=2),
    "1F1B overlap": replace(PLAN, overlap="1f1b"),
    "DeepEP": replace(PLAN, transport="deepep"),
    "copy engines": replace(PLAN, transport="copy_engine"),
    "graphs": replace(PLAN, graphs=True),
    "no metadata": replace(PLAN, capture=Capture(metadata=False)),
    "late start, dropped rows": replace(PLAN, capture=LATE),
    "hostile names": replace(PLAN, traps=True),
}
OPS = (
    "rank", "device", "stream", "ts_ns", "dur_ns", "kind", "name", "correlation", "graph_node_id", "grid_blocks",
    "bytes", "copy_kind", "category", "class", "collective", "role", "subrole", "rule_id", "launch_ts_ns", "step",
    "microbatch", "layer", "phase",
)  # fmt: skip
COLLECTIVES = (
    "rank", "device", "stream", "ts_ns", "dur_ns", "collective", "role", "subrole", "step", "microbatch", "layer", "phase",
)  # fmt: skip


def write_sqlite(workload: Workload, folder: Path) -> None:
    write(workload, folder, trace_format="nsys", compress=False)


def write_sqlite_gz(workload: Workload, folder: Path) -> None:
    write(workload, folder, trace_format="nsys")


def write_parquet(workload: Workload, folder: Path) -> None:
    """One directory per rank, one Parquet file per table."""
    *databases, _ = write(workload, folder, trace_format="nsys", compress=False)
    for path in databases:
        target = folder / f"{path.stem}_pqtdir"
        target.mkdir()
        with closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                cursor = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - our own table
                names = [column[0] for column in cursor.description]
                rows = cursor.fetchall()
                frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
                frame.write_parquet(target / f"{table}.parquet")
        path.unlink()


EXPORTS: dict[str, Callable[[Workload, Path], None]] = {
    "sqlite": write_sqlite,
    "sqlite.gz": write_sqlite_gz,
    "parquetdir": write_parquet,
}


@dataclass(frozen=True)
class Pair:
    """One run, read from both profilers' files."""

    kineto: Run
    nsys: Run


@pytest.fixture(
    scope="module",
    params=[(name, "sqlite") for name in WORKLOADS]
    + [("all-to-all over NCCL", kind) for kind in EXPORTS if kind != "sqlite"],
    ids=" as ".join,
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, kind = request.param
    folder = tmp_path_factory.mktemp("pair")
    write(WORKLOADS[name], folder / "kineto", compress=False)
    EXPORTS[kind](WORKLOADS[name], folder / "nsys")
    return Pair(
        tv.load(folder / "kineto", cache=None, workers=1), tv.load(folder / "nsys", cache=None, workers=1)
    )


def rows(run: Run, table: str, columns: tuple[str, ...]) -> pl.DataFrame:
    """Rows in an order that no file decides; categories as text, because their codes are the file's."""
    frame = run.table(table).select(columns).collect().with_columns(pl.col(pl.Categorical).cast(pl.String))
    return frame.sort("rank", "ts_ns", "stream", "dur_ns")


def test_device_work_has_the_same_times_meanings_and_places(pair: Pair) -> None:
    expected = rows(pair.kineto, "ops", OPS)
    assert len(expected)
    assert_frame_equal(rows(pair.nsys, "ops", OPS), expected)


def test_steps_are_the_same(pair: Pair) -> None:
    expected = pair.kineto.table("steps").collect()
    assert len(expected)
    assert_frame_equal(pair.nsys.table("steps").collect(), expected)


def test_collectives_are_the_same(pair: Pair) -> None:
    expected, found = (rows(run, "collectives", COLLECTIVES) for run in (pair.kineto, pair.nsys))
    assert len(expected)
    assert_frame_equal(found, expected)


def test_sizes_are_the_same_wherever_an_export_tells_them(pair: Pair) -> None:
    columns = (*COLLECTIVES, "group_size", "in_bytes", "out_bytes")
    expected, found = (rows(run, "collectives", columns) for run in (pair.kineto, pair.nsys))
    told = found["group_size"].is_not_null() & (expected["collective"] != "send_recv")
    assert_frame_equal(found.filter(told), expected.filter(told))


@pytest.mark.parametrize("by", [("rank",), ("rank", "step")], ids=" and ".join)
def test_the_breakdown_is_the_same(pair: Pair, by: tuple[str, ...]) -> None:
    expected, found = (tv.breakdown(run, by=by, steps="all").frame for run in (pair.kineto, pair.nsys))
    assert len(expected)
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("by", [("collective",), ("role",), ("rank", "collective")], ids=" and ".join)
def test_the_overlap_is_the_same(pair: Pair, by: tuple[str, ...]) -> None:
    expected, found = (tv.overlap(run, by=by, steps="all").frame for run in (pair.kineto, pair.nsys))
    assert len(expected)
    assert_frame_equal(found, expected)
