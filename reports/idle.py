"""The page of ``traceview idle``: what idle devices wait for, how far hosts lead, and where they wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers._gaps import GRAPH_LATENCY_NS, HANDOVER_NS, HOST_CAUSES, LATENCY_NS
from traceview.analyzers._waits import LABELS
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS, WAIT_ROWS = 24, 8
NAME_LETTERS = 48
_LATENCY, _GRAPH_LATENCY, _HANDOVER = map(units.duration, (LATENCY_NS, GRAPH_LATENCY_NS, HANDOVER_NS))
METHOD = (
    f"the op that ends a gap tells: its launch returned at most {_LATENCY} before it (a graph's: "
    f"{_GRAPH_LATENCY}), or what held it ended at most {_HANDOVER} before"
)
MEANINGS = {
    "launch_starved": "the host launches late",
    "host_blocked": "the host launches late, after waiting for the device",
    "profiler": "the profiler keeps the host busy",
    "blocking": "communication held the op back",
    "dependency_stalled": "another stream held the op back",
    "turnaround": "from op to op on one stream",
    "graph_unseen": "beside a graph replay, nothing else recorded",
    "unexplained": "launched in time, nothing recorded held it",
    "launch_unknown": "no launch was recorded",
    "window_edge": "no op follows",
}
ADVICE = {
    "launch_starved": "capture the step as CUDA graphs, fuse or compile small operators, free the host's CPU",
    "host_blocked": "keep the value on the device, or copy it asynchronously and read it later",
    "profiler": "record fewer steps, or without stacks and shapes; this time is not there without a profiler",
    "blocking": "see overlap and alltoall: communication decides when compute may go on",
    "dependency_stalled": "see which streams wait for each other; launch what others wait for first",
    "turnaround": "fuse small kernels, or capture them as CUDA graphs",
    "graph_unseen": "record the nodes of graphs (nsys: --cuda-graph-trace=node); the device may not be idle",
    "unexplained": "look for peers, host callbacks, or work that was not recorded",
    "launch_unknown": "begin to record earlier, so that launches are in the trace",
    "window_edge": "look at whole steps",
}
_WINDOW_LEVEL = ("rank", "device", "step")
_LABELS = (*LABELS, "phase", "layer")


@dataclass(frozen=True, slots=True)
class Evidence:
    """`idle` of one run in the grains the page needs.

    Attributes:
        total: Over everything, one row.
        causes: By cause, the costliest first.
        waits: By wait, the costliest first; what no wait explains is not there.
        window: What one window is called: "step" or "window".
    """

    total: pl.DataFrame
    causes: pl.DataFrame
    waits: pl.DataFrame
    window: str

    @classmethod
    def of(cls, total: pl.DataFrame, parts: pl.DataFrame) -> Evidence:
        """Evidence from an `idle` result over everything, and one by step, cause and wait."""
        sums = pl.col("idle_ns", "sync_count", "sync_wait_ns").sum()
        causes = parts.group_by("cause").agg(sums).sort(-pl.col("idle_ns"), "cause")
        waits = (
            parts.drop_nulls("sync")
            .group_by(LABELS)
            .agg(sums, pl.col("copy_bytes").max())
            .sort(-pl.col("idle_ns"), -pl.col("sync_wait_ns"), *LABELS)
        )
        return cls(total, causes, waits, "step" if parts["step"].count() else "window")

    @property
    def window_count(self) -> int:
        """Windows looked at, at least 1."""
        return int(self.total["window_count"].sum()) or 1

    def each(self, time_ns: float) -> str:
        """``time_ns`` per rank and window."""
        return f"{units.duration(time_ns / self.window_count)}{'/step' if self.window == 'step' else ''}"

    def main_cause(self) -> str | None:
        """The cause of most idle time."""
        idle = self.causes.filter(pl.col("idle_ns") > 0)
        return str(idle["cause"][0]) if len(idle) else None

    def sentence(self) -> str:
        """The one line to remember."""
        if not len(self.total) or not self.total["window_ns"].sum():
            return "No device work was recorded, so there is nothing to measure."
        row = self.total.row(0, named=True)
        cause = self.main_cause()
        if cause is None:
            return "The device never idles."
        parts = [f"The device idles {self.each(row['idle_ns'])} ({units.percent(row['idle_ratio'])})"]
        if row["host_late_ns"]:
            parts.append(f"{self.each(row['host_late_ns'])} since the host is late{self._behind()}")
        text = ", of which ".join(parts)
        if cause not in HOST_CAUSES:
            cost = int(self.causes.filter(pl.col("cause") == cause)["idle_ns"].sum())
            text += f"; most of it, {self.each(cost)}, is {cause.replace('_', ' ')}: {MEANINGS[cause]}"
        return f"{text}."

    def _behind(self) -> str:
        """The wait that costs most, where one does."""
        costly = self.waits.filter(pl.col("idle_ns") > 0)
        if not len(costly):
            return ""
        worst = costly.row(0, named=True)
        return f", {self.each(worst['idle_ns'])} of it behind {wait_name(worst)}"


def wait_name(row: Mapping[str, Any]) -> str:
    """``aten::item in moe.router``: a wait by its operator, else its call, and the range around it."""
    what = str(row["operator"] or row["sync"])
    if row["reason"] == "token_counts":
        what += " (token counts)"
    return f"{what} in {_short(row['range'])}" if row["range"] else what


def page(
    about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, evidence: Evidence, every_notice: bool
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `idle` in the grain asked for.
        notices: Diagnostics, grouped.
        evidence: The same in the grains of the rest of the page.
        every_notice: Whether to show all of them.
    """
    blocks: list[Block] = [Facts((*margins.facts(about), ("method", METHOD), *_ahead(evidence)))]
    blocks.append(_grid(rows, evidence.window))
    blocks += margins.more_rows(len(rows), ROWS)
    if not rows["sync"].count():
        blocks += _waits(evidence)
    cause = evidence.main_cause()
    if cause is not None:
        blocks.append(Note(f"to try: {ADVICE[cause]}"))
    return [*blocks, *margins.foot(about, notices, evidence.sentence(), every_notice=every_notice)]


def _ahead(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """How far the host is ahead, and what graphs launch."""
    for row in evidence.total.iter_rows(named=True):
        if row["delay_median_ns"] is not None:
            delay, late = (units.duration(row[name]) for name in ("delay_median_ns", "delay_p95_ns"))
            yield "launch delay", f"median {delay}, p95 {late} from the call to the start of its work"
        if row["queue_depth"] is not None:
            depth, empty = units.significant(row["queue_depth"]), units.percent(row["queue_empty_ratio"])
            yield "queue", f"{depth} ops launched and not finished on average; empty for {empty} of the time"
        if row["graph_launch_count"] or row["graph_op_count"]:
            shares = [units.percent(row[name]) for name in ("graph_op_ratio", "graph_busy_ratio")]
            launches = units.plural(row["graph_launch_count"], "graph launch").replace("launchs", "launches")
            text = f"{launches} start {shares[0]} of device ops and {shares[1]} of busy time"
            if row["opaque_count"]:
                opaque = units.plural(row["opaque_count"], "opaque block")
                text += f"; {opaque} ({evidence.each(row['opaque_ns'])}) hide what runs inside"
            yield "graphs", text


def _grid(rows: pl.DataFrame, window: str) -> Grid:
    """The rows asked for; what belongs to whole windows is shown where rows are such."""
    keys = [name for name in (*_WINDOW_LEVEL, "cause", *_LABELS) if rows[name].count()]
    whole = bool(rows["queue_depth"].count())
    has_meaning = keys == ["cause"]
    heads = [
        *keys,
        *(["meaning"] if has_meaning else []),
        "idle ms",
        "host late ms",
        "idle %",
        "gaps",
        "longest µs",
        "no compute ms",
    ]
    heads += ["delay µs", "p95 µs", "queue", "empty %", "graph ops %"] if whole else []
    heads += ["waits", "wait ms"] if rows["sync_count"].sum() else []
    lines = tuple(
        (
            *(_short(row[key]) for key in keys),
            *((MEANINGS[row["cause"]],) if has_meaning else ()),
            *_cells(row, whole=whole, has_waits="waits" in heads),
        )
        for row in rows.head(ROWS).iter_rows(named=True)
    )
    per = "rank and step" if window == "step" else "rank"
    return Grid(
        f"idle time by what the device waits for; times and counts per {per}",
        tuple(heads),
        lines,
        label_count=len(keys) + has_meaning,
    )


def _cells(row: Mapping[str, Any], *, whole: bool, has_waits: bool) -> tuple[str, ...]:
    count = row["window_count"] or 1
    cells = [units.milliseconds(row[name] / count) for name in ("idle_ns", "host_late_ns")]
    cells += [units.percent_value(row["idle_ratio"]), _number(row["gap_count"] / count)]
    cells += [_number(row["longest_ns"] / 1e3), units.milliseconds(row["no_compute_ns"] / count)]
    if whole:
        cells += [_number(row[name] and row[name] / 1e3) for name in ("delay_median_ns", "delay_p95_ns")]
        cells += [_number(row["queue_depth"])]
        cells += [units.percent_value(row[name]) for name in ("queue_empty_ratio", "graph_op_ratio")]
    if has_waits:
        cells += [_number(row["sync_count"] / count), units.milliseconds(row["sync_wait_ns"] / count)]
    return tuple(cells)


def _waits(evidence: Evidence) -> Iterator[Block]:
    """Where the host waits, by what it costs."""
    if not len(evidence.waits):
        return
    lines, count = [], evidence.window_count
    for row in evidence.waits.head(WAIT_ROWS).iter_rows(named=True):
        where = [_short(row[name]) for name in ("sync", "operator", "range", "reason", "follows")]
        figures = [_number(row["sync_count"] / count), units.milliseconds(row["sync_wait_ns"] / count)]
        lines.append(
            (*where, *figures, units.milliseconds(row["idle_ns"] / count), units.size(row["copy_bytes"]))
        )
    per = "rank and step" if evidence.window == "step" else "rank"
    heads = ("call", "operator", "range", "for", "then", "waits", "wait ms", "idle ms", "copy")
    yield Grid(f"where the host waits for the device, per {per}", heads, tuple(lines), label_count=5)
    yield from margins.more_rows(len(evidence.waits), WAIT_ROWS)


def _number(value: float | None) -> str:
    return units.MISSING if value is None else units.significant(value)


def _short(value: object) -> str:
    shown = "" if value is None else str(value)
    return shown if len(shown) <= NAME_LETTERS else f"{shown[: NAME_LETTERS - 1]}…"
