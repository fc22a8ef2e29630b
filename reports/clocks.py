"""The page of `clocks`: how far the ranks' clocks are apart, and what the fit leaves over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid

if TYPE_CHECKING:
    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 64


def page(
    about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run; offsets are relative to the first rank's, which is as good as any."""
    own = pl.col("offset_ns") - pl.col("offset_ns").first()
    relative = rows.with_columns(offset=own, drift=pl.col("drift_ppm") - pl.col("drift_ppm").first())
    shown = relative.head(ROWS).select("rank", "component", "offset", "drift")
    cells = tuple(
        (str(rank), str(component), units.significant(offset / 1e3), units.significant(drift))
        for rank, component, offset, drift in shown.iter_rows()
    )
    heads = ("rank", "component", "offset µs", "drift ppm")
    grid = Grid("clock of each rank against the first one's", heads, cells, label_count=2)
    blocks: list[Block] = [Facts((*margins.facts(about), *margins.recorded(about))), grid]
    blocks += margins.more_rows(len(rows), ROWS)
    return [*blocks, *margins.foot(about, notices, sentence(relative), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The line to remember."""
    if rows["component"].n_unique() > 1:
        return "Some hosts share no collective with others, so nothing can be compared between them."
    first = rows.row(0, named=True)
    if first["residual_p95_ns"] is None:
        return "No collective was matched over several ranks, so clocks are taken as they are."
    apart = rows.select(pl.col("offset_ns").max() - pl.col("offset_ns").min()).item()
    return (
        f"Clocks are up to {units.duration(apart)} apart; fitted to the ends of "
        f"{units.plural(first['instance_count'], 'collective')}, 95 % of the ends agree within "
        f"{units.duration(first['residual_p95_ns'])}."
    )
