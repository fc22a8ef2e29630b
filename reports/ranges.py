"""The page of ``traceview ranges``: what annotations cost on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceview import units
from traceview.analyzers.ranges import LABELS
from traceview.reports import kernel_names, margins
from traceview.reports.layout import Block, Facts, Grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 30
METHOD = (
    "device work launched inside, on the range's own thread: its union; own: without what a nested range "
    "holds; projected: first start to last end per range, as Nsight Systems counts"
)


def page(
    about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `ranges` in the grain asked for.
        notices: Diagnostics, grouped.
        every_notice: Whether to show all of them.
    """
    blocks: list[Block] = [Facts((*margins.facts(about), ("method", METHOD)))]
    if len(rows):
        blocks += [_grid(rows), *margins.more_rows(len(rows), ROWS)]
    return [*blocks, *margins.foot(about, notices, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember."""
    if not len(rows):
        return (
            "No annotation was recorded; record_function, NVTX or traceview.annotate give device work a name."
        )
    top = rows.sort("own_ns", descending=True, maintain_order=True).row(0, named=True)
    if not top["own_ns"]:
        return "No device work was launched inside any annotation, or its launches were not recorded."
    name = next((str(top[key]) for key in ("name", *LABELS) if top[key] is not None), "all of them")
    share = units.percent(top["own_ns"] / int(rows["own_ns"].sum()))
    time, ranges = units.duration(top["own_ns"]), units.plural(top["range_count"], "range")
    return (
        f"{kernel_names.short(name)} is closest around most device work: {time} over {ranges}, "
        f"{share} of what annotations hold."
    )


def _grid(rows: pl.DataFrame) -> Grid:
    keys = [name for name in ("rank", "step", *LABELS) if rows[name].count()]
    heads = (
        *keys,
        "ranges",
        "with work",
        "ops",
        "host ms",
        "device ms",
        "own ms",
        "projected ms",
        "median host µs",
        "median device µs",
        "max device µs",
        "ranks",
    )
    lines = tuple(_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid("annotations and their device work, summed over ranks", heads, lines, label_count=len(keys))


def _cells(row: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    micro = (row[name] for name in ("median_host_ns", "median_device_ns", "max_device_ns"))
    return (
        *("" if row[key] is None else kernel_names.short(str(row[key])) for key in keys),
        *(units.count(row[name]) for name in ("range_count", "launching_count", "op_count")),
        *(units.milliseconds(row[name]) for name in ("host_ns", "device_ns", "own_ns", "projected_ns")),
        *(units.MISSING if ns is None else units.significant(ns / 1e3) for ns in micro),
        units.count(row["rank_count"]),
    )
