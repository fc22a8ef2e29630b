"""Streams end where their bytes end, and say so when they end too early."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import pytest
import zstandard

from traceview.errors import ParseError
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

TEXT = random.Random(7).randbytes(1 << 19) * 3


def drained(path: Path, size: int = 100_000) -> tuple[bytes, str | None]:
    with Source(path).open() as stream:
        parts = iter(lambda: stream.read(size), b"")
        return b"".join(parts), stream.damage


@pytest.mark.parametrize("size", [1000, 1 << 16, 1 << 22])
def test_gzip_members_follow_each_other_and_padding_is_ignored(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t"
    path.write_bytes(
        gzip.compress(TEXT[:900_000]) + gzip.compress(TEXT[900_000:]) + b"\x00" * 700 + b"garbage"
    )
    assert drained(path, size) == (TEXT, None)


def test_a_cut_gzip_gives_nearly_all_bytes_before_the_cut(tmp_path: Path) -> None:
    path, whole = tmp_path / "t", gzip.compress(TEXT)
    path.write_bytes(whole[: len(whole) // 2])
    data, damage = drained(path)
    assert TEXT.startswith(data)
    assert len(data) > 0.95 * len(TEXT) / 2
    assert damage is not None
    assert "early" in damage


def test_a_flipped_bit_in_gzip_is_damage_and_not_an_exception(tmp_path: Path) -> None:
    path, whole = tmp_path / "t", bytearray(gzip.compress(b"a trace " * 50_000))
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(whole))
    _, damage = drained(path)
    assert damage is not None


def test_a_cut_zstd_is_damage_and_not_an_exception(tmp_path: Path) -> None:
    path, whole = tmp_path / "t", zstandard.ZstdCompressor().compress(TEXT)
    path.write_bytes(whole[: len(whole) // 2])
    data, damage = drained(path)
    assert TEXT.startswith(data)
    assert damage is not None


def test_the_head_is_decompressed_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(TEXT))
    assert Source(path).head == TEXT[:4096]


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"opening.*No such file"):
        Source(tmp_path / "absent").open()
