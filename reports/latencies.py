"""The page of ``traceview latencies``: distributions of durations, by a few of their quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.analyzers._latency_table import NONE
from traceview.analyzers.latencies import GRAINS
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 24
_KEYS = ("axis", "collective", "role", "phase", "layer", "step", "rank")
SHOWN = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
_HEADS = ("min", "p50", "p90", "p99", "p99.9", "max")
EMPTY = "No exchange was recorded."


def page(
    about: About, rows: pl.DataFrame, found: Sequence[Notice], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `latencies` in the grain asked for.
        found: Diagnostics, grouped.
        every_notice: Show all of them.
    """
    blocks: list[Block] = [Facts(tuple(margins.facts(about)))]
    kinds = wide(rows)
    if len(kinds):
        keys = [key for key in _KEYS if kinds[key].count()]
        lines = tuple(
            (
                *("" if row[key] in {None, NONE} else str(row[key]) for key in keys),
                units.count(row["op_count"]),
                *(units.milliseconds(row[f"q{quantile}"]) for quantile in SHOWN),
                units.milliseconds(row["wait"]),
            )
            for row in kinds.head(ROWS).iter_rows(named=True)
        )
        heads = (*keys, "ops", *(f"{head} ms" for head in _HEADS), "wait p50 ms")
        blocks.append(Grid("durations of exchanges, waiting included", heads, lines, label_count=len(keys)))
    blocks += margins.more_rows(len(kinds), ROWS)
    return [*blocks, *margins.foot(about, found, sentence(kinds), every_notice=every_notice)]


def wide(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per kind: ``q<quantile>`` of the durations and the median ``wait``; the largest median first."""
    at = {
        f"q{quantile}": pl.col("dur_ns").filter(pl.col("quantile") == quantile).first() for quantile in SHOWN
    }
    wait = pl.col("wait_ns").filter(pl.col("quantile") == 0.5).first()
    kinds = rows.group_by(*GRAINS, maintain_order=True).agg(pl.col("op_count").first(), **at, wait=wait)
    return kinds.sort(-pl.col("q0.5"), *GRAINS)


def sentence(kinds: pl.DataFrame) -> str:
    """The one line to remember: the kind whose tail is longest against its median."""
    known = kinds.filter(pl.col("q0.5") > 0)
    if not len(known):
        return EMPTY
    tails = known.with_columns(tail=pl.col("q0.99") / pl.col("q0.5")).sort(-pl.col("tail"), *GRAINS)
    row = tails.row(0, named=True)
    name = " ".join(str(row[key]) for key in _KEYS if row[key] not in {None, NONE}) or "all exchanges"
    return (
        f"The longest tail has {name}: its p99 of {units.duration(row['q0.99'])} is "
        f"{units.significant(row['tail'])} times the median of {units.duration(row['q0.5'])}."
    )
