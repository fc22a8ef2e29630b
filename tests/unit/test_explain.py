"""What a metric means: from the tables, and from the file that explains the headline ones."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files

import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import metrics
from traceview.cli import main
from traceview.errors import UsageError
from traceview.reports import explain, outputs

COLUMNS = set(explain.columns()["column"])


def test_the_file_explains_the_headline_metrics() -> None:
    wanted = ["exposed", "overlap", "wait", "transfer", "busbw", "mfu", "scaling efficiency", "imbalance"]
    wanted += ["coefficient of variation", "gini coefficient", "launch-starved", "blocking"]
    assert [word for word in wanted if word not in metrics.by_word()] == []
    assert len(metrics.metrics()) >= 25


def test_every_column_the_file_names_stands_in_a_result() -> None:
    assert [column for column in metrics.by_column() if column not in COLUMNS] == []


def test_every_ratio_of_a_result_is_explained() -> None:
    assert (
        sorted(name for name in COLUMNS if name.endswith("_ratio") and name not in metrics.by_column()) == []
    )


def test_no_column_and_no_word_is_explained_twice() -> None:
    entries = tomllib.loads((files("traceview.data") / "metrics.toml").read_text(encoding="utf-8"))["metric"]
    for key in ("columns", "words"):
        named = [name for entry in entries for name in entry[key]]
        assert len(named) == len(set(named)), key
    words = [name for entry in entries for name in {*entry["words"], entry["title"].lower()}]
    assert len(words) == len(set(words))


def test_no_word_hides_a_column_of_the_same_name() -> None:
    same = {word: column for word, column in metrics.by_word().items() if word in COLUMNS}
    assert [(word, column) for word, column in same.items() if word not in _columns_of(column)] == []


def _columns_of(column: str) -> tuple[str, ...]:
    return metrics.by_column()[column].columns


def test_every_field_of_every_metric_says_something() -> None:
    for metric in metrics.metrics():
        assert all([metric.formula, metric.method, metric.evidence, metric.pitfalls, metric.source]), (
            metric.title
        )


def test_a_column_is_explained_with_all_places_where_it_stands() -> None:
    found = tv.explain("exposed_comm_ns")
    places = {(result, table) for result, table in found.columns.select("result", "table").rows()}
    expected = {
        (result, key)
        for result, tables in outputs.tables().items()
        for key, table in tables.items()
        if "exposed_comm_ns" in table.columns
    }
    assert places == expected
    assert {("breakdown", "rows"), ("summary", "breakdown"), ("compare", "totals")} <= places
    page = str(found)
    for part in (
        "communication without compute",
        "unit      ns",
        "comm − compute",
        "upper bound",
        "evidence",
    ):
        assert part in page


@pytest.mark.parametrize(
    ("said", "column"),
    [
        ("MFU", "mfu_ratio"),
        ("busbw", "busbw_bytes_per_s"),
        ("Launch-Starved", "host_late_ns"),
        (" gini ", "gini"),
    ],
)
def test_what_people_call_a_metric_is_understood(said: str, column: str) -> None:
    assert tv.explain(said).name == column


def test_a_column_that_needs_no_more_than_its_line_has_its_line() -> None:
    found = tv.explain("window_count")
    assert found.metric is None
    assert "windows" in str(found)
    assert "formula" not in str(found)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("exposd_comm_ns", "exposed_comm_ns"), ("overlap_ration", "overlap_ratio"), ("retenion", "retention")],
)
def test_an_unknown_name_gets_the_nearest_ones(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"no result has a column '{wrong}'; nearest: {near}"):
        tv.explain(wrong)


def test_a_hostile_name_is_cut_short_and_made_printable() -> None:
    result = CliRunner().invoke(main, ["explain", "\x1b[31m" + "x" * 9_999])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 400


def test_the_command_gives_the_same_as_text_and_as_json() -> None:
    assert CliRunner().invoke(main, ["explain", "mfu"]).stdout == str(tv.explain("mfu"))
    content = json.loads(CliRunner().invoke(main, ["explain", "mfu", "-f", "json"]).stdout)
    assert {row["column"] for row in content["rows"]} == {"mfu_ratio"}
    assert [row["title"] for row in content["metrics"]] == ["Model FLOPs utilisation"]


def test_without_a_name_every_metric_is_listed() -> None:
    page = CliRunner().invoke(main, ["explain"]).stdout
    assert [metric.title for metric in metrics.metrics() if metric.title not in page] == []
    content = json.loads(CliRunner().invoke(main, ["explain", "-f", "json"]).stdout)
    assert len(content["metrics"]) == len(metrics.metrics())
    assert {row["column"] for row in content["rows"]} == COLUMNS


def test_units_come_from_the_tables() -> None:
    for name in ("wait_ns", "busbw_bytes_per_s", "sent_bytes"):
        units = tv.explain(name).columns.get_column("unit")
        assert units.is_not_null().all()
        assert f"unit      {units[0]}" in str(tv.explain(name)) or f"unit   {units[0]}" in str(
            tv.explain(name)
        )
    assert isinstance(tv.explain("cv").columns, pl.DataFrame)
