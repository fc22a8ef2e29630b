"""Results as data, and data as text: no trace is read here."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analyzers import breakdown, collectives, experts, overlap, stragglers
from traceview.reports import delimited, findings, json_, layout, margins, text
from traceview.reports.about import StepUse
from traceview.reports.layout import Block, Facts, Grid, Note, Verdict
from traceview.reports.notices import Notice, notices
from traceview.reports.printable import REPLACEMENT, printable
from traceview.schema import DIAGNOSTICS, STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

# --- untrusted text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[31mred", "a\rb", "a\nb", "\u202eevil", "zero\u200bwidth", "\u2028", "\x9b2J", "\udcff", "\x00"],
)
def test_characters_that_steer_a_terminal_or_reorder_text_are_replaced(hostile: str) -> None:
    shown = printable(hostile)
    assert REPLACEMENT in shown
    assert len(shown) == len(hostile)
    assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("harmless", ["void gemm<128, 64>(float*)", "专家并行", "µs – é"])
def test_ordinary_names_of_any_language_stay_as_they_are(harmless: str) -> None:
    assert printable(harmless) == harmless


def test_a_page_may_keep_its_newlines() -> None:
    assert printable("a\nb\x1b", keep="\n") == f"a\nb{REPLACEMENT}"


# --- notices -----------------------------------------------------------------------------------------


def _diagnostics(*rows: tuple[int | None, str, str, str, int]) -> pl.DataFrame:
    return DIAGNOSTICS.conform(pl.DataFrame(rows, list(DIAGNOSTICS.columns), orient="row"))


def test_one_code_on_many_ranks_is_one_notice_and_the_severest_comes_first() -> None:
    found = notices(
        _diagnostics(
            (2, "info", "steps.none", "no steps", 0),
            (0, "warning", "b", "7 rows", 7),
            (3, "warning", "b", "9 rows", 9),
            (None, "error", "input.skipped", "broken", 1),
            (1, "warning", "a", "once", 1),
        )
    )
    assert [notice.code for notice in found] == ["input.skipped", "b", "a", "steps.none"]
    assert found[1] == Notice("warning", "b", "9 rows", (0, 3), 2)


def test_notices_beyond_the_limit_are_counted_and_not_lost() -> None:
    many = [Notice("warning", f"w{n}", "text", (0,), 1) for n in range(9)]
    lines = [note.text for note in margins.notes(many, rank_count=1, every_notice=False)]
    assert len(lines) == 7
    assert "3 warnings more" in lines[-1]


# --- steps -------------------------------------------------------------------------------------------


def test_left_out_steps_come_with_their_reason() -> None:
    status = {9: "warmup", 10: "complete", 11: "complete", 12: "partial"}
    rows = [{"rank": 0, "step": step, "status": s} for step, s in status.items()]
    filler = dict.fromkeys(("ts_ns", "dur_ns", "op_count"), 1) | {"source": "ProfilerStep"}
    steps = STEPS.frame([row | filler for row in rows])
    use = StepUse.of(steps, pl.DataFrame({"step": [10, 10]}))
    assert use.used == (10,)
    assert use.left_out == ((9, "warmup"), (11, "not asked for"), (12, "partial"))
    assert StepUse.of(steps, pl.DataFrame({"step": [None]}, schema={"step": pl.Int64})) == StepUse((), ())


# --- findings ----------------------------------------------------------------------------------------


def _total(**parts: int) -> findings.Total:
    row = dict.fromkeys(breakdown.MEASURES, 0) | {"window_count": 2} | parts
    return findings.Total.of(breakdown.RESULT.frame([row]))


def _kinds(*rows: tuple[str, str, str, int, int]) -> pl.DataFrame:
    names = ("axis", "collective", "role", "comm_ns", "exclusive_ns")
    constant = {"op_count": 1, "hidden_ns": 0, "exposed_ns": 0, "window_ns": 2000, "window_count": 2}
    listed = [dict(zip(names, row, strict=True)) | constant for row in rows]
    return overlap.RESULT.frame(listed) if listed else overlap.RESULT.empty()


def _evidence(kinds: pl.DataFrame, blame: pl.DataFrame | None = None) -> findings.Evidence:
    return findings.Evidence(
        kinds=kinds,
        latency=collectives.ANALYSIS.result.empty(),
        blame=stragglers.RESULT.empty() if blame is None else blame,
        loads=experts.RESULT.empty(),
    )


def test_the_verdict_names_the_most_expensive_kind_per_step() -> None:
    total = _total(window_ns=2000, comm_ns=800, hidden_comm_ns=500, exposed_comm_ns=300, idle_ns=100)
    kinds = _kinds(
        ("dp", "all_reduce", "none", 300, 80),
        ("ep", "all_to_all", "dispatch", 400, 220),
        ("tp", "x", "none", 9, 0),
    )
    verdict, first, idle, second = findings.findings(total, _evidence(kinds), window="step")
    assert verdict.text.startswith(
        "15.0 % of the step is exposed communication, mostly ep all_to_all dispatch"
    )
    assert "110 ns/step" in verdict.text
    assert verdict.text.endswith("62.5 % of communication is hidden.")
    assert (first.axis, first.exposed_ns, first.exposed_per_window_ns) == ("ep", 220, 110)
    assert second.exposed_ratio == 80 / 2000
    assert (idle.code, idle.exposed_ns) == ("idle", 100)


@pytest.mark.parametrize(
    ("parts", "start"),
    [
        ({}, "No device work"),
        (
            {"window_ns": 100, "compute_ns": 60, "idle_ns": 40},
            "No communication was recorded; the device idles 40.0 %",
        ),
        ({"window_ns": 100, "comm_ns": 50, "hidden_comm_ns": 50}, "All communication is hidden"),
    ],
)
def test_the_verdict_never_divides_by_what_is_not_there(parts: dict[str, int], start: str) -> None:
    verdict, *_ = findings.findings(_total(**parts), _evidence(_kinds()), window="window")
    assert verdict.text.startswith(start)


def test_findings_without_communication_are_null_and_not_zero() -> None:
    table = findings.table(findings.findings(_total(), _evidence(_kinds()), window="window"))
    assert table.row(0, named=True)["overlap_ratio"] is None
    assert table.row(0, named=True)["exposed_ratio"] is None


def _blame(*rows: tuple[int | None, int, str | None]) -> pl.DataFrame:
    """Straggler rows from (rank, blamed ns, cause)."""
    table = stragglers.RESULT
    zeros = {
        name: 0 for name, column in table.columns.items() if column.dtype.is_integer() and not column.nullable
    }
    plain = zeros | {"last_ratio": 0.0}
    return table.frame([plain | {"rank": rank, "blamed_ns": ns, "cause": cause} for rank, ns, cause in rows])


def test_a_rank_that_stands_out_is_named_with_its_cause_and_others_are_not() -> None:
    total = _total(window_ns=2000, comm_ns=800, exposed_comm_ns=800)
    loud = findings.findings(
        total, _evidence(_kinds(), _blame((5, 90, "late_launch"), (2, 10, None))), window="step"
    )
    [late] = [one for one in loud if one.code == "straggler"]
    assert (late.rank, late.exposed_ns) == (5, 90)
    assert "late launch" in late.text
    assert late.advice is not None
    crowd = _blame(*((rank, 10, None) for rank in range(8)))
    quiet = findings.findings(total, _evidence(_kinds(), crowd), window="step")
    assert [one.code for one in quiet] == ["verdict"]


def test_at_most_seven_sentences_are_said_the_most_expensive_ones() -> None:
    total = _total(window_ns=2000, comm_ns=800, exposed_comm_ns=800)
    kinds = _kinds(*((f"a{n}", "all_reduce", "none", 100, 100 - n) for n in range(12)))
    said = findings.findings(total, _evidence(kinds), window="step")
    assert [one.axis for one in said[1:]] == [f"a{n}" for n in range(6)]
    assert "" not in {one.text for one in said}


# --- layout ------------------------------------------------------------------------------------------

PAGE: list[Block] = [
    Facts((("run", "a"), ("ranks", "8"))),
    Grid("times", ("", "step ms"), (("rank 0", "1.5"), ("rank 10", "12.25"))),
    Note("odd", "warning"),
    Note("odder", "error"),
    Verdict("done"),
]


def test_plain_text_is_aligned_without_box_or_colour() -> None:
    assert layout.plain(PAGE).splitlines() == [
        "run    a",
        "ranks  8",
        "",
        "times",
        "         step ms",
        "rank 0       1.5",
        "rank 10    12.25",
        "",
        "warning: odd",
        "error: odder",
        "",
        "done",
    ]


def test_plain_text_is_never_cut() -> None:
    long = "x" * 500
    assert long in layout.plain([Grid("", ("a", "b"), ((long, "1"),))])


def _without_ansi(page: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", page)


def test_a_terminal_gets_the_same_words_with_the_verdict_in_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    page = layout.styled(PAGE, columns=40)
    assert "\x1b[1mdone" in page
    words = [word for word in _without_ansi(page).split() if not set(word) <= {"─"}]
    assert words == layout.plain(PAGE).split()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3\dm", layout.styled(PAGE, columns=80))


@pytest.mark.parametrize("render", [layout.plain, partial(layout.styled, columns=80)])
def test_names_cannot_inject_escapes_or_markup(render: Callable[[list[Block]], str]) -> None:
    evil = "\x1b]0;owned\x07[bold red]x[/]\u202e"
    page = render([Facts((("run", evil),)), Grid(evil, (evil,), ((evil,),)), Note(evil), Verdict(evil)])
    assert "\x1b]" not in page
    assert "\u202e" not in page
    assert page.count("[bold red]x[/]") == 6


# --- machine formats ---------------------------------------------------------------------------------

AWKWARD = pl.DataFrame(
    {
        "run": ['a,"b"\nc', "=1+1"],
        "rank": [0, None],
        "ratio": [math.nan, 0.5],
        "codes": [["x", "y"], []],
    },
    schema_overrides={"codes": pl.List(pl.String)},
)


def test_json_has_null_where_a_number_is_not_known() -> None:
    page = json_.document(
        "test", inputs=["é"], runs=[], diagnostics=DIAGNOSTICS.empty(), tables={"rows": AWKWARD}
    )
    assert page.isascii()
    content = json.loads(page)
    assert content["schema"] == "traceview/test/1"
    assert content["inputs"] == ["é"]
    assert content["rows"][0] == {"run": 'a,"b"\nc', "rank": 0, "ratio": None, "codes": ["x", "y"]}
    assert content["rows"][1]["rank"] is None


def test_csv_quotes_what_needs_it_and_keeps_every_value() -> None:
    rows = list(csv.reader(io.StringIO(delimited.csv(AWKWARD))))
    assert rows == [["run", "rank", "ratio", "codes"], ['a,"b"\nc', "0", "", "x;y"], ["=1+1", "", "0.5", ""]]


def test_markdown_cells_cannot_break_the_table() -> None:
    frame = pl.DataFrame({"name": ["a|b\n<script>", None], "count": [1, 2]})
    assert delimited.markdown(frame).splitlines() == [
        "| name | count |",
        "| --- | ---: |",
        f"| a\\|b{REPLACEMENT}&lt;script> | 1 |".replace(">", "&gt;"),
        "|  | 2 |",
    ]


@given(st.lists(st.tuples(st.text(), st.integers(0, 9)), max_size=5))
def test_csv_reads_back_as_it_was(rows: list[tuple[str, int]]) -> None:
    rows = [(name.replace("\r", "").replace("\x00", ""), number) for name, number in rows]
    frame = pl.DataFrame(rows, {"name": pl.String, "number": pl.Int64}, orient="row")
    back = list(csv.reader(io.StringIO(delimited.csv(frame), newline="")))
    assert back == [["name", "number"], *([name, str(number)] for name, number in rows)]


@pytest.mark.parametrize(("uncertainty_ns", "said"), [(24_600, True), (0, False), (None, False)])
def test_the_page_says_how_far_waiting_between_hosts_is_known(uncertainty_ns: int | None, said: bool) -> None:  # noqa: FBT001 - a case
    found = SimpleNamespace(findings=(), uncertainty_ns=uncertainty_ns)
    notes = text._findings(found)  # type: ignore[arg-type]
    assert [("± 24.6 µs" in note.text) for note in notes] == [True] * said
