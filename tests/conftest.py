"""What every test may ask for: the public traces, a trace made by hand, and one hypothesis profile per place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import settings

from traceview.schema import (
    CLASS_OF_CATEGORY,
    COLLECTIVE_OPS,
    DEVICES,
    HOST_OPS,
    LAUNCHES,
    OPS,
    RANGES,
    STEPS,
    Table,
)
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
PID = 100

CHECKOUT = Path(__file__).resolve().parents[1]

# a shared machine stalls at random, so no deadline; CI must fail for the change, not for the draw
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


SLOW = ("browser", "examples", "real", "test_docs.py", "test_readme.py")
"""Tests that take a browser, a training run, public traces, or every command of the pages: `make check` has them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needs_traces = "traces" in getattr(item, "fixturenames", ())
        if needs_traces:
            item.add_marker("traces")
        if needs_traces or {item.path.name, item.path.parent.name} & set(SLOW):
            item.add_marker("slow")


def _trace_folder() -> Path:
    named = os.environ.get("TRACEVIEW_TRACES")
    return Path(named) if named else CHECKOUT.parent / "shared" / "traces"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``public_file`` runs once per public PyTorch trace file, and is named after it."""
    if "public_file" in metafunc.fixturenames:
        root = _trace_folder() / "pytorch"
        files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.gz"))
        metafunc.parametrize("public_file", files)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public traces."""
    folder = _trace_folder()
    if not folder.is_dir():
        pytest.skip(f"no public traces at {folder}; set TRACEVIEW_TRACES to their folder")
    return folder


@pytest.fixture(scope="session")
def made() -> Callable[..., Trace]:
    """Makes a rank of rows; see `_made`."""
    return _made


def _op(row: Row) -> Row:
    category = row.get("category", "gemm")
    common = {"name": category, "kind": "kernel", "category": category, "class": CLASS_OF_CATEGORY[category]}
    return {"device": 0, "stream": 7, "rule_id": "test", "launch": None} | common | row


def _made(
    rows: list[Row],
    *,
    rank: int = 0,
    steps: list[tuple[int, int, int]] | None = None,
    ranges: list[Row] | None = None,
    host_ops: list[Row] | None = None,
    devices: list[Row] | None = None,
    collectives: list[Row] | None = None,
) -> Trace:
    """A rank with these ops, kernels unless they say otherwise.

    Args:
        rows: Columns of `OPS`, and ``launch``, the instant and the thread of the launching call.
        rank: Its number.
        steps: Number, start and duration, on the device and on the host alike.
        ranges: Columns of `RANGES`; on thread 1 unless they say otherwise.
        host_ops: Columns of `HOST_OPS`, likewise.
        devices: Columns of `DEVICES`.
        collectives: Columns of `COLLECTIVE_OPS`.
    """
    ops, launches = [], []
    for number, row in enumerate(map(_op, rows)):
        own = {key: value for key, value in row.items() if key != "launch"}
        ops.append({"op": number, "rank": rank, "correlation": number} | own)
        if row["launch"] is not None:
            instant, tid = row["launch"]
            call = {"ts_ns": instant, "dur_ns": 1, "pid": PID, "tid": tid, "name": "cudaLaunchKernel"}
            launches.append({"rank": rank, "correlation": number} | call)
    marked = [
        {"rank": rank, "step": step, "ts_ns": start, "dur_ns": length, "op_count": 1, "status": "complete"}
        | {"source": "test", "host_ts_ns": start, "host_dur_ns": length}
        for step, start, length in steps or []
    ]
    on_thread = {"rank": rank, "pid": PID, "tid": 1}
    tables = {
        "ops": _frame(OPS, ops),
        "launches": _frame(LAUNCHES, launches),
        "steps": _frame(STEPS, marked),
        "ranges": _frame(
            RANGES, [on_thread | {"raw_name": row["name"], "kind": "other"} | row for row in ranges or []]
        ),
        "host_ops": _frame(HOST_OPS, [on_thread | row for row in host_ops or []]),
        "devices": _frame(DEVICES, [{"rank": rank, "device": 0} | row for row in devices or []]),
        "collectives": _frame(
            COLLECTIVE_OPS, [{"rank": rank, "device": 0} | row for row in collectives or []]
        ),
    }
    return Trace(Facts("made.json", "kineto", rank=rank), tables)


def _frame(table: Table, rows: list[Row]) -> pl.DataFrame:
    if not rows:
        return table.empty()
    plain = {
        name: pl.String() if isinstance(column.dtype, pl.Enum | pl.Categorical) else column.dtype
        for name, column in table.columns.items()
        if any(name in row for row in rows)
    }
    return table.frame(pl.DataFrame(rows, schema=plain))
