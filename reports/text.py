"""Report data as blocks of text: for an engineer who wants to know in a minute where the step goes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers.overlap import LABELS, NONE, SEVERAL
from traceview.recipe import FILE
from traceview.reports import margins, mfu
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.recipe import Recipe
    from traceview.reports.about import StepUse
    from traceview.reports.inventory import Inventory
    from traceview.reports.summary import Summary
    from traceview.statistics import StepTime

FEW = 8
"""Rows shown in full; of more, only the fastest, the median and the slowest."""

KIND_ROWS = 12

_PARTS = (
    ("compute", "compute_ns"),
    ("exposed comm", "exposed_comm_ns"),
    ("exposed copy", "exposed_copy_ns"),
    ("idle", "idle_ns"),
)


def summary(found: Summary, *, every_notice: bool = False) -> list[Block]:
    """The page of ``traceview summary`` about one run."""
    return [
        header(found),
        _breakdown(found),
        *_communication(found),
        *_findings(found),
        *margins.foot(found.about, found.notices, found.findings[0].text, every_notice=every_notice),
    ]


def _findings(found: Summary) -> list[Note]:
    """What costs most, in sentences, each with what to try; the verdict has a place of its own."""
    numbered = [
        Note(
            f"{number}. {finding.text}. Try: {finding.advice}."
            if finding.advice
            else f"{number}. {finding.text}."
        )
        for number, finding in enumerate(found.findings[1:], start=1)
    ]
    if not found.uncertainty_ns:
        return numbered
    blur = units.duration(found.uncertainty_ns)
    return [*numbered, Note(f"Waiting between hosts is known to ± {blur}, the p95 residual of their clocks.")]


def overlap(found: Summary, *, every_notice: bool = False) -> list[Block]:
    """The page of ``traceview overlap`` about one run."""
    return [
        header(found),
        *_communication(found, limit=None),
        *margins.foot(found.about, found.notices, found.findings[0].text, every_notice=every_notice),
    ]


def inventory(found: Inventory, *, every_notice: bool = False) -> list[Block]:
    """The page of ``traceview info`` about one run."""
    shown = found.rows if every_notice else found.rows.head(FEW)
    blocks: list[Block] = [
        Facts((*margins.facts(found.about), *margins.recorded(found.about), *_recipe(found.recipe))),
        _rank_grid(shown),
    ]
    if left := len(found.rows) - len(shown):
        blocks.append(Note(f"and {units.plural(left, 'more rank')}; -v shows all of them"))
    if len(found.groups):
        blocks.append(_group_grid(found.groups))
    blocks += [
        Note(f"{consequence}{_on(rank_count, len(found.rows))}. To record it: {remedy}.", "missing")
        for _, consequence, remedy, rank_count in found.gaps.iter_rows()
    ]
    return [*blocks, *margins.notes(found.notices, rank_count=len(found.rows), every_notice=every_notice)]


def _recipe(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """What ``run.toml`` says, in one line; nothing where it says nothing."""
    counts = (
        ("tokens per sequence", recipe.seq_len),
        ("sequences per step", recipe.global_batch_size),
        ("tokens per step", recipe.tokens_per_step),
        ("GPUs", recipe.gpus),
    )
    said = [
        *(named.name for named in (recipe.model, recipe.gpu) if named),
        *(f"{units.count(value)} {what}" for what, value in counts if value is not None),
        *([recipe.precision.upper()] if recipe.precision else []),
        *([f"MTP {recipe.mtp_layers}"] if recipe.mtp_layers is not None else []),
        *(f"{axis} {size}" for axis, size in recipe.parallel.items()),
    ]
    if said:
        yield FILE, ", ".join(said)


# --- header ------------------------------------------------------------------------------------------


def header(found: Summary) -> Facts:
    """Which run, what recorded it, which steps, and how long they take."""
    pairs = [*margins.facts(found.about), *margins.recorded(found.about), ("steps", _steps(found.step_use))]
    if found.step_time:
        pairs.append(("step time", _step_time(found.step_time)))
    if reached := mfu.headline(found.utilization):
        pairs.append(("throughput", reached))
    return Facts(tuple(pairs))


def _steps(use: StepUse) -> str:
    if not use.used:
        return "none told apart: the figures describe the whole device window"
    used = f"{len(use.used)} used ({units.numbers(use.used)})"
    by_reason: dict[str, list[int]] = {}
    for step, reason in use.left_out:
        by_reason.setdefault(reason, []).append(step)
    left_out = "; ".join(f"{units.numbers(steps)} ({reason})" for reason, steps in by_reason.items())
    return f"{used}; left out: {left_out}" if left_out else used


def _step_time(time: StepTime) -> str:
    interval = ""
    if time.low_ns is not None and time.high_ns is not None:
        interval = f" (95 % interval {units.duration(time.low_ns)} to {units.duration(time.high_ns)})"
    return (
        f"median {units.duration(time.median_ns)}{interval}, p95 {units.duration(time.p95_ns)}, "
        f"over {units.plural(time.rank_step_count, 'rank-step')}"
    )


# --- breakdown ---------------------------------------------------------------------------------------


def _breakdown(found: Summary) -> Grid:
    per, rows = found.window, found.breakdown
    heads = ["", f"{per} ms"]
    for part, _ in _PARTS:
        heads += [f"{part} ms", "%"]
    heads += ["comm ms", "hidden %"]
    lines = [_breakdown_cells(label, row) for label, row in _chosen(rows)]
    if len(rows) > 1:
        lines.append(_breakdown_cells("all", asdict(found.total)))
    title = f"where the {per} goes, per rank and {per}" if per == "step" else "where the time goes, per rank"
    return Grid(title, tuple(heads), tuple(lines))


def _breakdown_cells(label: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    windows, length = row["window_count"] or 1, row["window_ns"]
    cells = [label, units.milliseconds(length / windows)]
    for _, name in _PARTS:
        cells += [units.milliseconds(row[name] / windows), _percent(row[name], length)]
    comm = row["comm_ns"]
    return (*cells, units.milliseconds(comm / windows), _percent(row["hidden_comm_ns"], comm))


def _percent(part: int, whole: int) -> str:
    return units.percent_value(part / whole if whole else None)


def _chosen(rows: pl.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """All rows if they are few; else the one with the shortest, the median and the longest window."""
    keys = _keys(rows)
    if len(rows) <= FEW:
        for row in rows.iter_rows(named=True):
            yield _label(row, keys), row
        return
    ordered = rows.sort(pl.col("window_ns") / pl.col("window_count"), *keys)
    for name, place in (("fastest", 0), ("median", (len(rows) - 1) // 2), ("slowest", len(rows) - 1)):
        row = ordered.row(place, named=True)
        yield f"{name}: {_label(row, keys)}", row


def _keys(rows: pl.DataFrame) -> list[str]:
    """Columns that tell the rows apart; the device only where a rank has several."""
    named = ("rank", "device", "step", *LABELS)
    keys = [name for name in named if name in rows.columns and rows[name].count()]
    if "device" in keys and rows.select("rank", "device").n_unique() == rows["rank"].n_unique():
        keys.remove("device")
    return keys


def _label(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    return " ".join(f"{key} {row[key]}" for key in keys if row[key] is not None) or "all"


# --- communication -----------------------------------------------------------------------------------


def _communication(found: Summary, *, limit: int | None = KIND_ROWS) -> Iterator[Block]:
    rows = found.collectives.sort("exclusive_ns", "comm_ns", descending=True, maintain_order=True)
    if not rows["comm_ns"].sum():
        return
    keys, shown = _keys(rows), rows.head(limit or len(rows))
    per = found.window
    heads = (*keys, "ops", "busy ms", "hidden %", "exposed ms", "exposed alone ms", f"% of {per}")
    lines = tuple(_communication_cells(row, keys) for row in shown.iter_rows(named=True))
    title = f"communication, per rank and {per}" if per == "step" else "communication, per rank"
    yield Grid(title, heads, lines, label_count=len(keys))
    yield from margins.more_rows(len(rows), len(shown))


def _communication_cells(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    windows = row["window_count"] or 1
    several = SEVERAL in {row[key] for key in keys}
    times = [row["comm_ns"], row["exposed_ns"], row["exclusive_ns"]]
    busy, exposed, alone = (units.milliseconds(time / windows) for time in times)
    if several:  # moments shared by several kinds: their busy time stands in the rows of those kinds
        busy, exposed = units.MISSING, units.MISSING
    return (
        *(_key_text(row[key]) for key in keys),
        units.MISSING if several else units.count(row["op_count"]),
        busy,
        units.percent_value(row["overlap_ratio"]),
        exposed,
        alone,
        _percent(row["exclusive_ns"], row["window_ns"]),
    )


def _key_text(value: object) -> str:
    return "" if value in {None, NONE} else str(value)


# --- inventory ---------------------------------------------------------------------------------------


def _rank_grid(rows: pl.DataFrame) -> Grid:
    labels = ("rank", "known from", "host")
    heads = (*labels, "steps", "device ops", "of it comm", "streams", "groups", "events", "span ms")
    lines = tuple(
        (
            str(row["rank"]),
            row["rank_source"],
            row["host"] or units.MISSING,
            units.count(row["step_count"]),
            units.count(row["op_count"]),
            units.count(row["collective_count"]),
            units.count(row["stream_count"]),
            units.count(row["group_count"]),
            units.count(row["event_count"]),
            units.milliseconds(row["span_ns"]),
        )
        for row in rows.iter_rows(named=True)
    )
    return Grid("ranks", heads, lines, label_count=len(labels))


def _group_grid(groups: pl.DataFrame) -> Grid:
    heads = ("axis", "description", "size", "groups", "ranks")
    kinds = (
        groups.group_by("axis", "group_desc", "group_size")
        .agg(groups=pl.len(), ranks=pl.col("rank_count").sum())
        .sort("axis", "group_desc", "group_size")
    )
    lines = tuple(
        (axis, description or "", units.count(size), units.count(count), units.count(ranks))
        for axis, description, size, count, ranks in kinds.iter_rows()
    )
    return Grid("process groups", heads, lines, label_count=2)


def _on(rank_count: int, of: int) -> str:
    return "" if rank_count == of else f" ({rank_count} of {of} ranks)"
