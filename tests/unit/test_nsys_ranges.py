"""Ranges of Nsight Systems reports, and the work launched inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from nsys_reports import (
    EPOCH,
    PID,
    Strings,
    global_id,
    kernel,
    launch,
    mpi,
    nvtx,
    parse,
    report,
    texts,
)

from traceview.classify import Classifier
from traceview.prepare import prepare

if TYPE_CHECKING:
    from pathlib import Path


def test_ranges_of_all_kinds_and_nothing_else_become_ranges(tmp_path: Path) -> None:
    names = Strings()
    names("unused")
    rows = [
        nvtx(-50, 10, "opened before"),
        nvtx(20, 30, textId=names("registered"), domainId=5),
        nvtx(20, None, "MyDomain", eventType=75, domainId=5),
        nvtx(31, 39, "no create row", domainId=6),
        nvtx(40, None, "left open"),
        nvtx(41, 45, "start/end", eventType=60, endGlobalTid=global_id(tid=9)),
        nvtx(42, 46, "start/end across", eventType=60, endGlobalTid=global_id(tid=10)),
        nvtx(43, 47, "imported", eventType=70),
        nvtx(44, 48, "imported start/end", eventType=71),
        nvtx(1, None, "mark", eventType=34),
        nvtx(2, None, "category", eventType=33),
        nvtx(3, None, "thread name", eventType=39),
        nvtx(60, 70, textId=4711),
    ]
    trace = parse(report(NVTX_EVENTS=rows, StringIds=names.rows()), tmp_path)
    found = {
        name: row
        for name, *row in trace.table("ranges")
        .with_columns(pl.col("ts_ns") - EPOCH)
        .select(pl.col("raw_name", "domain").cast(pl.String), "tid", "ts_ns", "dur_ns")
        .rows()
    }
    assert found == {
        "opened before": ["default", 9, -50, 60],
        "registered": ["MyDomain", 9, 20, 10],
        "no create row": ["domain6", 9, 31, 8],
        "left open": ["default", 9, 40, 160],  # the last stamp of the report is 200
        "start/end": ["default", 9, 41, 4],
        "start/end across": ["default", None, 42, 4],
        "imported": ["default", 9, 43, 4],
        "imported start/end": ["default", 9, 44, 4],
        "": ["default", 9, 60, 10],
    }
    assert dict(trace.diagnostics.select("code", "count").rows())["nsys.range_open"] == 1


def test_emit_nvtx_loses_its_running_numbers_and_most_operators(tmp_path: Path) -> None:
    rows = [
        nvtx(1, 2, "aten::add, op_id = 17"),
        nvtx(
            3, 4, "aten::_grouped_mm, seq = 4, op_id = 18, sizes = [[8, 16], [2, 16, 4]], input_op_ids = [3]"
        ),
        nvtx(5, 6, "aten::_grouped_mm, op_id = 19"),
        nvtx(7, 8, "nccl:all_to_all, op_id = 20"),
        nvtx(9, 10, "AddmmBackward0, seq = 7, op_id = 21"),
    ]
    trace = parse(report(NVTX_EVENTS=rows), tmp_path)
    assert texts(trace.table("ranges"), "raw_name") == ["nccl:all_to_all", "AddmmBackward0"]
    host = trace.table("host_ops")
    assert texts(host, "name") == ["aten::_grouped_mm"] * 2
    assert host["shapes"].to_list() == ["[[8, 16], [2, 16, 4]]", None]


def test_work_is_attributed_through_ranges_of_its_launching_thread(tmp_path: Path) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, name="ncclDevKernel_SendRecv")],
        NVTX_EVENTS=[
            nvtx(30, 90, "iteration 3"), nvtx(40, 80, "moe_dispatch forward"),
            nvtx(45, 60, "nccl:all_to_all"), nvtx(48, 56, "ncclGroupEnd", domainId=1), nvtx(49, 55, "backward", tid=10),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50)],
        StringIds=names.rows(),
    )  # fmt: skip
    trace = prepare(parse(tables, tmp_path), Classifier.default())
    [op] = trace.table("ops").to_dicts()
    assert (op["step"], op["phase"]) == (3, "forward")
    [exchange] = trace.table("collectives").to_dicts()
    assert (exchange["collective"], exchange["resolved_by"], exchange["role"]) == (
        "all_to_all",
        "annotation",
        "dispatch",
    )


def test_calls_of_mpi_are_ranges_of_a_domain_of_their_own(tmp_path: Path) -> None:
    names = Strings()
    tables = report(
        MPI_P2P_EVENTS=[mpi(names, 10, 12, "MPI_Isend")],
        MPI_COLLECTIVES_EVENTS=[mpi(names, 13, 19, "MPI_Allreduce")],
        MPI_START_WAIT_EVENTS=[mpi(names, 20, 21, "MPI_Wait"), mpi(names, 25, 26, "?", textId=999)],
        MPI_OTHER_EVENTS=[mpi(names, 1, 3, "MPI_Init")],
        StringIds=names.rows(),
    )
    ranges = parse(tables, tmp_path).table("ranges").filter(pl.col("domain").cast(pl.String) == "MPI")
    told = ranges.select(pl.col("raw_name").cast(pl.String), pl.col("ts_ns") - EPOCH, "dur_ns", "pid", "tid")
    assert told.rows() == [
        ("MPI_Init", 1, 2, PID, 9),
        ("MPI_Isend", 10, 2, PID, 9),
        ("MPI_Allreduce", 13, 6, PID, 9),
        ("MPI_Wait", 20, 1, PID, 9),
        ("(unnamed MPI call)", 25, 1, PID, 9),
    ]
