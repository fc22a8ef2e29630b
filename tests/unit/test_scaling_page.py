"""The page of scaling on frames made by hand: every number formatted, every withheld one explained."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceview.analyzers import efficiency
from traceview.comparisons import _causes
from traceview.comparisons._losses import LOSSES
from traceview.comparisons.scaling import SIZES, Scaling
from traceview.reports import layout
from traceview.reports.scaling import page, sentence

BASE = {
    "run": "small",
    "rank_count": 256,
    "recorded_count": 8,
    "is_world_known": True,
    "step_count": 6,
    "window_count": 48,
    "step_ns": 20e6,
}
LARGE = BASE | {
    "run": "large",
    "rank_count": 1024,
    "base_run": "small",
    "step_ns": 21e6,
    "scaling": "weak",
    "held": "tokens per rank",
    "tokens_from": "given",
    "tokens_per_rank_over_base": 1.0,
    "retention": 0.952381,
    "retention_low": 0.95,
    "retention_high": 0.96,
    "speedup": 3.81,
    "linear_speedup": 4.0,
}
PAIR = {"run": "large", "base_run": "small"}
LOST: list[dict[str, Any]] = [
    {"part": "compute", "base_ns": 12_000_000, "time_ns": 12_000_000},
    {"part": "comm", "axes": "ep", "cause": "transfer", "base_ns": 7_000_000, "time_ns": 7_900_000},
    {"part": "several", "axes": "dp+edp", "base_ns": 1_000_000, "time_ns": 1_100_000},
]
FAR = {"axis": "ep", "loss_ns": 900_000, "shared_loss_ns": 0, "loss_ratio": 0.043, "cause": "left_domain"}
FAR |= {"base_far_ratio": 0.0, "far_ratio": 0.5}


def _found(*sizes: dict[str, Any]) -> Scaling:
    losses = [
        PAIR
        | row
        | {
            "ideal_ns": row["base_ns"],
            "change_ns": row["time_ns"] - row["base_ns"],
            "loss_ns": row["time_ns"] - row["base_ns"],
            "loss_ratio": (row["time_ns"] - row["base_ns"]) / 21e6,
        }
        for row in LOST
    ]
    is_pair = len(sizes) > 1
    tree = efficiency.RESULT.frame(
        [{"rank_count": 8, "window_count": 48, "window_ns": 9, "compute_ns": 5, "busy_ns": 8}]
    )
    return Scaling(
        SIZES.frame(list(sizes)),
        LOSSES.frame(pl.DataFrame(losses, infer_schema_length=None)) if is_pair else LOSSES.empty(),
        _causes.RESULT.frame([PAIR | FAR]) if is_pair else _causes.RESULT.empty(),
        pl.concat(tree.select(pl.lit(row["run"]).alias("run"), pl.all()) for row in sizes),
    )


def _text(*sizes: dict[str, Any]) -> str:
    found = _found(*sizes)
    return layout.plain(page(found, {row["run"]: () for row in sizes}))


def test_the_verdict_says_what_is_kept_and_what_costs_most() -> None:
    assert sentence(_found(BASE, LARGE)) == (
        "From 256 to 1,024 ranks a rank keeps 95.2 % of its speed (95.0 to 96.0 %), weak scaling; the largest "
        "loss is ep transferring, 900 µs of 1.00 ms per step: more of its bytes leave the scale-up (NVLink) domain."
    )


def test_a_refused_retention_says_why() -> None:
    refused = LARGE | dict.fromkeys(("scaling", "retention", "retention_low", "retention_high", "speedup"))
    text = _text(BASE, refused | {"reason": "nothing tells"})
    assert "missing: large: no retention: nothing tells" in text
    assert text.splitlines()[-1] == "From 256 to 1,024 ranks, retention is not known: nothing tells."


def test_losses_stand_with_the_largest_first_and_their_sum_last() -> None:
    lines = _text(BASE, LARGE).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("what  "))
    assert [line.split("  ")[0] for line in lines[at + 1 : at + 5]] == [
        "ep transferring",
        "dp and edp at once",
        "compute",
        "step",
    ]
    assert lines[at + 4].split()[1:4] == ["20.0", "21.0", "1.00"]


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"is_world_known": False}, "info: large: nothing says how large the job is"),
        ({"tokens_from": "evidence"}, "info: large: a rank is taken to work on as many tokens as in small"),
        ({"retention_low": None, "retention_high": None}, "missing: large: too few steps for an interval"),
    ],
)
def test_what_is_assumed_or_missing_is_said(change: dict[str, Any], remark: str) -> None:
    assert remark in _text(BASE, LARGE | change)


def test_a_lone_run_promises_nothing() -> None:
    text = _text(BASE)
    assert "published" not in text
    assert text.splitlines()[-1].startswith("One run alone says nothing about scaling")


def test_published_curves_stand_beside() -> None:
    lines = [line for line in _text(BASE, LARGE).splitlines() if "256 → 1,024" in line]
    assert [line.split()[-2] for line in lines] == ["98.5", "97.0", "97.0"]


def test_a_hostile_name_stays_text() -> None:
    text = _text(BASE | {"run": "bad\x1b[31mname"})
    assert "\x1b" not in text
