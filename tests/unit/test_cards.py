"""The cards: which numbers, which judgement, and what changed against a baseline."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from traceview.analyzers import alltoall, stragglers
from traceview.reports.cards import Card, Figures, cards
from traceview.reports.findings import Total
from traceview.statistics import StepTime

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
    found = Figures.of(total, time, exchanges, blame)
    assert found == Figures(25.0 * MS, 26.0 * MS, 4, 0.3, 0.25, 3 * MS, 4 * MS, 0.5, 0.08, 1, 0.6)
    nothing = Figures.of(total, None, alltoall.RESULT.empty(), stragglers.RESULT.empty())
    assert (nothing.step_ns, nothing.a2a_p50_ns, nothing.blamed_ratio, nothing.worst_rank) == (
        None,
        None,
        None,
        None,
    )
