"""Counters of Nsight Systems reports, and what nsys itself had to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_reports import EPOCH, PRIVATE, codes, global_id, memory, network, parse, parse_all, report, rich

from traceview.parsers import _nsys_counters
from traceview.units import duration

if TYPE_CHECKING:
    from pathlib import Path

    from nsys_reports import Tables


def test_gpu_metrics_of_the_devices_in_use_are_counters(tmp_path: Path) -> None:
    metrics = {1: "SMs Active [Throughput %]", 2: "GPC Clock Frequency [MHz]", 3: "Plain"}
    kinds = {0x0001_0000_0003: 3, 0x0001_0000_0005: 5}  # GPU 3 is the device in use
    described = [
        {"typeId": kind, "metricId": n, "metricName": name} for kind in kinds for n, name in metrics.items()
    ]
    samples = [
        {"timestamp": 100 + n, "typeId": kind, "metricId": n, "value": 10 * n}
        for kind in kinds
        for n in metrics
    ]
    trace = parse(report(GPU_METRICS=samples, TARGET_INFO_GPU_METRICS=described), tmp_path)
    counters = trace.table("counters").with_columns(
        pl.col("ts_ns") - EPOCH, pl.col("metric", "unit").cast(pl.String)
    )
    assert counters.select("device", "ts_ns", "metric", "unit", "value").rows() == [
        (0, 101, "SMs Active", "%", 10.0),
        (0, 102, "GPC Clock Frequency", "MHz", 20.0),
        (0, 103, "Plain", "as recorded", 30.0),
    ]
    assert "nsys.device_assumed" in codes(trace)


def test_what_nsys_complained_about_is_passed_on_without_paths(tmp_path: Path) -> None:
    events = [
        {"severity": 1, "text": "Profiling has started."},
        {"severity": 2, "text": f"Dropped 12 events, see /home/ana/{PRIVATE}.log TOKEN={PRIVATE}"},
        {"severity": 3, "text": "Not all data was collected."},
        {"severity": 1, "text": "CUDA device 0: 3 buffers were full"},
        {"severity": 1, "text": "Dropbox is not traced"},
    ] * 2
    trace = parse(report(DIAGNOSTIC_EVENT=events), tmp_path)
    said = (
        trace.diagnostics.filter(pl.col("code").is_in(["nsys.recording", "nsys.events_lost"]))
        .select("code", "severity", "text", "count")
        .rows()
    )
    assert said == [
        ("nsys.events_lost", "warning", "nsys said: Dropped 12 events, see … …", 2),
        ("nsys.recording", "error", "nsys said: Not all data was collected.", 2),
        ("nsys.events_lost", "warning", "nsys said: CUDA device 0: 3 buffers were full", 2),
    ]


def _counters(tables: Tables, folder: Path) -> list[tuple[str, str, int | None, int, float]]:
    counters = parse(report(**tables), folder).table("counters")
    told = counters.select(
        pl.col("metric", "unit").cast(pl.String), "device", pl.col("ts_ns") - EPOCH, "value"
    )
    return told.rows()


def test_samples_of_nics_and_switches_stand_at_the_end_of_what_they_count_under_their_name(
    tmp_path: Path,
) -> None:
    described = [
        {"metricsListId": 1, "metricsIdx": 0, "name": "IB: Bytes sent", "unit": "bytes"},
        {"metricsListId": 1, "metricsIdx": 1, "name": "IB: Send waits", "unit": ""},
    ]
    tables: Tables = {
        "NET_NIC_METRIC": [
            network(100, 200, 4096, nic=77),
            network(100, 200, 3, nic=77, metricsIdx=1, portId=2),
            network(200, 300, 5, nic=88),
            network(300, 400, 6, nic=99, metricsListId=9),
        ],
        "NET_IB_SWITCH_METRIC": [network(400, 500, 7, nic=-1)],
        "TARGET_INFO_NETWORK_METRICS": described,
        "NIC_ID_MAP": [{"nicId": 2, "globalId": 77}],
        # of which one is numbered as older exports number them
        "TARGET_INFO_NIC_INFO": [
            {"nicId": 2, "name": "mlx5_0", "globalId": None}, {"nicId": None, "name": "mlx5_1", "globalId": 88}
        ],
    }  # fmt: skip
    assert _counters(tables, tmp_path) == [
        ("mlx5_0: IB: Bytes sent", "bytes", None, 200, 4096.0),
        ("mlx5_0 port 2: IB: Send waits", "as recorded", None, 200, 3.0),
        ("mlx5_1: IB: Bytes sent", "bytes", None, 300, 5.0),
        ("NIC 99: metric 0 of list 9", "as recorded", None, 400, 6.0),
        ("InfiniBand switch 18446744073709551615: IB: Bytes sent", "bytes", None, 500, 7.0),
    ]


def test_what_concerns_the_whole_machine_is_counted_once_per_report(tmp_path: Path) -> None:
    first, second = parse_all(rich(), tmp_path)
    of_networks = pl.col("metric").cast(pl.String).str.contains("Bytes sent")
    assert len(first.table("counters").filter(of_networks)) == 3
    assert len(second.table("counters").filter(of_networks)) == 0
    assert "nsys.network_shared" in codes(first)
    assert "nsys.network_shared" not in codes(second)


def test_memory_is_summed_where_every_release_has_its_allocation(tmp_path: Path) -> None:
    events = [
        memory(10, 100, address=1),
        memory(20, 50, address=2),
        memory(30, 100, address=1, freed=True),
        memory(40, 30, address=1),
        memory(50, 8, address=7, memKind=1, freed=True),  # older than the recording
        memory(60, 4, address=9, memKind=1),
    ]
    found = _counters({"CUDA_GPU_MEMORY_USAGE_EVENTS": events}, tmp_path)
    assert [row for row in found if row[0].startswith("Memory held")] == [
        ("Memory held (Device)", "bytes", 0, 10, 100.0),
        ("Memory held (Device)", "bytes", 0, 20, 150.0),
        ("Memory held (Device)", "bytes", 0, 30, 50.0),
        ("Memory held (Device)", "bytes", 0, 40, 80.0),
    ]
    assert [row for row in found if "Pinned" in row[0]] == [
        ("Memory freed (Pinned)", "bytes", 0, 50, 8.0),
        ("Memory allocated (Pinned)", "bytes", 0, 60, 4.0),
    ]
    trace = parse(report(CUDA_GPU_MEMORY_USAGE_EVENTS=events), _folder(tmp_path))
    assert dict(trace.diagnostics.select("code", "count").rows())["nsys.memory_total_unknown"] == 1


def _folder(parent: Path) -> Path:
    folder = parent / "again"
    folder.mkdir()
    return folder


_EVENT = st.tuples(st.integers(0, 1), st.integers(1, 3), st.booleans(), st.integers(1, 2))


@given(st.lists(_EVENT, max_size=12))
@settings(max_examples=40)
def test_memory_held_is_what_a_count_by_hand_finds(events: list[tuple[int, int, bool, int]]) -> None:
    frame = pl.DataFrame(
        [
            {"start": at, "bytes": size, "address": address, "process": 1, "device": device, "kind": "Device"}
            | {"freed": freed}
            for at, (device, address, freed, size) in enumerate(events)
        ],
        schema={
            "start": pl.Int64, "bytes": pl.Int64, "address": pl.Int64, "process": pl.Int64, "device": pl.Int32,
            "kind": pl.String, "freed": pl.Boolean,
        },
    )  # fmt: skip
    samples, _ = _nsys_counters.memory(frame)
    held = samples.filter(pl.col("metric") == "Memory held (Device)")
    for device in (0, 1):
        live: dict[int, int] = {}
        curve: list[tuple[int, float]] = []
        whole = True
        for at, (where, address, freed, size) in enumerate(events):
            if where != device:
                continue
            whole &= live.get(address) == size if freed else address not in live
            live.pop(address, None)
            if not freed:
                live[address] = size
            curve.append((at, float(sum(live.values()))))
        expected = curve if whole else []
        assert held.filter(pl.col("device") == device).select("start", "value").rows() == expected


@pytest.mark.parametrize(("start", "end", "said"), [(120, 180, [60]), (50, 150, [50]), (500, 900, [])])
def test_the_time_of_nsys_itself_is_told_where_the_device_was_at_work(
    tmp_path: Path, start: int, end: int, said: list[int]
) -> None:
    rows = [{"start": start, "end": end, "globalTid": global_id(tid=t)} for t in (1, 2)]
    found = parse(report(PROFILER_OVERHEAD=rows), tmp_path).diagnostics
    text = found.filter(pl.col("code") == "nsys.overhead")["text"].to_list()
    assert [line.split(" for ")[1].split(" between ")[0] for line in text] == [duration(ns) for ns in said]
