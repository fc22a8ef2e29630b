"""Where device work belongs: its window, and the annotation around its launch.

Only ranges of the launching thread count, as in Nsight Systems' projection: work that autograd launches from
a thread of its own lies in that thread's ranges, or in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.attribution import with_launch
from traceview.enclosure import enclosing
from traceview.intervals import Spans, innermost
from traceview.schema import Column

if TYPE_CHECKING:
    from traceview.intervals import Ints
    from traceview.trace import Trace

RANGE = Column(
    pl.Categorical(), "innermost annotation around the launch, on its thread; null: none", nullable=True
)


def window_of(ops: pl.DataFrame, frames: pl.DataFrame) -> Ints:
    """Row of the window (see `_windows.windows`) each op belongs to; -1 for none.

    An op belongs to the step it was launched in, however late it runs; one of unknown step to the window it
    starts in. So each op counts once, and whole.
    """
    start = frames["ts_ns"].to_numpy()
    # the whole device window ends with the last op, which may have no duration
    end = start + frames["dur_ns"].to_numpy() + frames["step"].is_null().cast(pl.Int64).to_numpy()
    spans = Spans.of(start, end, key=frames["device"].to_numpy())
    begun = innermost(spans, ops["device"].to_numpy().astype(np.int64), ops["ts_ns"].to_numpy())
    if frames["step"].null_count():
        return begun
    numbered = frames.select("device", "step", window=pl.int_range(pl.len()))
    stepped = ops.select("device", "step").join(
        numbered, on=["device", "step"], how="left", maintain_order="left"
    )
    launched_in = stepped["window"].fill_null(-1).to_numpy()
    return np.where(ops["step"].is_null().to_numpy(), begun, launched_in)


def launched(trace: Trace) -> pl.DataFrame:
    """When and where each row of `ops` was launched: ``ts_ns, pid, tid``, null if unknown."""
    found = with_launch(trace.table("ops").select("correlation"), trace.table("launches"))
    return found.select(ts_ns="launch_ts_ns", pid="launch_pid", tid="launch_tid")


def around_launch(trace: Trace) -> pl.Series:
    """Name of the innermost annotation around the launch of each device op, as `RANGE`; named ``range``."""
    ranges = trace.table("ranges")
    row = enclosing(ranges, launched(trace), on=("pid", "tid"))
    return ranges["name"].gather(row).alias("range")
