"""The page of ``traceview counters``: what the counters read, and what while the device did what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers.counters import BUCKET, DISTINCT, METHODS, PURE, STATES
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 32
NAME_LETTERS = 60
_KEYS = ("metric", "unit", "rank", "device", "step", "state")
_FIGURES = ("mean", "median", "p95", "min", "max")
_NETWORK = re.compile(r"nvlink|\bib\b|\beth\b|\bnic\b|pcie|infiniband", re.IGNORECASE)
_STATE_NAMES = {
    "compute": "compute runs",
    "exposed_comm": "communication is exposed",
    "exposed_copy": "only copies run",
    "idle": "nothing runs",
}
WEIGHTS = {
    METHODS[0]: "each sample is the mean of the time before it, and weighs as much as that time",
    METHODS[1]: "a level holds until the next sample, and weighs as much as that time",
    METHODS[2]: "each sample counts once: the trace does not say for what time it stands",
}
RECORDING = (
    "SM, DRAM and NVLink: nsys profile --gpu-metrics-devices=all",
    "network cards: nsys profile --nic-metrics=true",
    "memory: torch.profiler.profile(..., profile_memory=True)",
)


def page(
    about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, states: pl.DataFrame, every_notice: bool
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `counters` in the grain asked for.
        states: The same by state.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    if not len(rows):
        blocks: list[Block] = [Facts(tuple(margins.facts(about)))]
        blocks += [Note("no counters were recorded; to record them:"), *map(Note, RECORDING)]
        return [*blocks, *margins.foot(about, notices, sentence(states), every_notice=every_notice)]
    blocks = [Facts((*margins.facts(about), *_methods(rows))), _grid(rows)]
    blocks += margins.more_rows(len(rows), ROWS)
    if not rows["state"].count():
        blocks.append(_by_state(states))
    return [*blocks, *margins.foot(about, notices, sentence(states), every_notice=every_notice)]


def sentence(states: pl.DataFrame) -> str:
    """The one line to remember about a `counters` result by state."""
    if not len(states):
        return "No counters were recorded, so nothing tells how busy SMs, memory and links were."
    during = states.filter((pl.col("state") == "exposed_comm") & pl.col("mean").is_not_null())
    is_link = pl.col("metric").str.contains(f"(?i){_NETWORK.pattern}")
    busiest = during.filter(is_link & (pl.col("unit") == "%")).sort(
        "mean", "metric", descending=[True, False]
    )
    if len(busiest):
        row = busiest.row(0, named=True)
        same = (pl.col("metric") == row["metric"]) & (pl.col("unit") == "%")
        other = states.filter(same & (pl.col("state") == "compute"))
        mean = next(iter(other["mean"]), None)
        beside = "" if mean is None else f", and at {_value(mean, '%')} while compute ran"
        return f"While communication was exposed, {row['metric']} was at {_value(row['mean'], '%')}{beside}."
    names = states["metric"].n_unique()
    were = "was" if names == 1 else "were"
    return f"{units.plural(names, 'counter')} {were} recorded, and none tells how busy a link was meanwhile."


def _methods(rows: pl.DataFrame) -> Iterator[tuple[str, str]]:
    for method in METHODS:
        if (rows["method"] == method).any():
            yield "method", WEIGHTS[method]
    if (rows["quantile_error_ratio"] > 0).any():
        yield (
            "quantiles",
            f"within {units.percent(BUCKET)} where a device has over {DISTINCT} values, else exact",
        )


def _grid(rows: pl.DataFrame) -> Grid:
    keys = [name for name in _KEYS if rows[name].count()]
    heads = (*keys, *_FIGURES, "samples", "every", "sampled %")
    lines = tuple(_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid("counters", heads, lines, label_count=len(keys))


def _cells(row: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    return (
        *(_text(row[key]) for key in keys),
        *(_value(row[name], row["unit"], bare=True) for name in _FIGURES),
        units.count(row["sample_count"]),
        units.duration(row["period_ns"]),
        units.percent_value(row["sampled_ratio"]),
    )


def _by_state(states: pl.DataFrame) -> Grid:
    """One line per metric: its mean in each state."""
    means = {(row["metric"], row["unit"], row["state"]): row["mean"] for row in states.iter_rows(named=True)}
    metrics = list(dict.fromkeys(states.select("metric", "unit").iter_rows()))
    lines = tuple(
        (
            _text(metric),
            _text(unit),
            *(_value(means.get((metric, unit, state)), unit, bare=True) for state in STATES),
        )
        for metric, unit in metrics[:ROWS]
    )
    title = (
        f"mean while ...; a mean counts where at least {units.percent(PURE)} of its time lies in the state"
    )
    return Grid(title, ("metric", "unit", *(_STATE_NAMES[state] for state in STATES)), lines, label_count=2)


def _value(value: float | None, unit: str, *, bare: bool = False) -> str:
    if value is None:
        return units.MISSING
    if unit == "bytes":
        return units.size(value)
    return units.significant(value) + (f" {unit}" if not bare else "")


def _text(value: object) -> str:
    shown = str(value)
    return shown if len(shown) <= NAME_LETTERS else f"{shown[: NAME_LETTERS - 1]}…"
