"""Which host range surrounds an instant, and which instants a range holds: launches tie device to host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.intervals import Spans, innermost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.intervals import Ints


def enclosing(ranges: pl.DataFrame, instants: pl.DataFrame, *, on: Sequence[str]) -> pl.Series:
    """Row of the innermost range around each instant, among those that agree in the columns ``on``.

    Args:
        ranges: ``ts_ns``, ``dur_ns`` and the columns ``on``.
        instants: ``ts_ns`` (may be null) and the columns ``on``.
        on: Columns that must agree: ``("pid", "tid")`` for one thread, ``("pid",)`` for a process.

    Returns:
        One int64 row number of ``ranges`` per instant, null where no range surrounds it.
    """
    key = _places(ranges, instants, on)
    start = ranges["ts_ns"].to_numpy()
    spans = Spans.of(start, start + ranges["dur_ns"].to_numpy(), key=key[: len(ranges)])
    row = innermost(spans, key[len(ranges) :], instants["ts_ns"].fill_null(0).to_numpy())
    found = (row >= 0) & instants["ts_ns"].is_not_null().to_numpy()
    return pl.select(pl.when(pl.Series(found)).then(pl.Series(row.astype(np.int64)))).to_series()


@dataclass(frozen=True, slots=True, eq=False)
class Enclosed:
    """The instants each range holds: rows ``order[first:stop]`` of them, in order of time."""

    order: Ints
    first: Ints
    stop: Ints

    def rows(self, first: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Rows of the instants between each pair of bounds in ``order``, and which pair each is of."""
        count = stop - first
        pair = np.repeat(np.arange(len(first)), count)
        ahead = np.cumsum(count) - count
        return self.order[np.arange(len(pair)) + (first - ahead)[pair]], pair


def enclosed(ranges: pl.DataFrame, instants: pl.DataFrame, *, on: Sequence[str]) -> Enclosed:
    """Which instants lie in each of ``ranges``, end excluded; the arguments are those of `enclosing`."""
    key = _places(ranges, instants, on)
    known = np.flatnonzero(instants["ts_ns"].is_not_null().to_numpy())
    start = ranges["ts_ns"].to_numpy()
    time = instants["ts_ns"].fill_null(0).to_numpy()[known]
    # ranks of the times that occur, as keys times nanoseconds might not fit
    times, rank = np.unique(
        np.concatenate([time, start, start + ranges["dur_ns"].to_numpy()]), return_inverse=True
    )
    at, begin, end = np.split(rank.astype(np.int64), np.cumsum([len(time), len(start)]))
    code = key[len(ranges) :][known] * len(times) + at
    order = np.argsort(code, kind="stable")
    shift = key[: len(ranges)] * len(times)
    first, stop = (np.searchsorted(code[order], bound + shift) for bound in (begin, end))
    return Enclosed(known[order], first, stop)


def _places(ranges: pl.DataFrame, instants: pl.DataFrame, on: Sequence[str]) -> Ints:
    """A code per distinct value of ``on``: of the ranges, then of the instants."""
    both = pl.concat([ranges.select(on), instants.select(on)])
    return both.select(pl.struct(on).rank("dense").cast(pl.Int64)).to_series().to_numpy()
