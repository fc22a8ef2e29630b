"""Stored traces come back equal, and half-written ones never look whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import polars as pl
import pytest

from traceview import store
from traceview.schema import OPS
from traceview.trace import Facts, Trace, diagnostic

if TYPE_CHECKING:
    from pathlib import Path


def sample() -> Trace:
    ops = OPS.frame(
        {"op": [0, 1], "rank": [3, 3], "device": [0, 0], "ts_ns": [1_712_345_678_901_234_567, 9], "dur_ns": [4, 5],
         "name": ["gemm", "nccl"], "kind": ["kernel", "kernel"], "category": ["gemm", "all_gather"],
         "class": ["compute", "comm"], "rule_id": ["a", "b"]}
    )  # fmt: skip
    facts = Facts(path="x.json", format="kineto", rank=3, versions={"nccl_version": "2.28"})
    return Trace(facts, {"ops": ops}).with_diagnostics(diagnostic("info", "a.b", "text", count=2, rank=3))


def test_a_trace_comes_back_equal(tmp_path: Path) -> None:
    trace = sample()
    for back in (store.write(trace, tmp_path / "k" / "0"), store.read(tmp_path / "k" / "0")):
        assert back.facts == trace.facts
        assert list(back.tables) == ["ops"]
        assert back.table("ops").equals(trace.table("ops"))
        assert back.table("ops").schema == OPS.schema()
        assert back.diagnostics.equals(trace.diagnostics)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)
    with pytest.raises(OSError, match="No space"):
        store.write(sample(), tmp_path / "0")
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_one_trace_do_no_harm(tmp_path: Path) -> None:
    store.write(sample(), tmp_path / "0")
    store.write(sample(), tmp_path / "0")
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    assert store.is_whole(tmp_path / "0")


def test_the_key_changes_with_the_file_and_with_what_shaped_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    first = store.key(path, "kineto", 1, "rules")
    assert store.key(path, "kineto", 1, "rules") == first
    assert store.key(path, "kineto", 2, "rules") != first
    assert store.key(path, "kineto", 1, "other rules") != first
    os.utime(path, ns=(1, 2))
    assert store.key(path, "kineto", 1, "rules") != first
