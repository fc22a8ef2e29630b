"""Every type of export, and what is no export."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_reports import (
    PID,
    WRITERS,
    Strings,
    global_id,
    kernel,
    launch,
    nvtx,
    parse,
    parse_all,
    report,
    rich,
    texts,
    write_arrow,
    write_json_lines,
    write_parquet,
    write_sqlite,
    write_sqlite_gz,
)
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.errors import ParseError, UnknownFormatError
from traceview.inputs import parser_for
from traceview.parsers.nsys import PARSER
from traceview.registry import parsers
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", WRITERS)
def test_every_export_type_of_one_report_gives_the_same_traces(tmp_path: Path, kind: str) -> None:
    (tmp_path / "reference").mkdir()
    expected = parse_all(rich(), tmp_path / "reference")
    assert [len(trace.table("ops")) for trace in expected] == [3, 1]
    source = Source(WRITERS[kind](rich(), tmp_path))
    found = parser_for(source, parsers()).parse(source)
    assert len(found) == len(expected)
    for trace, reference in zip(found, expected, strict=True):
        assert trace.facts.versions == reference.facts.versions
        assert trace.tables.keys() == reference.tables.keys()
        for name, table in reference.tables.items():
            assert_frame_equal(trace.table(name), table)


@pytest.mark.parametrize("kind", WRITERS)
def test_ids_with_their_highest_bit_set_still_meet(tmp_path: Path, kind: str) -> None:
    names = Strings()
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, globalPid=global_id(hardware=200))],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50, globalTid=global_id(tid=9, hardware=200))],
        StringIds=names.rows(),
    )
    if kind == "jsonlines":  # written as the unsigned numbers they are
        for rows in tables.values():
            for row in rows:
                for column in row.keys() & {"globalPid", "globalTid"}:
                    row[column] %= 1 << 64
    [trace] = PARSER.parse(Source(WRITERS[kind](tables, tmp_path)))
    assert trace.facts.pid == PID
    assert trace.table("launches")["correlation"].to_list() == [1]


def test_a_database_is_read_without_a_trace_of_reading_and_with_its_log(tmp_path: Path) -> None:
    path = write_sqlite(report(), tmp_path)
    PARSER.parse(Source(path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 250")
        writer.commit()
        [trace] = PARSER.parse(Source(path))
    assert trace.table("ops")["dur_ns"].to_list() == [150]


def test_unpacked_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    PARSER.parse(Source(write_sqlite_gz(report(), tmp_path)))
    assert list(scratch.iterdir()) == []


def test_exports_of_2022_name_their_metadata_table_otherwise(tmp_path: Path) -> None:
    tables = report()
    tables["EXPORT_META_DATA"] = tables.pop("META_DATA_EXPORT")
    trace = parse(tables, tmp_path)
    assert trace.facts.versions["nsys_schema_version"] == "3.25.0"


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=8)
def test_row_order_says_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("shuffled")
    expected = parse_all(rich(), folder)
    shuffled = rich()
    for rows in shuffled.values():
        random.Random(seed).shuffle(rows)
    found = PARSER.parse(Source(write_sqlite(shuffled, folder, "again.sqlite")))
    for trace, reference in zip(found, expected, strict=True):
        for name, table in reference.tables.items():
            assert_frame_equal(trace.table(name), table)


def test_other_databases_and_reports_of_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE users (name)")
        connection.commit()
    with pytest.raises(UnknownFormatError, match="without any table of an Nsight Systems export"):
        tv.load(path)
    nothing = report()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
        del nothing[table]
    with pytest.raises(UnknownFormatError, match="--trace=cuda,nvtx"):
        tv.load(write_sqlite(nothing, tmp_path))


def test_one_table_of_a_directory_is_refused_in_favour_of_the_directory(tmp_path: Path) -> None:
    folder = write_parquet(report(), tmp_path)
    with pytest.raises(UnknownFormatError, match="pass its directory"):
        tv.load(folder / "StringIds.parquet")
    assert len(tv.load(folder).ops.collect()) == 1


@pytest.mark.parametrize("kind", ["sqlite_gz", "arrows", "jsonlines"])
def test_compressed_files_that_end_early_are_damaged(tmp_path: Path, kind: str) -> None:
    whole = WRITERS[kind](report(), tmp_path).read_bytes()
    packed = whole if kind == "sqlite_gz" else gzip.compress(whole)
    path = tmp_path / "cut.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    source = Source(path)
    with pytest.raises(ParseError, match="ends early"):
        parser_for(source, parsers()).parse(source)


def test_damaged_tables_are_errors_that_name_the_file(tmp_path: Path) -> None:
    names = Strings()
    many = [kernel(names, n, n + 5) for n in range(2000)]
    path = write_sqlite(report(CUPTI_ACTIVITY_KIND_KERNEL=many, StringIds=names.rows()), tmp_path)
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(tv.TraceViewError, match=r"report\.sqlite"):
        PARSER.parse(Source(path))
    for writer, name in ((write_parquet, "StringIds.parquet"), (write_arrow, "StringIds.arrow")):
        folder = writer(report(), tmp_path)
        (folder / name).write_bytes(b"PAR1 garbage")
        with pytest.raises(ParseError, match="table StringIds"):
            PARSER.parse(Source(folder))


def test_json_lines_beside_the_rows_are_passed_over(tmp_path: Path) -> None:
    path = write_json_lines(report(), tmp_path)
    row = nvtx(1, 2, '"table":"StringIds"') | {"table": "NVTX_EVENTS", "nested": {"a": [1]}}
    path.write_text(f'{path.read_text()}{json.dumps(row)}\n{{"table":"OSRT_API"\nnot json\n[]\n\n')
    [trace] = PARSER.parse(Source(path))
    assert texts(trace.table("ranges"), "raw_name") == ['"table":"StringIds"', "iteration 3"]
    path.write_text(path.read_text() + '{"table":"NVTX_EVENTS", "start":')
    with pytest.raises(ParseError, match=r"table NVTX_EVENTS.*no JSON"):
        PARSER.parse(Source(path))
