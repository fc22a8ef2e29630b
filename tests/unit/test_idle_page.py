"""The page about idle time, on frames made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from traceview.analyzers._gaps import CAUSES
from traceview.analyzers.idle import RESULT
from traceview.reports.about import About
from traceview.reports.idle import ADVICE, MEANINGS, Evidence, page
from traceview.reports.layout import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = About(
    name="run",
    ranks=(0, 1),
    world_size=2,
    formats=("kineto",),
    device_names=("H100",),
    hosts=("a",),
)
COUNTS = ("idle_ns", "host_late_ns", "no_compute_ns", "gap_count", "longest_ns", "sync_count", "sync_wait_ns")
WHOLE = {"window_ns": 20_000_000, "window_count": 2}
ITEM = {"sync": "cudaStreamSynchronize", "reason": "scalar", "operator": "aten::item", "range": "moe.router"}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """An `idle` result; what a row does not give is 0 or null."""
    return RESULT.frame(
        pl.DataFrame([WHOLE | dict.fromkeys(COUNTS, 0) | row for row in rows], infer_schema_length=None)
        if rows
        else RESULT.empty()
    )


def evidence(total: dict[str, Any], parts: Sequence[dict[str, Any]]) -> Evidence:
    return Evidence.of(frame(total), frame(*({"step": 1} | part for part in parts)))


def test_every_cause_has_a_meaning_and_an_advice() -> None:
    assert set(MEANINGS) == set(ADVICE) == set(CAUSES)


def test_the_sentence_names_the_wait_that_costs_most() -> None:
    total = {"idle_ns": 2_400_000, "idle_ratio": 0.12, "host_late_ns": 1_800_000}
    parts = [
        {"cause": "host_blocked", "idle_ns": 1_600_000, **ITEM},
        {"cause": "host_blocked", "idle_ns": 200_000, "sync": "cudaDeviceSynchronize", "reason": "drain"},
        {"cause": "turnaround", "idle_ns": 600_000},
    ]
    assert evidence(total, parts).sentence() == (
        "The device idles 1.20 ms/step (12.0 %), of which 900 µs/step since the host is late, "
        "800 µs/step of it behind aten::item in moe.router."
    )


def test_the_sentence_says_what_else_most_of_the_idle_time_is() -> None:
    total = {"idle_ns": 2_000_000, "idle_ratio": 0.1}
    assert evidence(total, [{"cause": "graph_unseen", "idle_ns": 2_000_000}]).sentence() == (
        "The device idles 1.00 ms/step (10.0 %); most of it, 1.00 ms/step, is graph unseen: "
        "beside a graph replay, nothing else recorded."
    )


@pytest.mark.parametrize(
    ("total", "sentence"),
    [
        ({}, "The device never idles."),
        ({"window_ns": 0}, "No device work was recorded, so there is nothing to measure."),
    ],
)
def test_nothing_to_say_is_said(total: dict[str, Any], sentence: str) -> None:
    assert evidence(total, []).sentence() == sentence


def test_the_page_shows_causes_waits_and_how_far_the_host_is_ahead() -> None:
    total = {
        "idle_ns": 2_000_000,
        "idle_ratio": 0.1,
        "delay_median_ns": 24_000.0,
        "delay_p95_ns": 160_000.0,
        "queue_depth": 1.5,
        "queue_empty_ratio": 0.25,
        "graph_launch_count": 3,
        "graph_op_ratio": 0.5,
        "graph_busy_ratio": 0.75,
        "opaque_count": 1,
        "opaque_ns": 4_000_000,
    }
    parts = [{"cause": "host_blocked", "idle_ns": 2_000_000, "sync_count": 4, **ITEM}]
    shown = evidence(total, parts)
    rows = frame({"cause": "host_blocked", "idle_ns": 2_000_000, "idle_ratio": 0.1, "gap_count": 8})
    text = plain(page(ABOUT, rows, (), evidence=shown, every_notice=False))
    assert "median 24.0 µs, p95 160 µs" in text
    assert "1.50 ops launched and not finished on average; empty for 25.0 % of the time" in text
    assert (
        "3 graph launches start 50.0 % of device ops and 75.0 % of busy time; 1 opaque block (2.00 ms/step)"
        in text
    )
    assert "host_blocked  the host launches late, after waiting for the device     1.00" in text
    assert "cudaStreamSynchronize  aten::item  moe.router  scalar         2.00" in text
    assert "to try: keep the value on the device" in text


def test_hostile_names_reach_neither_terminal_nor_lines() -> None:
    hostile = {"sync": "cudaStreamSynchronize", "reason": "drain", "range": "a\x1b[31m\n" + "x" * 500}
    shown = evidence({"idle_ns": 1, "host_late_ns": 1}, [{"cause": "host_blocked", "idle_ns": 1, **hostile}])
    text = plain(page(ABOUT, frame(), (), evidence=shown, every_notice=False))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 300
