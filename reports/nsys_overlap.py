"""What ``traceview overlap --compat nsys`` adds: the recipe's pairs beside the union of the same kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

ROWS = 24
TITLE = (
    "as Nsight Systems' recipe nccl_gpu_overlap_trace counts (kernels named nccl* against all others, pair "
    "by pair), and the union of the same kernels"
)


def blocks(rows: pl.DataFrame) -> Iterator[Block]:
    """The table of one run's `nsys_overlap`."""
    keys = [name for name in ("rank", "device", "name") if rows[name].count()]
    heads = (*keys, "kernels", "under", "count", "sum ms", "pairs ms", "pairs %", "union ms", "union %")
    lines = tuple(
        (
            *(str(row[key]) for key in keys),
            row["kind"],
            row["other_kind"],
            units.count(row["kernel_count"]),
            units.milliseconds(row["total_ns"]),
            units.milliseconds(row["pair_ns"]),
            units.percent_value(row["pair_share"]),
            units.milliseconds(row["union_overlap_ns"]),
            units.percent_value(row["union_ratio"]),
        )
        for row in rows.head(ROWS).iter_rows(named=True)
    )
    yield Grid(TITLE, heads, lines, label_count=len(keys) + 2)
    yield from margins.more_rows(len(rows), ROWS)
