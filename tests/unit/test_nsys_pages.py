"""Rows from the pages of a database, beside what SQLite itself reads of the same file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_reports import Strings, kernel, nvtx, report, write_sqlite
from polars.testing import assert_frame_equal

from traceview.errors import ParseError
from traceview.parsers import _nsys_pages, _nsys_sqlite
from traceview.parsers._nsys_pages import MalformedError, Pages, Stored

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"a": pl.Int64(), "t": pl.String(), "b": pl.Int64(), "d": pl.Binary(), "c": pl.Int64()}
EDGES = [0, 1, -1, 127, 128, -128, -129, 1 << 15, 1 << 23, 1 << 31, -(1 << 31), 1 << 47, 1 << 48, -(1 << 63)]
INTEGERS = st.none() | st.sampled_from([*EDGES, (1 << 63) - 1]) | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.none() | st.text(max_size=80)
BLOBS = st.none() | st.binary(max_size=80)
ODD = st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3) | st.just("x" * 9_000)
ROW = st.tuples(INTEGERS, TEXTS, INTEGERS, BLOBS, INTEGERS)


def _write(path: Path, rows: list[tuple[Any, ...]], *, page: int = 512, more: str = "") -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page}")
        connection.execute(f"CREATE TABLE t (a, t, b, skipped, d, c{more})")
        marks = "?, ?, ?, 4.5, ?, ?"
        connection.executemany(f"INSERT INTO t (a, t, b, skipped, d, c) VALUES ({marks})", rows)  # noqa: S608 - test data
        connection.commit()


def _read(path: Path) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Rows taken from the pages, and the row numbers left to SQLite."""
    with closing(sqlite3.connect(path)) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'")
        stored = Stored(root, [row[1] for row in connection.execute("PRAGMA table_info(t)")])
    with path.open("rb", buffering=0) as file:
        pages = Pages(file)
        assert pages.takes(stored)
        batches = list(pages.batches(stored, COLUMNS))
    return [row for batch in batches for row in batch.frame.rows()], [
        n for batch in batches for n in batch.left
    ]


def _selected(path: Path, condition: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT a, t, b, d, c FROM t WHERE {condition}").fetchall()  # noqa: S608 - test data


@settings(max_examples=60)
@given(rows=st.lists(ROW, max_size=40), copies=st.integers(1, 12), page=st.sampled_from([512, 1024, 65536]))
def test_whole_rows_of_the_wanted_types_are_those_that_sqlite_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], copies: int, page: int
) -> None:
    path = tmp_path_factory.mktemp("pages") / "x.sqlite"
    _write(path, rows * copies, page=page)
    found, left = _read(path)
    numbers = ",".join(map(str, left))
    assert found == _selected(path, f"rowid NOT IN ({numbers}) ORDER BY rowid")
    # the longest row of these takes less than a page of the larger ones
    assert page == 512 or not left


@settings(max_examples=60)
@given(data=st.data())
def test_any_other_row_is_left_to_sqlite(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[list[Any]] = [list(row) for row in data.draw(st.lists(ROW, min_size=1, max_size=12))]
    for row in data.draw(st.lists(st.sampled_from(rows), max_size=4)):
        row[data.draw(st.integers(0, 4))] = data.draw(ODD)
    path = tmp_path_factory.mktemp("odd") / "x.sqlite"
    _write(path, [tuple(row) for row in rows], page=4096)
    found, left = _read(path)
    numbers = ",".join(map(str, left))
    assert found == _selected(path, f"rowid NOT IN ({numbers}) ORDER BY rowid")
    kinds = {pl.Int64(): int, pl.String(): str, pl.Binary(): bytes}
    for number, row in enumerate(rows, start=1):
        fits = all(
            value is None or type(value) is kinds[kind]
            for value, kind in zip(row, COLUMNS.values(), strict=True)
        )
        whole = all(len(value) < 3_000 for value in row if isinstance(value, str | bytes))
        assert (number in left) is not (fits and whole)


def test_rows_older_than_a_column_are_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a, t, b, d)")
        connection.execute("INSERT INTO t VALUES (1, 'x', 2, x'00')")
        connection.execute("ALTER TABLE t ADD COLUMN c DEFAULT 7")
        connection.execute("INSERT INTO t VALUES (3, 'y', 4, x'01', 5)")
        connection.commit()
    assert _read(path) == ([(3, "y", 4, b"\x01", 5)], [1])


def test_deleted_and_rewritten_rows_leave_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    _write(path, [(n, "text" * 9, n * n, b"blob", -n) for n in range(3_000)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM t WHERE a % 3 = 0")
        connection.execute("UPDATE t SET t = 'longer' || t, b = NULL WHERE a % 5 = 0")
        connection.commit()
    found, left = _read(path)
    assert (len(found), left) == (2_000, [])
    assert found == _selected(path, "1 ORDER BY rowid")


@pytest.mark.parametrize(
    "table",
    ["CREATE TABLE t (a PRIMARY KEY, t, b, d, c) WITHOUT ROWID", "CREATE VIRTUAL TABLE t USING fts5(a, x, b, d, c)"],
)  # fmt: skip
def test_tables_without_row_numbers_are_not_taken(tmp_path: Path, table: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(table)
        connection.commit()
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'")
    with path.open("rb", buffering=0) as file:
        assert not Pages(file).takes(Stored(root, list(COLUMNS)))


def test_a_database_whose_texts_are_not_utf8_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16'")
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    with path.open("rb", buffering=0) as file:
        assert not Pages(file).takes(Stored(2, ["a"]))


@settings(max_examples=150)
@given(data=st.data())
def test_bytes_that_are_no_pages_are_an_error_or_rows_and_nothing_worse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("broken") / "x.sqlite"
    _write(path, [(n, "t" * (n % 70), n, b"d", n) for n in range(200)])
    broken = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(512, len(broken) - 1), min_size=1, max_size=30)):
        broken[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1024, len(broken)) | st.just(len(broken)))
    path.write_bytes(broken[:cut])
    with path.open("rb", buffering=0) as file:
        pages = Pages(file)
        stored = Stored(2, ["a", "t", "b", "skipped", "d", "c"])
        if not pages.takes(stored):
            return
        try:
            list(pages.batches(stored, COLUMNS))
        except MalformedError:
            return


@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_a_report_reads_the_same_from_its_pages_and_from_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(_nsys_pages, "_FRAME_ROWS", 700)
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, n, n + 5, name=f"k{n % 9}") for n in range(rows)],
        NVTX_EVENTS=[nvtx(n, n + 9, "x" * n, binaryData=bytes(n % 90)) for n in range(rows)],
    )
    path = write_sqlite(tables, tmp_path)
    wanted = {"CUPTI_ACTIVITY_KIND_KERNEL": ["start", "end", "demangledName"], "NVTX_EVENTS": ["start", "text", "binaryData"]}  # fmt: skip
    with _nsys_sqlite.opened(path, path) as database:
        for table, columns in wanted.items():
            found = list(database.batches(table, columns, None))
            database._pages, pages = None, database._pages
            expected = list(database.batches(table, columns, None))
            database._pages = pages
            assert sum(map(len, found)) == rows
            if rows:
                assert_frame_equal(pl.concat(found).sort("start"), pl.concat(expected).sort("start"))


def test_a_page_that_cannot_be_read_is_an_error_that_names_the_table(tmp_path: Path) -> None:
    names = Strings()
    many = [kernel(names, n, n + 5) for n in range(3_000)]
    path = write_sqlite(report(CUPTI_ACTIVITY_KIND_KERNEL=many), tmp_path)
    with _nsys_sqlite.opened(path, path) as database:
        root = database._described["CUPTI_ACTIVITY_KIND_KERNEL"].stored.root
        content = bytearray(path.read_bytes())
        content[(root - 1) * 4096 + 12 : root * 4096] = b"\xff" * (4096 - 12)
        path.write_bytes(content)
        with pytest.raises(ParseError, match="table CUPTI_ACTIVITY_KIND_KERNEL"):
            list(database.batches("CUPTI_ACTIVITY_KIND_KERNEL", ["start"], None))
