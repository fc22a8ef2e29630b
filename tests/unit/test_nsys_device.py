"""Device work, launches and waits of Nsight Systems reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from nsys_reports import EPOCH, PID, Row, Strings, codes, global_id, kernel, launch, parse, report, texts

if TYPE_CHECKING:
    from pathlib import Path


def test_a_kernel_keeps_its_full_name_grid_and_launch(tmp_path: Path) -> None:
    names = Strings()
    rows = [
        kernel(names, 100, 200, name="void f<int>(T1)", graphNodeId=12),
        kernel(names, 300, 300, demangledName=None, correlationId=0),
        kernel(names, 400, 410, demangledName=999, shortName=999, streamId=None, gridX=None),
    ]
    trace = parse(report(CUPTI_ACTIVITY_KIND_KERNEL=rows, StringIds=names.rows()), tmp_path)
    ops = trace.table("ops")
    assert texts(ops, "name") == ["void f<int>(T1)", "short", "(unnamed kernel)"]
    assert ops["ts_ns"].to_list() == [EPOCH + 100, EPOCH + 300, EPOCH + 400]
    assert ops["dur_ns"].to_list() == [100, 0, 10]
    assert ops["grid_blocks"].to_list() == [24, 24, None]
    assert ops["correlation"].to_list() == [1, None, 1]
    assert ops["graph_node_id"].to_list() == [12, None, None]
    assert ops["stream"].to_list() == [7, 7, None]


@pytest.mark.parametrize(
    ("copy_kind", "ends", "short", "name"),
    [
        (1, (1, 2), "HtoD", "Memcpy HtoD (Pinned -> Device)"),
        (2, (2, 0), "DtoH", "Memcpy DtoH (Device -> Pageable)"),
        (8, (2, 2), "DtoD", "Memcpy DtoD (Device -> Device)"),
        (10, (2, 2), "PtoP", "Memcpy PtoP (Device -> Device)"),
        (11, (4, 4), "HtoD", "Memcpy HtoD (Managed -> Managed)"),
        (1, (None, 2), "HtoD", "Memcpy HtoD"),
        (99, (1, 2), None, "Memcpy of unknown kind (Pinned -> Device)"),
    ],
)
def test_a_copy_says_from_where_to_where(
    tmp_path: Path, copy_kind: int, ends: tuple[int | None, int], short: str | None, name: str
) -> None:
    row = {"start": 1, "end": 9, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": global_id()}
    copy = row | {
        "bytes": 64,
        "copyKind": copy_kind,
        "srcKind": ends[0],
        "dstKind": ends[1],
        "graphNodeId": None,
    }
    ops = parse(report(CUPTI_ACTIVITY_KIND_MEMCPY=[copy]), tmp_path).table("ops")
    assert (texts(ops, "kind")[0], texts(ops, "copy_kind")[0], texts(ops, "name")[0]) == (
        "memcpy",
        short,
        name,
    )
    assert ops["bytes"].to_list() == [64, None]


def _graph(start: int, end: int) -> Row:
    return {"start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": 5, "graphId": 31} | {
        "globalPid": global_id()
    }


def test_a_graph_traced_as_a_whole_is_an_opaque_block_and_says_so(tmp_path: Path) -> None:
    trace = parse(report(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[_graph(300, 900), _graph(1000, 1400)]), tmp_path)
    assert texts(trace.table("ops"), "kind") == ["kernel", "graph", "graph"]
    assert texts(trace.table("ops"), "name")[1:] == ["CUDA graph 31"] * 2
    [text] = trace.diagnostics.filter(pl.col("code") == "nsys.graph_opaque")["text"]
    assert "2 graph replays (1.00 µs together)" in text
    assert "--cuda-graph-trace=node" in text


@pytest.mark.parametrize("key", ["CUDA_GRAPH_TRACE_OPTIONS:MODE", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"])
@pytest.mark.parametrize(("mode", "expected"), [("Graph", {"nsys.graph_unseen"}), ("Node", set())])
def test_replays_whose_work_is_missing_are_told_from_a_capture_by_nodes(
    tmp_path: Path, key: str, mode: str, expected: set[str]
) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50, name="cudaGraphLaunch_v10000", correlationId=8)],
        META_DATA_CAPTURE=[{"name": key, "value": mode}],
        StringIds=names.rows(),
    )
    assert codes(parse(tables, tmp_path)) == expected


def test_calls_are_kept_if_they_launch_or_wait_and_lose_only_the_version_of_the_runtime(
    tmp_path: Path,
) -> None:
    names = Strings()
    called = {
        "cudaLaunchKernel_v7000": 1, "cuLaunchKernelEx": 2, "cudaStreamSynchronize_v3020": 3, "cudaGraphLaunch_v10000": 4,
        "cuGetProcAddress_v2": 5, "cudaMalloc_v3020": 6, "cuMemcpyDtoD_v2": 0, "ncclStrange": 9,
    }  # fmt: skip
    calls = [launch(names, 10 * n, name=name, correlationId=n) for name, n in called.items()]
    rows = [kernel(names, 500, 600, correlationId=9)]
    tables = report(
        CUPTI_ACTIVITY_KIND_RUNTIME=calls, CUPTI_ACTIVITY_KIND_KERNEL=rows, StringIds=names.rows()
    )
    launches = parse(tables, tmp_path).table("launches")
    kept = dict(zip(texts(launches, "name"), launches["correlation"].to_list(), strict=True))
    assert kept == {
        "cudaLaunchKernel": 1, "cuLaunchKernelEx": 2, "cudaStreamSynchronize": 3, "cudaGraphLaunch": 4,
        "cuMemcpyDtoD_v2": None, "ncclStrange": 9,
    }  # fmt: skip
    assert set(launches["pid"]) == {PID}
    assert set(launches["tid"]) == {9}


@pytest.mark.parametrize(
    ("sync_type", "stream", "expected"),
    [(1, 4294967295, ("Event Sync", None)), (2, 7, ("Stream Wait Event", 7)), (3, 7, ("Stream Sync", 7)),
     (4, 4294967295, ("Context Sync", None)), (77, 7, ("Sync", 7))],
)  # fmt: skip
def test_waits_are_no_device_work(
    tmp_path: Path, sync_type: int, stream: int, expected: tuple[str, int | None]
) -> None:
    row = {
        "start": 5,
        "end": 6,
        "deviceId": 0,
        "streamId": stream,
        "correlationId": 2,
        "globalPid": global_id(),
    }
    trace = parse(report(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[row | {"syncType": sync_type}]), tmp_path)
    syncs = trace.table("syncs")
    assert (texts(syncs, "name")[0], syncs["stream"][0]) == expected
    assert len(trace.table("ops")) == 1
