"""Device work as spans per window: what `breakdown` and `overlap` measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.intervals import Ints, Spans, difference, split, total, union

if TYPE_CHECKING:
    from traceview.trace import Trace

COMPUTE = ("compute", "fused")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Busy stretches of each window, keyed by the window's row.

    ``pieces`` are the parts of single ops, and ``row`` the row of `ops` behind each; ``compute``, ``comm``
    and ``busy`` are their unions, disjoint; ``windows`` are the windows themselves.
    """

    windows: Spans
    pieces: Spans
    row: Ints
    compute: Spans
    comm: Spans
    busy: Spans

    @property
    def exposed(self) -> Spans:
        """Communication while no compute runs."""
        return difference(self.comm, self.compute)

    def measure(self, spans: Spans) -> Ints:
        """Ns of each window."""
        return total(spans, len(self.windows))


def occupancy(trace: Trace, windows: pl.DataFrame) -> Occupancy:
    """The device work of ``trace`` cut by ``windows`` (see `windows`)."""
    ops = trace.table("ops")
    start = ops["ts_ns"].to_numpy()
    spans = Spans.of(start, start + ops["dur_ns"].to_numpy(), key=ops["device"].to_numpy())
    begin = windows["ts_ns"].to_numpy()
    frames = Spans.of(begin, begin + windows["dur_ns"].to_numpy(), key=windows["device"].to_numpy())
    pieces, row = split(spans, frames)
    kind = ops["class"].cast(pl.String).to_numpy()[row] if len(row) else np.array([], dtype=object)
    compute = union(pieces.take(np.isin(kind, COMPUTE)))
    comm = union(pieces.take(kind == "comm"))
    own = Spans(np.arange(len(windows), dtype=np.int64), frames.start, frames.end)
    return Occupancy(own, pieces, row, compute, comm, union(pieces))
