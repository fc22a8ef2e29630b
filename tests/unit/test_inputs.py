"""What counts as a trace the user named, and what merely lies beside one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from traceview import registry
from traceview.errors import NoTraceError, ParseError, UnknownFormatError, UsageError
from traceview.inputs import candidates, parser_for
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "k",
    "pid": 0,
    "tid": 7,
    "ts": 1,
    "dur": 2,
    "args": {"stream": 7},
}
TRACE = json.dumps({"traceEvents": [KERNEL]})


def names(*places: str | Path) -> list[tuple[str, bool]]:
    return [(found.source.path.name, found.named) for found in candidates(places)]


def test_a_directory_is_searched_without_notes_scripts_and_hidden_files(tmp_path: Path) -> None:
    for name in ("b.json.gz", "a.json", "README.md", "run.toml", ".hidden.json", "truth.json"):
        (tmp_path / name).write_text("x")
    (tmp_path / "rank_1").mkdir()
    (tmp_path / "rank_1" / "c.json").write_text("x")
    assert names(tmp_path) == [("a.json", False), ("b.json.gz", False), ("c.json", False)]


def test_a_file_met_twice_is_read_once_and_counts_as_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("x")
    assert names(tmp_path, tmp_path / "a.json") == [("a.json", True)]
    assert names(tmp_path / "a.json", str(tmp_path / "*.json")) == [("a.json", True)]


def test_a_directory_of_exported_tables_is_one_trace_whole_or_beside_others(tmp_path: Path) -> None:
    export = tmp_path / "rank0_pqtdir"
    export.mkdir()
    for name in ("StringIds.parquet", "CUPTI_ACTIVITY_KIND_KERNEL.parquet"):
        (export / name).write_text("x")
    (tmp_path / "rank1.sqlite").write_text("x")
    assert names(export) == [("rank0_pqtdir", True)]
    assert names(tmp_path) == [("rank0_pqtdir", False), ("rank1.sqlite", False)]
    assert names(str(tmp_path / "*")) == [("rank0_pqtdir", False), ("rank1.sqlite", False)]
    assert names(str(tmp_path / "**/*")) == [("rank0_pqtdir", False), ("rank1.sqlite", False)]


def test_a_directory_of_other_parquet_files_is_no_trace_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "table.parquet").write_text("x")
    assert names(tmp_path) == [("table.parquet", False)]


def test_places_without_files_are_errors_that_say_where(tmp_path: Path) -> None:
    for place in (tmp_path / "absent", tmp_path, str(tmp_path / "*.json")):
        with pytest.raises(NoTraceError, match="no trace found"):
            candidates([place])


def test_remote_addresses_are_refused_plainly() -> None:
    with pytest.raises(UsageError, match="local files"):
        candidates(["s3://bucket/run"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"SQLite format 3\x00", "SQLite"),
        (b"\x80\x04\x95", "pickle"),
        (b"PAR1", "Parquet"),
        (b"\xfd7zXZ\0", "xz"),
        (b"hello", "unknown format"),
    ],
)
def test_other_files_are_refused_by_what_they_are(tmp_path: Path, content: bytes, says: str) -> None:
    source = Source(tmp_path / "f")
    source.path.write_bytes(content)
    with pytest.raises(UnknownFormatError, match=says):
        parser_for(source, registry.parsers()).parse(source)


def test_an_empty_file_is_a_damaged_trace_and_not_another_format(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(b"")
    with pytest.raises(ParseError, match="empty"):
        parser_for(Source(tmp_path / "rank0.json"), registry.parsers())


def test_standard_input_is_a_trace_and_leaves_no_file_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "traceview", "summary", "-", "-f", "json"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, input=TRACE, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["breakdown"][0]["compute_ns"] == 2000
    assert list(tmp_path.iterdir()) == []
