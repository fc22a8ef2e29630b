"""The page of ``traceview interference``: what overlap costs the kernels that hide communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceview import units
from traceview.analyzers.interference import LABELS
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 24
NAME_LETTERS = 60
METHOD = (
    "a kernel under communication for at least half of its time, against the median of the same kernel "
    "(name, grid, phase, module, rank) with less than 5 % under it"
)

_TIMES = (("excess ms", "excess_ns"), ("hidden ms", "hidden_comm_ns"), ("net ms", "net_hidden_ns"))


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over everything looked at; times in ns.

    Attributes:
        overlapped_count: Kernels under communication.
        overlapped_ns: Their durations.
        compared_ns: Of those, the durations of kernels that also run alone.
        excess_ns: What the compared take beyond their median alone.
        hidden_ns: Communication under compute.
        window_count: Windows: rank × device × step.
        window: What one window is called: "step" or "window".
    """

    overlapped_count: int
    overlapped_ns: int
    compared_ns: int
    excess_ns: int
    hidden_ns: int
    window_count: int
    window: str

    @classmethod
    def of(cls, steps: pl.DataFrame) -> Total:
        """Sums of an `interference` result by step."""
        names = ("overlapped_count", "overlapped_ns", "compared_ns", "excess_ns", "hidden_comm_ns")
        overlapped, total, compared, excess, hidden = (int(steps[name].sum() or 0) for name in names)
        window = "step" if steps["step"].count() else "window"
        return cls(overlapped, total, compared, excess, hidden, int(steps["window_count"].sum()), window)

    def sentence(self) -> str:
        """The one line to remember."""
        if not self.overlapped_count:
            return "No kernel runs mostly under communication, so overlap slows nothing down."
        if not self.compared_ns:
            kernels = units.plural(self.overlapped_count, "kernel")
            return f"{kernels} run under communication, none of which also runs alone: its cost is unknown."
        slowdown = self.compared_ns / (self.compared_ns - self.excess_ns)
        share = self.compared_ns / self.overlapped_ns
        bound, told = "", ""
        if share < 1:
            bound, told = "at most ", f" ({units.percent(share)} of overlapped kernel time could be compared)"
        won = f"{bound}{self._each(self.hidden_ns - self.excess_ns)} is won"
        return (
            f"Under communication kernels take {units.significant(slowdown)} times as long as alone{told}: "
            f"of {self._each(self.hidden_ns)} hidden, {won}."
        )

    def _each(self, time_ns: int) -> str:
        suffix = "/step" if self.window == "step" else ""
        return f"{units.duration(time_ns / max(self.window_count, 1))}{suffix}"


def page(
    about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, steps: pl.DataFrame, every_notice: bool
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `interference` in the grain asked for.
        steps: The same by step.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    total = Total.of(steps)
    facts = Facts((*margins.facts(about), ("method", METHOD)))
    blocks: list[Block] = [facts, _grid(rows, total.window)]
    blocks += margins.more_rows(len(rows), ROWS)
    return [*blocks, *margins.foot(about, notices, total.sentence(), every_notice=every_notice)]


def _grid(rows: pl.DataFrame, window: str) -> Grid:
    keys = [name for name in ("rank", "device", "step", *LABELS) if rows[name].count()]
    heads = (
        *keys,
        "alone",
        "overlapped",
        "compared",
        "alone µs",
        "overlapped µs",
        "slowdown",
        *(head for head, name in _TIMES if rows[name].count()),
    )
    times = [name for _, name in _TIMES if rows[name].count()]
    lines = tuple(_cells(row, keys, times) for row in rows.head(ROWS).iter_rows(named=True))
    per = "rank and step" if window == "step" else "rank"
    title = f"kernels under communication, and alone; times in ms per {per}"
    return Grid(title, heads, lines, label_count=len(keys))


def _cells(row: Mapping[str, Any], keys: list[str], times: list[str]) -> tuple[str, ...]:
    medians = (row[name] for name in ("alone_median_ns", "overlapped_median_ns"))
    per_window = (None if row[name] is None else row[name] / row["window_count"] for name in times)
    return (
        *(_key_text(row[key]) for key in keys),
        units.count(row["alone_count"]),
        units.count(row["overlapped_count"]),
        units.count(row["compared_count"]),
        *(units.MISSING if value is None else units.significant(value / 1e3) for value in medians),
        units.MISSING if row["slowdown"] is None else units.significant(row["slowdown"]),
        *(units.milliseconds(value) for value in per_window),
    )


def _key_text(value: object) -> str:
    shown = "" if value is None else str(value)
    return shown if len(shown) <= NAME_LETTERS else f"{shown[: NAME_LETTERS - 1]}…"
