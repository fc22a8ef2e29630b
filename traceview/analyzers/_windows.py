"""The stretches of time an analysis looks at: steps, or the whole device window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.errors import AnalysisError

if TYPE_CHECKING:
    from traceview.contracts import Options
    from traceview.trace import Trace

WINDOW_COLUMNS = ("rank", "device", "step", "ts_ns", "dur_ns")


def windows(trace: Trace, options: Options) -> pl.DataFrame:
    """One row per device and window: ``rank, device, step, ts_ns, dur_ns``; never overlapping.

    ``steps="auto"`` gives the complete steps, or, where there are none, the whole device window (``step``
    null): from the first start to the last end of device work.

    Raises:
        AnalysisError: A step range was asked for and the trace has none of those steps.
    """
    ops = trace.table("ops")
    end = (pl.col("ts_ns") + pl.col("dur_ns")).max()
    whole = ops.group_by("rank", "device").agg(
        ts_ns=pl.col("ts_ns").min(), dur_ns=end - pl.col("ts_ns").min()
    )
    steps = chosen_steps(trace, options)
    if not len(steps):
        chosen = whole.with_columns(step=pl.lit(None, pl.Int64))
    else:
        chosen = whole.select("rank", "device").join(steps.select("step", "ts_ns", "dur_ns"), how="cross")
    return chosen.select(WINDOW_COLUMNS).sort("device", "ts_ns")


def chosen_steps(trace: Trace, options: Options) -> pl.DataFrame:
    """The rows of `steps` that ``options`` ask for; none stands for the whole device window.

    Raises:
        AnalysisError: A step range was asked for and the trace has none of those steps.
    """
    steps = trace.table("steps")
    if options.steps == "all":
        return steps.clear()
    if options.steps == "auto":
        return steps.filter(pl.col("status") == "complete")
    wanted = steps.filter(pl.col("step").is_in(list(options.steps)))
    if not len(wanted):
        have = ", ".join(map(str, steps["step"].to_list()[:20])) or "none"
        message = f"rank {trace.facts.rank} has none of the steps asked for; it has: {have}."
        raise AnalysisError(message)
    return wanted
