"""Closed reports of Nsight Systems: exported by an ``nsys`` on PATH, here one made of a few lines."""

from __future__ import annotations

import gzip
import stat
import tempfile
from typing import TYPE_CHECKING

import pytest
from nsys_reports import PRIVATE, everything_said, report, write_sqlite
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.errors import UnknownFormatError
from traceview.parsers import _nsys_tool
from traceview.parsers.nsys import PARSER
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

HEAD = b"NVIDIA Tegra Profiler Report "
NEW = HEAD + b"2024@6@2@25-24623492458v0.\n"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a report named ``my run.nsys-rep``; nothing is on PATH."""
    monkeypatch.setenv("PATH", "")
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "my run.nsys-rep").write_bytes(NEW + PRIVATE.encode())
    return folder


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Puts a program ``nsys`` on PATH, whose arguments are "export --type sqlite ... --output OUT IN"."""
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text("\n".join(["#!/bin/sh", f"echo {PRIVATE}; echo {PRIVATE} >&2", *lines, ""]))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


COPY = 'while [ "$1" != --output ]; do shift; done; cp "$SAMPLE" "$2"'
OLD = 'case "$*" in *--include-blobs*) exit 64;; esac'


@pytest.mark.parametrize("program", [(COPY,), (OLD, COPY)], ids=["current", "without blobs"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_report_is_exported_read_and_nothing_left_behind(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...], *, packed: bool
) -> None:
    sample = write_sqlite(report(), tmp_path)
    monkeypatch.setenv("SAMPLE", str(sample))
    _install(tmp_path, monkeypatch, *program)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = bare / "my run.nsys-rep"
    if packed:
        path = bare / "my run.nsys-rep.gz"
        path.write_bytes(gzip.compress(NEW))
    [trace], [expected] = PARSER.parse(Source(path)), PARSER.parse(Source(sample))
    assert trace.facts.path == str(path)
    assert_frame_equal(trace.table("ops"), expected.table("ops"))
    assert PRIVATE not in everything_said(trace)
    assert list(scratch.iterdir()) == []
    assert list(bare.glob("*.sqlite")) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [("exit 3", "exit status 3"), ("exit 0", "it wrote nothing"), ("sleep 60", "not done after 0 minutes")],
)
def test_a_program_that_fails_is_reported_without_its_words(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    _install(tmp_path, monkeypatch, line)
    monkeypatch.setattr(_nsys_tool, "_TIMEOUT_S", 1)
    with pytest.raises(UnknownFormatError, match=rf"2024\.6\.2.*{why}") as refused:
        tv.load(bare / "my run.nsys-rep")
    assert "nsys export --type sqlite" in str(refused.value)
    assert PRIVATE not in str(refused.value)


@pytest.mark.parametrize(
    ("version", "says"),
    [(NEW, "Nsight Systems 2024.6.2"), (HEAD + b"1.\n\x0bLocal", "Nsight Systems 2021 to 2023")],
)
def test_without_a_program_it_is_refused_with_its_version_and_the_command(
    bare: Path, version: bytes, says: str
) -> None:
    path = bare / "my run.nsys-rep"
    path.write_bytes(version)
    with pytest.raises(UnknownFormatError, match=says) as refused:
        tv.load(path)
    exported = bare / "my run.sqlite"
    assert f"nsys export --type sqlite --output '{exported}' '{path}'" in str(refused.value)


def test_a_report_beside_its_export_is_not_exported_again(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, "exit 1")
    write_sqlite(report(), bare, "my run.sqlite")
    with pytest.raises(UnknownFormatError, match="its export lies beside it"):
        tv.load(bare / "my run.nsys-rep")
    assert len(tv.load(bare).ranks) == 1
