"""The cards: which numbers, which judgement, and what changed against a baseline."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from traceview.analyzers import alltoall, idle, stragglers
from traceview.reports.cards import Card, Figures, Mfu, cards
from traceview.reports.findings import Total
from traceview.statistics import StepTime
from traceview.terms import Asked
from traceview.utilization import of_tflops, of_throughput

MS = 1_000_000
FIGURES = Figures(
    step_ns=40 * MS,
    step_p95_ns=44 * MS,
    rank_step_count=32,
    exposed_ratio=0.2,
    overlap_ratio=0.9,
    a2a_p50_ns=3 * MS,
    a2a_p99_ns=5 * MS,
    wait_ratio=0.6,
    blamed_ratio=0.04,
    worst_rank=5,
    worst_ratio=0.75,
)


def _by_label(found: tuple[Card, ...]) -> dict[str, Card]:
    return {card.label: card for card in found}


def test_each_card_has_its_number_and_a_judgement_in_a_word() -> None:
    found = _by_label(cards(FIGURES))
    assert {label: (card.value, card.tone, card.word) for label, card in found.items()} == {
        "step time": ("40.0 ms", "plain", ""),
        "exposed communication": ("20.0 %", "fair", "moderate"),
        "overlap": ("90.0 %", "good", "high"),
        "all-to-all": ("3.00 ms", "plain", ""),
        "all-to-all waiting": ("60.0 %", "poor", "high"),
        "straggler loss": ("4.0 %", "fair", "moderate"),
    }
    assert "75.0 % of that waiting for rank 5" in found["straggler loss"].detail
    assert all(card.change is None for card in found.values())


def test_what_is_unknown_is_left_out_and_never_zero() -> None:
    unknown = Figures(None, None, 0, None, None, None, None, None, None, None, None)
    assert {card.label: card.value for card in cards(unknown)} == {
        "exposed communication": "–",
        "overlap": "–",
    }


def test_a_change_against_the_baseline_says_whether_it_is_better() -> None:
    before = replace(
        FIGURES, step_ns=50 * MS, exposed_ratio=0.1, overlap_ratio=0.9, a2a_p50_ns=2 * MS, wait_ratio=None
    )
    found = _by_label(cards(FIGURES, before))
    changes = {label: (card.change.text, card.change.trend) for label, card in found.items() if card.change}
    assert changes == {
        "step time": ("−20.0 %", "better"),
        "exposed communication": ("+10.0 points", "worse"),
        "overlap": ("+0.0 points", "same"),
        "all-to-all": ("+50.0 %", "worse"),
        "straggler loss": ("+0.0 points", "same"),
    }


def test_figures_are_taken_from_the_answers() -> None:
    total = Total(100 * MS, 60 * MS, 40 * MS, 10 * MS, 30 * MS, 0, 10 * MS, 4)
    time = StepTime(2, 4, 25.0 * MS, 26.0 * MS, None, None)
    exchanges = pl.DataFrame([{"dur_p50_ns": 3 * MS, "dur_p99_ns": 4 * MS, "wait_ratio": 0.5}])
    blame = pl.DataFrame(
        {
            "rank": [1, 0, None],
            "blamed_ns": [6 * MS, 2 * MS, 0],
            "unblamed_ns": [0, 0, 2 * MS],
            "complete_count": [4, 4, 4],
        }
    )
    late = pl.DataFrame({"host_late_ratio": [0.05]})
    used = of_tflops(250.0, Asked.of(model="deepseek-v3", gpu="H100"))
    found = Figures.of(total, time, exchanges, blame, late, used)
    assert found.mfu is not None
    assert found.mfu.tflops == pytest.approx(250.0)
    assert found.mfu.ratio == pytest.approx(0.25, rel=0.05)  # a quarter of roughly 990 TFLOP/s
    assert (found.mfu.low, found.mfu.peak) == (None, "H100 BF16")
    measured = (25.0 * MS, 26.0 * MS, 4, 0.3, 0.25, 3 * MS, 4 * MS, 0.5, 0.08, 1, 0.6, 0.05)
    assert replace(found, mfu=None) == Figures(*measured)
    unknown = of_throughput(1_000.0, Asked.of())
    nothing = Figures.of(
        total, None, alltoall.RESULT.empty(), stragglers.RESULT.empty(), idle.RESULT.empty(), unknown
    )
    assert (nothing.mfu, nothing.host_late_ratio) == (None, None)
    assert (nothing.step_ns, nothing.a2a_p50_ns, nothing.blamed_ratio, nothing.worst_rank) == (
        None,
        None,
        None,
        None,
    )


def test_a_host_has_a_card_only_where_it_costs_a_hundredth_of_the_time() -> None:
    late = _by_label(cards(replace(FIGURES, host_late_ratio=0.03)))["host late"]
    assert (late.value, late.tone, late.anchor) == ("3.0 %", "fair", "idle")
    assert "host late" not in _by_label(cards(replace(FIGURES, host_late_ratio=0.0099)))


def test_mfu_has_a_card_with_its_interval_and_no_judgement() -> None:
    now = replace(FIGURES, mfu=Mfu(0.42, 0.41, 0.43, 415.5, "H100 BF16"))
    card = _by_label(cards(now, replace(FIGURES, mfu=Mfu(0.40, None, None, 395.0, "H100 BF16"))))["MFU"]
    assert (card.value, card.tone) == ("42.0 %", "plain")
    assert card.detail == "of H100 BF16 (95 %: 41.0 to 43.0 %); 415.5 TFLOP/s per GPU"
    assert card.change is not None
    assert (card.change.text, card.change.trend) == ("+2.0 points", "better")
    other = _by_label(cards(now, replace(FIGURES, mfu=Mfu(0.3, None, None, 600.0, "H100 FP8"))))["MFU"]
    assert other.change is None, "shares of different peaks do not compare"


@pytest.mark.parametrize(
    ("verdict", "delta", "trend"),
    [("more", 4 * MS, "worse"), ("less", -4 * MS, "better"), ("insignificant", 4 * MS, "same")],
)
def test_where_chance_can_be_told_only_the_step_has_a_change_with_its_interval(
    verdict: str, delta: int, trend: str
) -> None:
    # ± half of an interval of 2 ms, of a step of 40 ms
    row = {"verdict": verdict, "a_step_ns": 40.0 * MS, "delta_step_ratio": delta / 40 / MS, "low_ns": delta - MS, "high_ns": delta + MS}  # fmt: skip
    compared = SimpleNamespace(totals=pl.DataFrame([row]))
    step, *others = cards(FIGURES, replace(FIGURES, exposed_ratio=0.1), compared=compared)  # type: ignore[arg-type]
    assert step.change is not None
    assert step.change.trend == trend
    assert step.change.text == f"{'+' if delta > 0 else '−'}10.0 % ± 2.5 %"
    assert [card.change for card in others] == [None] * len(others)


def test_with_too_few_steps_changes_stand_without_a_word_about_chance() -> None:
    compared = SimpleNamespace(totals=pl.DataFrame([{"verdict": "unknown"}]))
    before = replace(FIGURES, step_ns=20 * MS)
    assert cards(FIGURES, before, compared=compared) == cards(FIGURES, before)  # type: ignore[arg-type]
