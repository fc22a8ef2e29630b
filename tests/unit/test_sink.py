"""Files are written whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from traceview import sink

if TYPE_CHECKING:
    from pathlib import Path


def test_the_bytes_written_are_counted_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("before")
    assert sink.write("né\udcff", target) == 4  # a lone surrogate becomes a question mark
    assert target.read_bytes() == "né?".encode()
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_keeps_the_earlier_file(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "page.html"
    with pytest.raises(FileNotFoundError):
        sink.write("text", missing)
    assert list(tmp_path.iterdir()) == []
