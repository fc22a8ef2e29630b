"""The handful of numbers that are looked at first, each with a judgement in a word and a colour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from traceview import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from traceview.comparisons.compare import Comparison
    from traceview.reports.findings import Total
    from traceview.statistics import StepTime
    from traceview.utilization import Utilization

Tone = Literal["good", "fair", "poor", "plain"]
Trend = Literal["better", "worse", "same"]
TONES: tuple[Tone, ...] = ("good", "fair", "poor")
HOST_LATE = 0.01
"""From this share of the time on a late host has a card."""

SAME = 0.005
"""A relative change, or one in a share of the whole, below this is called no change."""


@dataclass(frozen=True, slots=True)
class Change:
    """How far a number moved against the baseline, and whether that is for the better."""

    text: str
    trend: Trend


@dataclass(frozen=True, slots=True)
class Card:
    """One number.

    Attributes:
        label: What it is.
        value: The number as text.
        detail: What it rests on.
        tone: Good, fair, poor; or plain where nothing can be said without knowing the job.
        word: The tone in a word.
        anchor: Section with the evidence.
        change: Against the baseline, if there is one and it knows the number.
    """

    label: str
    value: str
    detail: str
    tone: Tone = "plain"
    word: str = ""
    anchor: str = ""
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Mfu:
    """How much of its peak a GPU reaches.

    Attributes:
        ratio: Of the peak, at the median step.
        low: Low end of its 95 % interval; None with too few steps.
        high: High end of it.
        tflops: TFLOP/s per GPU.
        peak: Whose peak.
    """

    ratio: float
    low: float | None
    high: float | None
    tflops: float
    peak: str

    @classmethod
    def of(cls, used: Utilization) -> Mfu | None:
        """That of the headline; None where throughput, operations or peak are not known."""
        row = used.headline
        if row is None or row["mfu_ratio"] is None or used.tflops_per_gpu is None:
            return None
        peak = f"{row['gpu']} {row['precision'].upper()}"
        return cls(row["mfu_ratio"], row["mfu_low_ratio"], row["mfu_high_ratio"], used.tflops_per_gpu, peak)


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers behind the cards; None is unknown.

    Attributes:
        step_ns: Median step time.
        step_p95_ns: 95th percentile.
        rank_step_count: Values behind the two.
        exposed_ratio: Exposed communication / window.
        overlap_ratio: Hidden / communication.
        a2a_p50_ns: Median all-to-all, dispatch or combine.
        a2a_p99_ns: 99th percentile.
        wait_ratio: Share of all-to-all time that waits for the last rank.
        blamed_ratio: Exposed waiting for late ranks / window.
        worst_rank: The rank that costs most, if any.
        worst_ratio: Its share of all exposed waiting.
        host_late_ratio: Share of the time in which the device waits for the host.
        mfu: Throughput and MFU, if known.
    """

    step_ns: float | None
    step_p95_ns: float | None
    rank_step_count: int
    exposed_ratio: float | None
    overlap_ratio: float | None
    a2a_p50_ns: float | None
    a2a_p99_ns: float | None
    wait_ratio: float | None
    blamed_ratio: float | None
    worst_rank: int | None
    worst_ratio: float | None
    host_late_ratio: float | None = None
    mfu: Mfu | None = None

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - one argument per source
        cls,
        total: Total,
        time: StepTime | None,
        exchanges: pl.DataFrame,
        blame: pl.DataFrame,
        idle: pl.DataFrame,
        used: Utilization,
    ) -> Figures:
        """From breakdown, step times, `alltoall` and `idle` by nothing, `stragglers` by rank, and MFU."""
        exchange = exchanges.row(0, named=True) if len(exchanges) else {}
        blamed = blame.drop_nulls("rank").sort("blamed_ns", descending=True, maintain_order=True)
        worst = blamed.row(0, named=True) if len(blamed) and blamed["blamed_ns"][0] else None
        charged, free = int(blame["blamed_ns"].sum()), int(blame["unblamed_ns"].sum())
        told = int(blame["complete_count"].sum()) > 0
        return cls(
            step_ns=time.median_ns if time else None,
            step_p95_ns=time.p95_ns if time else None,
            rank_step_count=time.rank_step_count if time else 0,
            exposed_ratio=total.share(total.exposed_comm_ns),
            overlap_ratio=total.overlap_ratio,
            a2a_p50_ns=exchange.get("dur_p50_ns"),
            a2a_p99_ns=exchange.get("dur_p99_ns"),
            wait_ratio=exchange.get("wait_ratio"),
            blamed_ratio=total.share(charged) if told else None,
            worst_rank=worst["rank"] if worst else None,
            worst_ratio=worst["blamed_ns"] / (charged + free) if worst else None,
            host_late_ratio=next(iter(idle["host_late_ratio"]), None),
            mfu=Mfu.of(used),
        )


def cards(
    now: Figures, before: Figures | None = None, *, compared: Comparison | None = None
) -> tuple[Card, ...]:
    """The cards of a run, those that are unknown left out.

    Args:
        now: The run.
        before: What it is compared with.
        compared: The run against that, step by step. Where it tells change from chance, only the step time
            has a change, with its interval: of the others nothing of the kind is known.
    """
    if compared is None or compared.totals["verdict"][0] == "unknown":
        return tuple(_cards(now, before))
    first, *others = _cards(now, None)
    return (replace(first, change=_tested(compared), anchor="compare"), *others)


def _tested(compared: Comparison) -> Change:
    """How far the mean step moved, and how surely."""
    total = compared.totals.row(0, named=True)
    margin = (total["high_ns"] - total["low_ns"]) / 2 / total["a_step_ns"]
    trend: Trend = {"more": "worse", "less": "better"}.get(total["verdict"], "same")  # type: ignore[assignment]  # literals
    return Change(f"{_signed(100 * total['delta_step_ratio'], ' %')} ± {units.percent(margin)}", trend)


def _cards(now: Figures, before: Figures | None) -> Iterator[Card]:
    if now.step_ns is not None:
        detail = (
            f"median; p95 {units.duration(now.step_p95_ns)}, {units.plural(now.rank_step_count, 'rank-step')}"
        )
        change = _relative(now.step_ns, before.step_ns if before else None)
        yield Card("step time", units.duration(now.step_ns), detail, anchor="breakdown", change=change)
    yield _share(
        "exposed communication", now.exposed_ratio, before.exposed_ratio if before else None,
        (0.10, 0.25), "of the time, nothing computes beside it", "ledger",
    )  # fmt: skip
    if now.overlap_ratio is None:
        yield Card("overlap", units.MISSING, "no communication was recorded", anchor="overlap")
    else:
        yield _share(
            "overlap", now.overlap_ratio, before.overlap_ratio if before else None,
            (0.8, 0.5), "of communication is hidden under compute", "overlap",
        )  # fmt: skip
    if now.a2a_p50_ns is not None:
        detail = f"median; p99 {units.duration(now.a2a_p99_ns)}"
        change = _relative(now.a2a_p50_ns, before.a2a_p50_ns if before else None)
        yield Card("all-to-all", units.duration(now.a2a_p50_ns), detail, anchor="alltoall", change=change)
    if now.wait_ratio is not None:
        yield _share(
            "all-to-all waiting", now.wait_ratio, before.wait_ratio if before else None,
            (0.25, 0.5), "of all-to-all time waits for the last rank", "alltoall",
        )  # fmt: skip
    if now.blamed_ratio is not None:
        detail = "of the time, ranks wait exposed for late ones"
        if now.worst_rank is not None:
            detail += f"; {units.percent(now.worst_ratio)} of that waiting for rank {now.worst_rank}"
        yield _share(
            "straggler loss", now.blamed_ratio, before.blamed_ratio if before else None,
            (0.01, 0.05), detail, "stragglers",
        )  # fmt: skip
    if now.host_late_ratio is not None and now.host_late_ratio >= HOST_LATE:
        yield _share(
            "host late", now.host_late_ratio, before.host_late_ratio if before else None,
            (HOST_LATE, 0.05), "of the time the device waits for its host", "idle",
        )  # fmt: skip
    if now.mfu is not None:
        yield _mfu(now.mfu, before.mfu if before else None)


def _mfu(now: Mfu, before: Mfu | None) -> Card:
    """Plain: what is high depends on model and size of the job."""
    interval = ""
    if now.low is not None and now.high is not None:
        interval = f" (95 %: {units.percent_value(now.low)} to {units.percent_value(now.high)} %)"
    detail = f"of {now.peak}{interval}; {units.significant(now.tflops, 4)} TFLOP/s per GPU"
    change = None
    if before is not None and before.peak == now.peak:
        points = now.ratio - before.ratio
        change = Change(_signed(100 * points, " points"), _trend(points, more_is_better=True))
    return Card("MFU", units.percent(now.ratio), detail, anchor="throughput", change=change)


def _share(  # noqa: PLR0913, PLR0917 - the parts of a card
    label: str,
    now: float | None,
    before: float | None,
    bounds: tuple[float, float],
    detail: str,
    anchor: str,
) -> Card:
    """A share of something; ``bounds`` part good from fair from poor, falling where more is better."""
    good, fair = bounds
    if now is None:
        return Card(label, units.MISSING, "unknown", anchor=anchor)
    more_is_better = good > fair
    sign = -1 if more_is_better else 1
    grade = 0 if sign * now <= sign * good else 1 if sign * now <= sign * fair else 2
    word = (("high", "moderate", "low") if more_is_better else ("low", "moderate", "high"))[grade]
    change = None
    if before is not None:
        points = now - before
        change = Change(_signed(100 * points, " points"), _trend(points, more_is_better=more_is_better))
    return Card(label, units.percent(now), detail, TONES[grade], word, anchor, change)


def _relative(now: float, before: float | None) -> Change | None:
    """Change of a time, of which less is better."""
    if not before:
        return None
    change = now / before - 1
    return Change(_signed(100 * change, " %"), _trend(change, more_is_better=False))


def _signed(value: float, unit: str) -> str:
    return f"{value:+.1f}{unit}".replace("-", "−")


def _trend(change: float, *, more_is_better: bool) -> Trend:
    if abs(change) < SAME:
        return "same"
    return "better" if (change > 0) == more_is_better else "worse"
