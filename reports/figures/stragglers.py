"""Who is late, step by step; and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview.reports.figures import _theme

if TYPE_CHECKING:
    from collections.abc import Sequence

MATRIX_RANKS = 128
"""A matrix of more ranks than this adds neighbours up."""


def lateness(rows: pl.DataFrame) -> pl.DataFrame:
    """``step, rank``, the ms others wait exposed for it, and how late it is when it is last, in ms."""
    return rows.drop_nulls(("step", "rank")).select(
        "step",
        "rank",
        (pl.col("blamed_ns") / 1e6).alias("waiting ms"),
        (pl.col("late_p50_ns") / 1e6).alias("late ms"),
    )


def by_step(rows: pl.DataFrame, measure: str = "waiting", *, ranks: Sequence[int] | None = None) -> Any:  # noqa: ANN401 - an hv.Image
    """Step by rank of a `stragglers`, coloured by ``waiting`` (for the rank) or how ``late`` it is.

    Args:
        rows: The result.
        measure: Which of the two.
        ranks: All ranks of the run; else those that were last at least once.
    """
    laid = _theme.grid(lateness(rows), "rank", "step", f"{measure} ms", columns=ranks)
    return _theme.image(laid, ("rank", "step", f"{measure} ms"))


def waits(rows: pl.DataFrame) -> pl.DataFrame:
    """``rank, victim``: ms per step that the victim waits exposed for the rank; of many ranks, of blocks."""
    blamed = rows.drop_nulls(("rank", "victim")).filter(pl.col("blamed_ns") > 0)
    per = pl.col("step_count").clip(lower_bound=1) * 1e6
    size = block_size(rows)
    return (
        blamed.select(
            pl.col("rank", "victim") // size * size, (pl.col("blamed_ns") / per).alias("waiting ms")
        )
        .group_by("rank", "victim")
        .agg(pl.col("waiting ms").sum())
        .sort("rank", "victim")
    )


def block_size(rows: pl.DataFrame) -> int:
    """Neighbouring ranks that `waits` adds up; 1 where all can be shown."""
    last = max([0, *rows["rank"].drop_nulls(), *rows["victim"].drop_nulls()])
    size = 1
    while last // size >= MATRIX_RANKS:
        size *= 2
    return size


def matrix(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Image
    """Who waits (across) for whom (down), of a `stragglers` by victim."""
    table, size = waits(rows), block_size(rows)
    ranks = np.union1d(table["rank"].to_numpy(), table["victim"].to_numpy())
    last = max([int(ranks.max(initial=0)), *rows["victim"].drop_nulls()]) // size
    values = np.full((last + 1, last + 1), np.nan, np.float32)
    cells = tuple(table[name].to_numpy() // size for name in ("rank", "victim"))
    values[cells] = table["waiting ms"].to_numpy()
    names = ("rank that waits", "rank waited for") if size == 1 else (f"{size} ranks that wait", "waited for")
    steps = list(range(last + 1))
    return _theme.image(_theme.Grid(steps, steps, values), (*names, "ms"))


FIGURES = {("rank", "step"): by_step, ("victim",): matrix}
