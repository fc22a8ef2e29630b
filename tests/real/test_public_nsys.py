"""Public Nsight Systems reports: figures computed another way, and no file that is not understood.

The reference figures were computed from the reports' SQLite by independent interval-union code.
"""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.errors import UnknownFormatError
from traceview.parsers.nsys import PARSER
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.trace import Trace

pytestmark = pytest.mark.traces

LOADED = {
    "Fuser/df8f397e_report1.nsys2024.6.2.sqlite.gz": 1,
    "Fuser/f6ab0c34_report1.nsys2024.6.2.sqlite.gz": 1,
    "alpa-fork/alpa_mem.2023.4.4.arrows.gz": 1,
    "alpa-fork/alpa_mem.2023.4.4_arwdir": 1,
    "alpa-fork/alpa_mem.2023.4.4_pqtdir": 1,
    "alpa-fork/alpa_mem.export2022.4.2.sqlite.gz": 1,
    "alpa-fork/alpa_mem.export2023.4.4.sqlite.gz": 1,
    "alpa-fork/alpa_r1.2023.4.4.arrows.gz": 1,
    "alpa-fork/alpa_r1.export2022.4.2.sqlite.gz": 1,
    "alpa-fork/alpa_r1.export2023.4.4.sqlite.gz": 1,
    "alpa-fork/alpa_r2.export2022.4.2.sqlite.gz": 1,
    "alpa-fork/alpa_r2.export2023.4.4.sqlite.gz": 1,
    "nsys-ai/h100_2gpu_1s.sqlite.gz": 2,
    "nsys-ai/mfu_2gpu_before.sqlite.gz": 2,
    "nsys-ai/mock.sqlite.gz": 1,
} | {f"JAX-Toolbox/pax_fsdp4_4proc_proc{n}/nvtx_gpu_proj_trace/trace.parquet": 1 for n in range(4)}
"""Every report, and how many processes of it used a device."""

REFUSED = {
    "f6ab0c34_report1.nsys2024.6.2.nsys-rep": r"Nsight Systems 2024\.6\.2",
    "header64.nsys2025.5.1.nsys-rep": r"Nsight Systems 2025\.5\.1",
    "alpa_r1.captured2022.nsys-rep": r"Nsight Systems 2021 to 2023",
    "device-metadata.parquet": "nsys-jax noted about a device",
    "system-metadata.parquet": "a Parquet file",
    "thread-metadata.parquet": "a Parquet file",
    "files.parquet": "a Parquet file",
    "report_nvtx_pushpop_trace.csv.xz": "xz-compressed",
    "nvtx_gpu_proj_trace.nsys-analysis": "JSON without trace events",
}
"""Files beside them, and what each must be called."""


def _inputs(root: Path) -> list[str]:
    """Every file below ``root``, a directory of tables counting as one."""
    files = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    folders = {name for name in LOADED if (root / name).is_dir()}
    inside = tuple(f"{folder}/" for folder in folders)
    return sorted({*folders, *(name for name in files if not name.startswith(inside))})


def test_every_public_file_is_loaded_or_refused_by_its_name(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # an nsys would export what is to be refused here
    root = traces / "nsys"
    places = [name for name in _inputs(root) if name not in {"SHA256SUMS", "SOURCES.md"}]
    assert set(LOADED) <= set(places)
    for name in places:
        if name in LOADED:
            run = tv.load(root / name)
            assert len(run.ranks) == LOADED[name], name
            total = tv.breakdown(run, by=(), steps="all").frame
            assert total["window_ns"][0] == (
                total["compute_ns"][0]
                + total["exposed_comm_ns"][0]
                + total["exposed_copy_ns"][0]
                + total["idle_ns"][0]
            )
        else:
            with pytest.raises(UnknownFormatError, match=REFUSED[name.rsplit("/", 1)[-1]]):
                tv.load(root / name)


@pytest.mark.parametrize(
    ("name", "device", "reference"),
    [
        ("mfu_2gpu_before", 0, (1993, 253690832, 17172652, 273817787, 60111541307, 60411390119)),
        ("mfu_2gpu_before", 1, (2017, 256095624, 8229100, 267275916, 60111513113, 60410174664)),
        ("h100_2gpu_1s", 0, (1721, 22385163, 0, 962890247, 155360295935, 156320780944)),
        ("h100_2gpu_1s", 1, (1721, 22444359, 0, 962810705, 155360368270, 156320675933)),
    ],
)
def test_figures_equal_independent_interval_unions(
    traces: Path, name: str, device: int, reference: tuple[int, ...]
) -> None:
    """Kernels; their compute and NCCL unions; the union of all work; first start and last end of kernels."""
    path = traces / "nsys/nsys-ai" / f"{name}.sqlite.gz"
    run = tv.load(path)
    [row] = tv.breakdown(run, steps="all").frame.filter(pl.col("device") == device).to_dicts()
    assert row["hidden_comm_ns"] == 0
    ops = run.ops.filter((pl.col("device") == device) & (pl.col("kind") == "kernel")).collect()
    [(started,)] = _query(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    starts, ends = ops["ts_ns"] - started, ops["ts_ns"] + ops["dur_ns"] - started
    busy = row["window_ns"] - row["idle_ns"]
    found = (len(ops), row["compute_ns"], row["comm_ns"], busy, starts.min(), ends.max())
    assert found == reference


def _query(path: Path, query: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(gzip.decompress(path.read_bytes()))
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    "name", ["nsys-ai/mfu_2gpu_before", "alpa-fork/alpa_mem.export2022.4.2", "nsys-ai/h100_2gpu_1s"]
)
def test_device_work_reaches_the_calls_that_a_join_by_hand_finds(traces: Path, name: str) -> None:
    path = traces / "nsys" / f"{name}.sqlite.gz"
    rows = _query(path, "SELECT globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL")
    calls = set(_query(path, "SELECT globalTid & ~16777215, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
    expected = sum(row in calls for row in rows)
    found = (
        tv.load(path).ops.filter(pl.col("kind") == "kernel").select(pl.col("launch_ts_ns").count()).collect()
    )
    assert found.item() == expected


def test_mfu_kernels_reach_their_launches_and_their_all_to_all(traces: Path) -> None:
    run = tv.load(traces / "nsys/nsys-ai/mfu_2gpu_before.sqlite.gz")
    kernels = run.ops.filter(pl.col("kind") == "kernel").collect()
    assert (len(kernels), kernels["launch_ts_ns"].count()) == (4010, 3986)
    found = run.collectives.collect()
    assert found["collective"].cast(pl.String).value_counts().sort("count").rows() == [
        ("unknown", 2),
        ("all_to_all", 64),
    ]
    # the two were launched before the report begins
    undecided = found.filter(pl.col("resolved_by") == "unresolved").join(kernels, on=["rank", "op"])
    assert undecided["launch_ts_ns"].null_count() == 2
    answer = tv.all_to_all(run, by=()).frame
    assert answer["op_count"][0] == 64


EXPORTS_OF_ONE_REPORT = [
    "alpa_mem.export2022.4.2.sqlite.gz",
    "alpa_mem.export2023.4.4.sqlite.gz",
    "alpa_mem.2023.4.4.arrows.gz",
    "alpa_mem.2023.4.4_arwdir",
    "alpa_mem.2023.4.4_pqtdir",
]


def _parsed(path: Path) -> Trace:
    [trace] = PARSER.parse(Source(path))
    return trace


@pytest.mark.parametrize("name", EXPORTS_OF_ONE_REPORT[1:])
def test_every_export_of_one_report_gives_the_same_tables(traces: Path, name: str) -> None:
    folder = traces / "nsys/alpa-fork"
    expected, found = _parsed(folder / EXPORTS_OF_ONE_REPORT[0]), _parsed(folder / name)
    for table in ("ops", "launches", "syncs", "ranges", "devices"):
        assert_frame_equal(found.table(table), expected.table(table), check_row_order=table != "devices")
    assert (found.facts.host, found.facts.pid) == (expected.facts.host, expected.facts.pid)


def test_nccl_ranges_are_told_by_their_domain(traces: Path) -> None:
    trace = _parsed(traces / "nsys/alpa-fork/alpa_r1.export2022.4.2.sqlite.gz")
    ranges = trace.table("ranges").select(pl.col("domain", "raw_name").cast(pl.String)).rows()
    assert ranges == [("NCCL", "ncclCommInitRank"), ("NCCL", "ncclCommDestroy")]


def test_three_of_four_jax_ranks_wait_for_the_first(traces: Path) -> None:
    run = tv.load(traces / "nsys/JAX-Toolbox")
    assert run.ranks == (0, 1, 2, 3)
    assert {trace.facts.rank_source for trace in run.traces} == {"XLA device name"}
    for rank in run.ranks:
        path = traces / f"nsys/JAX-Toolbox/pax_fsdp4_4proc_proc{rank}/nvtx_gpu_proj_trace/trace.parquet"
        rows = pl.read_parquet(path).filter(pl.col("Name").str.contains("hlo_op=(?:all-|reduce-scatter)"))
        edges = sorted((s, s + d) for s, d in rows.select("Projected Start", "Projected Duration").rows())
        assert all(left[1] <= right[0] for left, right in pairwise(edges))  # so their sum is their union
        [row] = tv.breakdown(run, steps="all").frame.filter(pl.col("rank") == rank).to_dicts()
        assert row["comm_ns"] == rows["Projected Duration"].sum()
        assert len(rows) == 120
    busy = tv.breakdown(run, steps="all").frame["comm_ns"].to_list()
    assert [round(ns / 1e9, 2) for ns in busy] == [0.05, 6.39, 7.88, 8.78]
    split = tv.collective_latency(run, by=("rank",)).frame.sort("rank")
    assert (split["wait_ratio"] > 0.99).to_list() == [False, True, True, True]
    # without the waiting, the collectives take all ranks equally long
    moving = split["transfer_ns"].to_list()
    assert max(moving) < 1.02 * min(moving)
    assert tv.stragglers(run).frame.sort("blamed_ns", nulls_last=False)["rank"][-1] == 0
