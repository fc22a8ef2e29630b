"""What Nsight Systems reports may lack, and what they may hold that is broken, hostile or private."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_reports import (
    PRIVATE,
    WRITERS,
    Strings,
    codes,
    everything_said,
    kernel,
    nvtx,
    parse,
    parse_all,
    report,
    rich,
    texts,
    write_sqlite,
)

import traceview as tv
from traceview.classify import Classifier
from traceview.errors import ParseError
from traceview.parsers._nsys_columns import TABLES, WORK_TABLES
from traceview.parsers.nsys import PARSER
from traceview.prepare import prepare
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("absent", TABLES)
def test_a_report_without_one_of_its_tables_is_still_answered(tmp_path: Path, absent: str) -> None:
    tables = rich()
    tables.pop(absent, None)
    path = write_sqlite(tables, tmp_path)
    run = tv.load(path)
    assert ("nsys.table_absent" in set(run.diagnostics["code"])) is (absent in WORK_TABLES)
    busy = tv.breakdown(run, steps="all").frame["compute_ns"].sum()
    # two overlapping kernels on rank 0, of which one is communication where its name is known
    expected = {"CUPTI_ACTIVITY_KIND_KERNEL": 0, "StringIds": 160 + 110}.get(absent, 100 + 110)
    assert busy == expected
    tv.all_to_all(run)


@pytest.mark.parametrize("absent", TABLES)
def test_an_empty_table_is_no_absent_one(tmp_path: Path, absent: str) -> None:
    trace = parse_all(report() | {absent: []}, tmp_path)[0]
    assert "nsys.table_absent" not in codes(trace)
    counted = {"GPU_METRICS", "CUDA_GPU_MEMORY_USAGE_EVENTS", "NET_NIC_METRIC", "NET_IB_SWITCH_METRIC"}
    assert ("counters" in trace.tables) is (absent in counted | {"NET_ETH_SWITCH_METRIC"})


def test_columns_of_other_versions_may_be_absent_unless_the_table_is_useless_without(tmp_path: Path) -> None:
    for table, spec in TABLES.items():
        for column, wanted in spec.columns.items():
            tables = rich()
            if table not in tables or column not in tables[table][0]:
                continue
            for row in tables[table]:
                del row[column]
                row["another"] = 1
            path = write_sqlite(tables, tmp_path, f"{table}.{column}.sqlite")
            if wanted.required:
                with pytest.raises(ParseError, match=f"table {table}.*lacks the column {column}"):
                    PARSER.parse(Source(path))
            else:
                assert PARSER.parse(Source(path))


_VALUES = st.one_of(
    st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)


@settings(max_examples=25)
@given(data=st.data())
def test_values_of_any_type_in_any_column_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tables = rich()
    for rows in tables.values():
        row = data.draw(st.sampled_from(rows))
        column = data.draw(st.sampled_from(sorted(row)))
        row[column] = data.draw(_VALUES)
    path = write_sqlite(tables, tmp_path_factory.mktemp("any"))
    try:
        found = PARSER.parse(Source(path))
    except tv.TraceViewError as error:
        assert "nsys" in str(error).lower() or "table" in str(error)  # noqa: PT017 - any of two errors will do
        return
    for trace in found:
        assert (trace.table("ops")["dur_ns"] >= 0).all()
        prepare(trace, Classifier.default())


@pytest.mark.parametrize(
    "name", ["\x00tail", "a\x00b", "\x1b[31mred\x1b[0m", "<script>", "x" * 10_000, "", "\udc80", "%s{}"]
)
def test_hostile_names_pass_bounded_and_end_at_a_nul(tmp_path: Path, name: str) -> None:
    names = Strings()
    rows = [kernel(names, 100, 200, name="KERNEL")]
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=rows, NVTX_EVENTS=[nvtx(0, 9, name.encode("utf-8", "replace").decode())]
    )
    tables["StringIds"] = [
        row | {"value": name.encode("utf-8", "replace").decode()} if row["value"] == "KERNEL" else row
        for row in names.rows()
    ]
    trace = parse(tables, tmp_path)
    expected = name.encode("utf-8", "replace").decode().split("\0")[0][:4096]
    assert texts(trace.table("ops"), "name") == [expected]
    assert texts(trace.table("ranges"), "raw_name") == [expected]


def test_text_that_is_no_unicode_is_replaced(tmp_path: Path) -> None:
    path = write_sqlite(report(), tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'67ff' AS TEXT) WHERE value = 'gemm'")
        connection.commit()
    [trace] = PARSER.parse(Source(path))
    assert texts(trace.table("ops"), "name") == ["g\ufffd"]


@pytest.mark.parametrize("kind", WRITERS)
def test_secrets_of_the_job_reach_no_table_and_no_message(tmp_path: Path, kind: str) -> None:
    tables = rich()
    tables["StringIds"] += [
        {"id": 900, "value": f"PATH=/bin\0HF_TOKEN={PRIVATE}"},
        {"id": 901, "value": PRIVATE},
    ]
    tables["TARGET_INFO_SYSTEM_ENV"] += [
        {"name": "DeviceEnvironment", "value": f"TOKEN={PRIVATE}"}, {"name": "Hostname2", "value": PRIVATE},
    ]  # fmt: skip
    tables["META_DATA_CAPTURE"] = [
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE_3", "value": f"HF_TOKEN={PRIVATE}"},
        {"name": "PROCESS_0:ARGUMENT_1", "value": f"--token={PRIVATE}"},
        {"name": "CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Graph"},
    ]
    tables["META_DATA_EXPORT"] += [{"name": "EXPORT_PARAM_INPUT_PATH", "value": f"/home/{PRIVATE}"}]
    for trace in PARSER.parse(Source(WRITERS[kind](tables, tmp_path))):
        assert PRIVATE not in everything_said(trace)
        assert PRIVATE not in everything_said(prepare(trace, Classifier.default()))


def test_errors_quote_no_value(tmp_path: Path) -> None:
    tables = report()
    for row in tables["TARGET_INFO_SYSTEM_ENV"]:
        row["secret"] = PRIVATE
        del row["value"]
    with pytest.raises(ParseError) as refused:
        parse(tables, tmp_path)
    assert PRIVATE not in str(refused.value)
