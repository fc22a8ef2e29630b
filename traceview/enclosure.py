"""Which host range surrounds an instant: how device work, through its launch, gets its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.intervals import Spans, innermost

if TYPE_CHECKING:
    from collections.abc import Sequence


def enclosing(ranges: pl.DataFrame, instants: pl.DataFrame, *, on: Sequence[str]) -> pl.Series:
    """Row of the innermost range around each instant, among those that agree in the columns ``on``.

    Args:
        ranges: ``ts_ns``, ``dur_ns`` and the columns ``on``.
        instants: ``ts_ns`` (may be null) and the columns ``on``.
        on: Columns that must agree: ``("pid", "tid")`` for one thread, ``("pid",)`` for a process.

    Returns:
        One int64 row number of ``ranges`` per instant, null where no range surrounds it.
    """
    places = (
        pl.concat([ranges.select(on), instants.select(on)]).select(pl.struct(on).rank("dense")).to_series()
    )
    key = places.cast(pl.Int64).to_numpy()
    start = ranges["ts_ns"].to_numpy()
    spans = Spans.of(start, start + ranges["dur_ns"].to_numpy(), key=key[: len(ranges)])
    row = innermost(spans, key[len(ranges) :], instants["ts_ns"].fill_null(0).to_numpy())
    found = (row >= 0) & instants["ts_ns"].is_not_null().to_numpy()
    return pl.select(pl.when(pl.Series(found)).then(pl.Series(row.astype(np.int64)))).to_series()
