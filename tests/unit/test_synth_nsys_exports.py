"""Every export type of a synthetic run: the same rows, typed as real exports are; metrics and opaque graphs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import traceview as tv
from traceview.errors import UsageError
from traceview.synth import WRITERS, Capture, LateStart, Workload, simulate, write

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Workload(
    ranks=2, ranks_per_host=2, expert_parallel=2, steps=1, layers=1, hidden=256, expert_hidden=128, experts=4,
    top_k=2, tokens=256, vocabulary=512, capture=Capture(gpu_metrics_hz=50_000),
)  # fmt: skip
OPAQUE = replace(PLAN, graphs=True, steps=2, capture=Capture(graph_trace="graph"))
Directory = Literal["nsys-parquetdir", "nsys-arrowdir"]
DIRECTORIES: dict[Directory, str] = {"nsys-parquetdir": "_pqtdir", "nsys-arrowdir": "_arwdir"}
Rows = list[dict[str, Any]]


def from_sqlite(content: bytes) -> dict[str, Rows]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        return {
            name: [dict(row) for row in connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')]  # noqa: S608 - our own names
            for name in names
        }


def from_parquet(files: dict[str, bytes]) -> dict[str, Rows]:
    return {
        name.removesuffix(".parquet"): pq.ParquetFile(pa.BufferReader(content)).read().to_pylist()
        for name, content in files.items()
    }


def from_arrow(files: dict[str, bytes]) -> dict[str, Rows]:
    return {
        name.removesuffix(".arrow"): pa.ipc.open_stream(content).read_all().to_pylist()
        for name, content in files.items()
    }


def from_streams(content: bytes) -> dict[str, Rows]:
    reader, found = pa.BufferReader(content), {}
    while reader.tell() < len(content):
        table = pa.ipc.open_stream(reader).read_all()
        found[table.schema.metadata[b"table_name"].decode()] = table.to_pylist()
    return found


def from_json_lines(content: bytes) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for line in content.decode().splitlines():
        row = json.loads(line)
        found.setdefault(row.pop("table"), []).append(row)
    return found


def test_every_export_type_holds_the_same_rows() -> None:
    timeline = simulate(PLAN)
    expected = from_sqlite(WRITERS["nsys-sqlite"](timeline, 1))
    assert {"GPU_METRICS", "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"} <= expected.keys()
    assert from_parquet(WRITERS["nsys-parquetdir"](timeline, 1)) == expected
    assert from_arrow(WRITERS["nsys-arrowdir"](timeline, 1)) == expected
    assert from_streams(WRITERS["nsys-arrow"](timeline, 1)) == expected
    told = {
        table: [
            {name: value for name, value in row.items() if value is not None and name != "binaryData"}
            for row in rows
        ]
        for table, rows in expected.items()
    }
    assert from_json_lines(WRITERS["nsys-jsonlines"](timeline, 1)) == told


@pytest.mark.parametrize("trace_format", WRITERS)
def test_the_same_workload_gives_the_same_bytes(trace_format: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(PLAN, tmp_path / name, trace_format=trace_format)
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "first", tmp_path / "second")
    )
    assert first == second
    assert not [path for path in first if path.name.startswith(".")]


@pytest.mark.parametrize("trace_format", DIRECTORIES)
def test_columns_are_typed_as_in_an_export_of_nsys(traces: Path, trace_format: Directory) -> None:
    real = traces / f"nsys/alpa-fork/alpa_mem.2023.4.4{DIRECTORIES[trace_format]}"
    compared = 0
    for name, content in WRITERS[trace_format](simulate(PLAN), 0).items():
        if not (real / name).exists():
            continue  # this one was made before the table was
        if trace_format == "nsys-parquetdir":
            ours, theirs = pq.read_schema(pa.BufferReader(content)), pq.read_schema(real / name)
        else:
            ours, theirs = (pa.ipc.open_stream(data).schema for data in (content, (real / name).read_bytes()))
            assert ours.metadata[b"table_name"] == theirs.metadata[b"table_name"]
        shared = [field for field in ours.names if field in theirs.names]
        types = [
            [(schema.field(f).type, schema.field(f).nullable) for f in shared] for schema in (ours, theirs)
        ]
        assert types[0] == types[1], name
        compared += len(shared)
    assert compared > 60


def test_a_directory_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    first = write(PLAN, tmp_path, trace_format="nsys-parquetdir")
    assert (first[0] / "GPU_METRICS.parquet").exists()
    again = write(replace(PLAN, capture=Capture()), tmp_path, trace_format="nsys-parquetdir")
    assert first == again
    assert not (again[0] / "GPU_METRICS.parquet").exists()


def test_a_directory_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "rank0_trace_arwdir"
    blocked.write_bytes(b"a file of somebody else")
    with pytest.raises(OSError, match="rank0_trace_arwdir"):
        write(PLAN, tmp_path, trace_format="nsys-arrowdir")
    assert [path.name for path in tmp_path.iterdir()] == [blocked.name]


# --- graphs -------------------------------------------------------------------------------------------


def test_an_opaque_graph_lasts_from_the_first_start_to_the_last_end_of_its_nodes() -> None:
    nodes = from_sqlite(WRITERS["nsys-sqlite"](simulate(replace(OPAQUE, capture=Capture())), 0))
    opaque = from_sqlite(WRITERS["nsys-sqlite"](simulate(OPAQUE), 0))
    replays: dict[int, tuple[int, int]] = {}
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        for row in nodes.get(table, []):
            if row["graphNodeId"]:
                start, end = replays.get(row["correlationId"], (row["start"], row["end"]))
                replays[row["correlationId"]] = min(start, row["start"]), max(end, row["end"])
        outside = [row for row in nodes.get(table, []) if not row["graphNodeId"]]
        named = {"demangledName", "shortName"}  # numbers of strings, of which there are fewer now
        assert [{k: v for k, v in row.items() if k not in named} for row in opaque.get(table, [])] == [
            {k: v for k, v in row.items() if k not in named} for row in outside
        ]
    blocks = opaque["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"]
    assert {row["correlationId"]: (row["start"], row["end"]) for row in blocks} == replays
    assert len(blocks) == 2 * OPAQUE.steps  # a forward and a backward each
    modes = [found["META_DATA_CAPTURE"][0]["value"] for found in (nodes, opaque)]
    assert modes == ["Node", "Graph"]


def test_of_an_opaque_graph_the_length_is_known_and_that_its_inside_is_not(tmp_path: Path) -> None:
    write(OPAQUE, tmp_path, trace_format="nsys-arrow")
    run = tv.load(tmp_path, cache=None, workers=1)
    assert "nsys.graph_opaque" in set(run.diagnostics["code"])
    graphs = run.ops.collect().filter(kind="graph")
    assert len(graphs) == 2 * OPAQUE.steps * OPAQUE.ranks
    assert graphs["step"].null_count() == 0
    frame = tv.breakdown(run, steps="all").frame
    assert (frame["compute_ns"] > 0.9 * int(graphs["dur_ns"].sum()) / OPAQUE.ranks).all()


# --- GPU metrics --------------------------------------------------------------------------------------


def samples_of(tables: dict[str, Rows], metric: str) -> dict[int, int]:
    """Value by stamp."""
    [number] = [
        row["metricId"]
        for row in tables["TARGET_INFO_GPU_METRICS"]
        if row["metricName"] == f"{metric} [Throughput %]"
    ]
    return {row["timestamp"]: row["value"] for row in tables["GPU_METRICS"] if row["metricId"] == number}


def test_sms_active_is_the_mean_share_of_busy_sms_before_each_sample() -> None:
    tables = from_sqlite(WRITERS["nsys-sqlite"](simulate(PLAN), 0))
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    samples = samples_of(tables, "SMs Active")
    period = 20_000
    stamps = np.array(list(samples))
    assert set(np.diff(stamps)) == {period}
    first = stamps[0] - period
    blocks = np.zeros(len(stamps) * period, dtype=np.int64)  # one per nanosecond
    for kernel in kernels:
        grid = min(kernel["gridX"] * kernel["gridY"] * kernel["gridZ"], 132)
        blocks[kernel["start"] - first : kernel["end"] - first] += grid * 100_000 // 132
    assert first <= min(kernel["start"] for kernel in kernels)
    assert stamps[-1] >= max(kernel["end"] for kernel in kernels)
    means = np.minimum(blocks, 100_000).reshape(-1, period).mean(axis=1) / 1000
    assert np.abs(np.array(list(samples.values())) - means).max() <= 0.5


def test_the_link_carries_what_exchanges_move_and_is_idle_while_ranks_wait() -> None:
    timeline = simulate(PLAN)
    for rank in range(PLAN.ranks):
        tables = from_sqlite(WRITERS["nsys-sqlite"](timeline, rank))
        for metric, moved in (("TX", "sent_bytes"), ("RX", "received_bytes")):
            samples = samples_of(tables, f"NVLink {metric} Responses User Data")
            total = sum(int(getattr(e.message.traffic, moved)[rank]) for e in timeline.exchanges)
            carried = sum(samples.values()) / 100 * 20_000 * 450  # each rounded by at most half a percent
            assert carried == pytest.approx(total, abs=45_000.0 * len(samples))
            assert total > 0
    # what leaves the host is not on the link
    apart = simulate(replace(PLAN, ranks_per_host=1))
    tables = from_sqlite(WRITERS["nsys-sqlite"](apart, 0))
    assert set(samples_of(tables, "NVLink TX Responses User Data").values()) == {0}


def test_metrics_see_what_buffers_lost_but_not_what_was_before_the_profiler() -> None:
    lost = replace(PLAN.capture, dropped_share=0.5)
    late = replace(PLAN.capture, late_starts=(LateStart(1, 0.5),))
    whole, torn, half = (
        from_sqlite(WRITERS["nsys-sqlite"](simulate(replace(PLAN, capture=capture)), 1))
        for capture in (PLAN.capture, lost, late)
    )
    values = [list(samples_of(tables, "SMs Active").values()) for tables in (whole, torn, half)]
    assert values[0] == values[1]
    assert len(torn["CUPTI_ACTIVITY_KIND_KERNEL"]) < len(whole["CUPTI_ACTIVITY_KIND_KERNEL"])
    assert 0 < len(values[2]) < len(values[0])


def test_impossible_captures_are_refused() -> None:
    impossible: list[dict[str, Any]] = [
        {"graph_trace": "kernel"},
        {"gpu_metrics_hz": -1},
        {"gpu_metrics_hz": 10**6},
    ]
    for wrong in impossible:
        with pytest.raises(UsageError):
            replace(PLAN, capture=replace(PLAN.capture, **wrong))
