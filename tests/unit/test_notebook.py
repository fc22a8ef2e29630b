"""What a notebook shows of runs, results and summaries: bounded, escaped, and without any work."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview.cli import main
from traceview.contracts import Analysis, Options
from traceview.reports import notebook
from traceview.reports.layout import Facts, Grid, Note, Verdict
from traceview.result import Result
from traceview.schema import Column, Table
from traceview.synth import Workload, write
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "<script>alert(1)</script>\x1b[31m\u202e\"'&"
TINY = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(TINY, folder)
    return folder


@pytest.fixture(scope="module")
def run(job: Path) -> tv.Run:
    return tv.load(job)


class Page(HTMLParser):
    """What a browser would make of it: balanced tags, text, attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(source)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.stack.append(tag)
        self.seen.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def _table(**columns: Column) -> Table:
    return Table("made", "By hand.", columns)


def _result(frame: pl.DataFrame, table: Table, by: tuple[str, ...] = ("rank",)) -> Result:
    analysis = Analysis("made", "What is it?", (), table, table, lambda *_: frame, lambda *_: frame)
    return Result(frame, analysis, Options(by=by))


SAFE = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "meter"}


# --- runs --------------------------------------------------------------------------------------------


def test_a_run_shows_ranks_mesh_steps_and_span(run: tv.Run) -> None:
    page = Page(run._repr_html_())
    assert page.seen <= SAFE
    for part in (
        "2 of 2",
        "ep 2",
        "kineto",
        "2 complete",
        "of device work, longest rank",
        "100.0",
        "of the job",
    ):
        assert part in page.text


def test_what_a_trace_says_is_escaped_bounded_and_steers_nothing(run: tv.Run) -> None:
    facts = replace(run.traces[0].facts, device_name=EVIL * 500, host=EVIL)
    note = diagnostic("warning", "evil", EVIL * 500, count=1)
    evil = replace(run, name=EVIL * 50, notes=note, traces=(replace(run.traces[0], facts=facts),))
    source = evil._repr_html_()
    page = Page(source)
    assert page.seen <= SAFE
    assert "\x1b" not in source
    assert "\u202e" not in source
    assert len(source) < 6_000
    assert "\n" not in repr(evil)
    assert "\x1b" not in repr(evil)
    assert len(repr(evil)) < 400


def test_a_run_reads_two_small_tables_of_one_rank_and_nothing_else(run: tv.Run) -> None:
    class Watched(dict[str, pl.DataFrame]):
        read: list[str] = []  # noqa: RUF012 - one list for the test

        def __getitem__(self, name: str) -> pl.DataFrame:
            self.read.append(name)
            return super().__getitem__(name)

    watched = replace(run, traces=tuple(replace(trace, tables=Watched(trace.tables)) for trace in run.traces))
    watched._repr_html_()
    assert set(Watched.read) <= {"steps", "groups"}
    assert len(Watched.read) <= 2


def test_missing_ranks_and_a_job_of_unknown_size_are_said(run: tv.Run) -> None:
    half = replace(run, traces=run.traces[:1])
    assert "1 of 2" in Page(half._repr_html_()).text
    assert 'value="1"' in half._repr_html_()
    unknown = replace(
        run, traces=tuple(replace(t, facts=replace(t.facts, world_size=None)) for t in run.traces)
    )
    assert "size of the job not recorded" in unknown._repr_html_()
    assert "<meter" not in unknown._repr_html_()


def test_many_warnings_are_cut_with_their_number(run: tv.Run) -> None:
    notes = pl.concat([diagnostic("warning", f"code{n:02}", f"warning {n:02}", count=1) for n in range(30)])
    page = Page(replace(run, notes=notes)._repr_html_())
    assert page.text.count("warning 0") + page.text.count("warning 1") + page.text.count("warning 2") <= 8
    assert "more kinds of warnings" in page.text


# --- results -----------------------------------------------------------------------------------------


def test_a_result_shows_its_question_its_grain_its_units_and_what_columns_mean(run: tv.Run) -> None:
    page = Page(tv.breakdown(run, by=("rank", "step"))._repr_html_())
    assert page.seen <= SAFE
    assert "Where does the step go?" in page.text
    assert "by rank, step; steps auto; 4 rows" in page.text
    assert ("title", "nothing runs on the device [ns]") in page.attributes


def test_values_have_units_and_null_is_a_dash() -> None:
    table = _table(
        rank=Column(pl.Int32(), "rank"),
        time_ns=Column(pl.Int64(), "time", "ns", nullable=True),
        sent_bytes=Column(pl.Int64(), "sent", "bytes"),
        busbw_bytes_per_s=Column(pl.Float64(), "rate", "bytes/s"),
        overlap_ratio=Column(pl.Float64(), "share"),
        op_count=Column(pl.Int64(), "ops"),
        is_whole=Column(pl.Boolean(), "whole"),
        speed=Column(pl.Float64(), "speed", "tokens/s"),
    )
    rows = table.frame(
        [
            {"rank": 1024, "time_ns": 1_500_000, "sent_bytes": 2_000_000, "busbw_bytes_per_s": 4.5e10,
             "overlap_ratio": 0.25, "op_count": 12345, "is_whole": True, "speed": 1234.0},
            {"rank": 0, "time_ns": None, "sent_bytes": 0, "busbw_bytes_per_s": float("nan"),
             "overlap_ratio": 1.0, "op_count": 0, "is_whole": False, "speed": 0.0},
        ]
    )  # fmt: skip
    text = Page(_result(rows, table)._repr_html_()).text.replace("\N{NO-BREAK SPACE}", " ").split("\n")
    for value in (
        "1024",
        "1.50 ms",
        "2.00 MB",
        "45.0 GB/s",
        "25.0 %",
        "12,345",
        "yes",
        "1,234 tokens/s",
        "–",
        "no",
    ):
        assert value in text, value


def test_a_large_result_is_cut_and_says_so() -> None:
    table = _table(
        name=Column(pl.String(), "name", nullable=True), never=Column(pl.String(), "x", nullable=True)
    )
    result = _result(table.frame(pl.DataFrame({"name": [EVIL * 100] * 5_000})), table)
    source = result._repr_html_()
    page = Page(source)
    assert page.seen <= SAFE
    assert len(source) < 20_000
    assert "4,980 more rows" in page.text
    assert "1 columns hold nothing here" in page.text
    assert "never" not in page.text


def test_an_empty_result_still_shows_its_columns() -> None:
    table = _table(idle_ns=Column(pl.Int64(), "idle", "ns"))
    page = Page(_result(table.empty(), table)._repr_html_())
    assert "idle_ns" in page.text
    assert "0 rows" in page.text


def test_arrow_carries_what_columns_mean_and_their_units(run: tv.Run) -> None:
    for result in (tv.breakdown(run), tv.all_to_all(run), tv.stragglers(run), tv.expert_load(run)):
        table = result.to_arrow()
        assert pl.DataFrame(table).equals(result.frame)
        for name, column in result.analysis.result.columns.items():
            metadata = table.schema.field(name).metadata
            assert metadata[b"doc"].decode() == column.doc
            assert metadata.get(b"unit", b"").decode() == (column.unit or "")
    assert pa.table(result).num_rows == len(result.frame)


def test_pandas_gets_the_same_numbers(run: tv.Run) -> None:
    pytest.importorskip("pandas")
    result = tv.breakdown(run)
    assert result.to_pandas()["idle_ns"].tolist() == result.frame["idle_ns"].to_list()


def test_without_pandas_the_error_says_what_to_use_instead(
    run: tv.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pandas is not installed[\s\S]*pip install pandas; or use .frame"):
        tv.breakdown(run).to_pandas()


# --- summaries and blocks ----------------------------------------------------------------------------


def test_a_summary_is_what_the_command_prints(job: Path, run: tv.Run) -> None:
    summary = tv.summary(run)
    assert str(summary) == CliRunner().invoke(main, ["summary", str(job)]).stdout
    verdict = tv.findings(run).row(0, named=True)
    assert verdict["code"] == "verdict"
    assert verdict["text"] in str(summary)
    assert repr(summary) == f"<summary of '{run.name}': {verdict['text']}>"
    page = Page(summary._repr_html_())
    assert page.seen <= SAFE
    assert verdict["text"] in page.text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_grains_of_a_summary_are_those_of_the_command(job: Path, run: tv.Run) -> None:
    asked = ["summary", str(job), "--by", "step,layer", "-f", "json"]
    content = json.loads(CliRunner().invoke(main, asked).stdout)
    summary = tv.summary(run, by=("step", "layer"))
    for frame, key in ((summary.breakdown, "breakdown"), (summary.collectives, "collectives")):
        assert [{"run": run.name} | row for row in frame.to_dicts()] == content[key]
    with pytest.raises(tv.TraceViewError, match="cannot be shown by weather"):
        tv.summary(run, by=("weather",))


def test_every_kind_of_block_is_shown_and_escaped() -> None:
    rows = tuple((EVIL, "1") for _ in range(50))
    source = notebook.blocks(
        [Facts(((EVIL, EVIL),), EVIL), Grid(EVIL, (EVIL, "n"), rows), Note(EVIL, "warning"), Verdict(EVIL)]
    )
    page = Page(source)
    assert page.seen <= SAFE
    assert "and 30 more rows" in page.text
    assert page.text.count("alert(1)") == 3 + 1 + 1 + notebook.ROWS + 2
