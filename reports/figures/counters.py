"""What counters read while the device computed, communicated, copied or idled, and from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holoviews as hv
import polars as pl

from traceview.analyzers.counters import STATES
from traceview.reports.figures import _bars, _theme

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = tuple(
    zip(
        ("while computing", "while communication is exposed", "while only copies run", "while idle"),
        (_theme.OKABE_ITO[0], _theme.OKABE_ITO[2], _theme.OKABE_ITO[3], _theme.NOTHING),
        strict=True,
    )
)
METRICS = 10
"""Metrics of a unit that are drawn."""


def unit_of(unit: str) -> tuple[str, float]:
    """The unit shown for ``unit``, and how much of it one of that is."""
    return ("GB", 1e-9) if unit == "bytes" else (unit, 1.0)


def units_of(rows: pl.DataFrame) -> list[str]:
    """Units with a known mean: percentages first, then those of most metrics."""
    known = rows.drop_nulls("mean").group_by("unit").agg(count=pl.col("metric").n_unique().cast(pl.Int64))
    order = (pl.col("unit") != "%", -pl.col("count"), "unit")
    return [str(unit) for unit in known.sort(order)["unit"]]


def means(rows: pl.DataFrame, unit: str) -> pl.DataFrame:
    """``metric`` and a column per part: one row per metric and state of a `counters` by state."""
    shown, factor = unit_of(unit)
    places = {state: number for number, state in enumerate(STATES)}
    own = rows.filter((pl.col("unit") == unit) & pl.col("mean").is_not_null())
    kept = own["metric"].unique(maintain_order=True).head(METRICS)
    state = pl.col("state").cast(pl.String)
    named = (
        pl.when(state == one).then(pl.col("mean") * factor).otherwise(0.0).alias(f"{name} {shown}")
        for one, (name, _) in zip(STATES, PARTS, strict=True)
    )
    return (
        own.filter(pl.col("metric").is_in(kept.implode()))
        .sort("metric", state.replace_strict(places, return_dtype=pl.Int8))
        .select("metric", *named)
    )


def by_state(rows: pl.DataFrame, unit: str = "") -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of a `counters` by state: a bar per metric and state of one unit, the first by default."""
    chosen = unit or next(iter(units_of(rows)), "%")
    shown, _ = unit_of(chosen)
    return _bars.lying(means(rows, chosen), PARTS, key="metric", unit=shown)


def over_steps(rows: pl.DataFrame, unit: str) -> pl.DataFrame:
    """``metric, step`` and the mean, of a `counters` by step; for metrics of one unit."""
    shown, factor = unit_of(unit)
    own = rows.filter((pl.col("unit") == unit) & pl.col("mean").is_not_null() & pl.col("step").is_not_null())
    kept = own["metric"].unique(maintain_order=True).head(len(_theme.OKABE_ITO))
    mean = (pl.col("mean") * factor).alias(f"mean {shown}")
    return (
        own.filter(pl.col("metric").is_in(kept.implode()))
        .sort("metric", "step")
        .select("metric", "step", mean)
    )


def colours(metrics: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Metrics and their colours."""
    return tuple(zip(metrics, _theme.OKABE_ITO, strict=False))


def by_step(rows: pl.DataFrame, unit: str = "") -> Any:  # noqa: ANN401 - an hv.Overlay
    """A line per metric of one unit, of a `counters` by step; the first unit by default."""
    chosen = unit or next(iter(units_of(rows)), "%")
    shown, _ = unit_of(chosen)
    table, column = over_steps(rows, chosen), f"mean {shown}"
    lines = [
        hv.Curve(_theme.arrays(table.filter(pl.col("metric") == metric).drop("metric")), "step", column).opts(
            color=colour,
            line_width=2,
            tools=["hover"],
            hover_tooltips=[
                ("metric", _theme.label(metric)),
                ("step", "@step{0}"),
                ("mean", f"@{{{column}}}{{0.00}} {shown}"),
            ],
        )
        for metric, colour in colours(table["metric"].unique(maintain_order=True).to_list())
    ]
    steps = table["step"].unique().sort()
    ticks = [(step, str(step)) for step in steps.gather_every(max(1, -(-len(steps) // 16)))]
    return _theme.styled(hv.Overlay(lines), xlabel="step", ylabel=shown, xticks=ticks)


FIGURES = {("state",): by_state, ("step",): by_step}
