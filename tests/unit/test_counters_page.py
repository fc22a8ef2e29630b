"""The page of ``traceview counters``, on rows made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from click.testing import CliRunner

from traceview import cli
from traceview.analyzers.counters import RESULT
from traceview.reports.about import About
from traceview.reports.counters import ROWS, page, sentence
from traceview.reports.layout import plain
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = About(name="r", ranks=(0, 1), world_size=2, formats=("nsys",), device_names=(), hosts=())
LINK = "NVLink TX Responses User Data"
ROW: dict[str, Any] = {
    "metric": LINK, "unit": "%", "mean": 41.5, "median": 40.0, "p95": 66.0, "min": 0.0, "max": 90.0,
    "quantile_error_ratio": 0.0, "sample_count": 1234, "device_count": 2, "period_ns": 100_000,
    "sampled_ns": 90, "window_ns": 100, "sampled_ratio": 0.9, "method": "mean before",
}  # fmt: skip


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return RESULT.frame([ROW | row for row in rows]) if rows else RESULT.empty()


def text(rows: pl.DataFrame, states: pl.DataFrame) -> str:
    return plain(page(ABOUT, rows, (), states=states, every_notice=False))


STATES = frame(
    {"state": "compute", "mean": 3.0},
    {"state": "exposed_comm", "mean": 58.8},
    {"state": "idle", "mean": None},
)


def test_the_page_says_how_samples_weigh_and_shows_each_state_beside_the_whole() -> None:
    shown = text(frame({}), STATES)
    assert "each sample is the mean of the time before it" in shown
    [whole, by_state] = [line.split() for line in shown.splitlines() if line.startswith(LINK)]
    assert whole[5:] == ["%", "41.5", "40.0", "66.0", "0", "90.0", "1,234", "100", "µs", "90.0"]
    assert by_state[5:] == ["%", "3.00", "58.8", "–", "–"]
    assert shown.splitlines()[-1] == sentence(STATES)


def test_the_sentence_is_about_the_busiest_link_while_communication_was_exposed() -> None:
    other = frame({"metric": "SMs Active", "state": "exposed_comm", "mean": 99.0})
    assert sentence(pl.concat([other, STATES])) == (
        f"While communication was exposed, {LINK} was at 58.8 %, and at 3.00 % while compute ran."
    )
    assert sentence(other) == "1 counter was recorded, and none tells how busy a link was meanwhile."


def test_without_counters_the_page_says_how_to_record_them() -> None:
    shown = text(frame(), frame())
    for option in ("--gpu-metrics-devices=all", "--nic-metrics=true", "profile_memory=True"):
        assert option in shown
    assert "No counters were recorded" in shown


def test_rows_by_state_need_no_second_table() -> None:
    assert text(STATES, STATES).count(LINK) == len(STATES) + 1  # and once in the sentence


def test_quantiles_of_buckets_and_samples_without_a_time_are_said() -> None:
    memory = {"metric": "memory allocated", "unit": "bytes", "mean": 5.5e9, "method": "each sample"}
    shown = text(frame(memory | {"quantile_error_ratio": 0.01}), STATES)
    assert "5.50 GB" in shown
    assert "within 1.0 %" in shown
    assert "each sample counts once" in shown


def test_hostile_and_long_names_stay_names_and_long_tables_are_counted() -> None:
    rows = frame(*({"metric": f"\x1b[31m{'x' * 300}{n}"} for n in range(ROWS + 3)))
    shown = text(rows, STATES)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 200
    assert "3 more rows" in shown


def test_the_command_answers_and_without_counters_leaves_with_success(tmp_path: Path) -> None:
    tiny = Workload(ranks=1, expert_parallel=1, experts=2, top_k=1, steps=1, layers=1, tokens=64)
    write(tiny, tmp_path)
    result = CliRunner().invoke(cli.main, ["counters", str(tmp_path)])
    assert result.exit_code == 0
    assert "no counters were recorded" in result.stdout
