"""Who sends how much to whom, as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from traceview.reports.figures import _theme

MATRIX_RANKS = 128
"""A matrix of more ranks than this adds neighbours up."""


def block_size(rows: pl.DataFrame) -> int:
    """Neighbouring ranks that `sent` adds up; 1 where all can be shown."""
    last, size = max([0, *rows["rank"].drop_nulls(), *rows["peer"].drop_nulls()]), 1
    while last // size >= MATRIX_RANKS:
        size *= 2
    return size


def sent(rows: pl.DataFrame) -> pl.DataFrame:
    """``rank, peer, MB sent``, of a `traffic` by pair; of many ranks, of blocks named by their first."""
    size = block_size(rows)
    pairs = rows.drop_nulls(("rank", "peer", "sent_bytes")).with_columns(
        pl.col("rank", "peer") // size * size
    )
    sums = pairs.group_by("rank", "peer").agg((pl.col("sent_bytes").sum() / 1e6).alias("MB sent"))
    return sums.sort("rank", "peer")


def by_pair(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Image
    """Sender (down) by receiver (across), coloured by the MB sent, of a `traffic` by pair."""
    table, size = sent(rows), block_size(rows)
    last = max([0, *table["rank"], *table["peer"]]) // size
    values = np.full((last + 1, last + 1), np.nan, np.float32)
    cells = tuple(table[name].to_numpy() // size for name in ("rank", "peer"))
    values[cells] = table["MB sent"].to_numpy()
    of = "rank" if size == 1 else f"{size} ranks"
    places = list(range(last + 1))
    return _theme.image(_theme.Grid(places, places, values), (f"to {of}", f"from {of}", "MB"))


FIGURES = {("pair",): by_pair}
