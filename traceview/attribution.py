"""Gives device work its context: step, microbatch, layer, phase and module, all through its launch.

The host range that counts is the innermost one around the *launch* that knows the attribute, on the
launching thread; failing that on any thread of the process, since autograd launches the backward pass
from threads of its own while the annotated thread waits inside its range.
"""

from __future__ import annotations

import polars as pl

from traceview.enclosure import enclosing
from traceview.schema import PHASES

CONTEXT_COLUMNS = ("microbatch", "layer", "phase")


def with_launch(ops: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """``ops`` plus ``launch_ts_ns, launch_pid, launch_tid`` of the call that launched each, where known.

    Also ``launch_dur_ns`` and ``launch_name``.

    One call may start many ops (graphs). Of several calls with one correlation the first counts: it is
    the outer one.
    """
    first = (
        launches.drop_nulls("correlation")
        .sort("ts_ns", maintain_order=True)
        .unique("correlation", keep="first")
        .select(
            "correlation",
            launch_ts_ns="ts_ns",
            launch_pid="pid",
            launch_tid="tid",
            launch_dur_ns="dur_ns",
            launch_name="name",
        )
    )
    return ops.join(first, on="correlation", how="left", maintain_order="left")


def with_context(ops: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """``ops`` (with launches) plus ``microbatch, layer, phase, module``.

    Args:
        ops: Device ops with ``launch_ts_ns, launch_pid, launch_tid``.
        ranges: Host ranges with ``pid, tid, ts_ns, dur_ns`` and the columns of `RANGES` that names tell.
    """
    launched = ops.select(ts_ns="launch_ts_ns", pid="launch_pid", tid="launch_tid")
    named = ranges.with_columns(module=pl.coalesce(pl.col("part").cast(pl.String), _module_name()))
    found = [_innermost_value(named, launched, column) for column in (*CONTEXT_COLUMNS, "module")]
    return _with_forward(ops.with_columns(found))


def _module_name() -> pl.Expr:
    return pl.when(pl.col("domain").cast(pl.String) == "module").then(pl.col("name").cast(pl.String))


def _innermost_value(ranges: pl.DataFrame, launched: pl.DataFrame, column: str) -> pl.Series:
    knowing = ranges.filter(pl.col(column).is_not_null())
    own = knowing[column].gather(enclosing(knowing, launched, on=("pid", "tid")))
    if not own.null_count():
        return own.alias(column)
    other = knowing[column].gather(enclosing(knowing, launched, on=("pid",)))
    return pl.select(pl.coalesce(own, other)).to_series().alias(column)


def _with_forward(ops: pl.DataFrame) -> pl.DataFrame:
    """Marks as forward what names no phase, in a step that does show a backward pass.

    PyTorch names its backward (``autograd::engine::evaluate_function``) and its optimizer, and leaves the
    forward unnamed; without any backward in the step there is nothing to tell it by.
    """
    shows_backward = (pl.col("phase") == "backward").any().over("step")
    unnamed = pl.col("phase").is_null() & pl.col("step").is_not_null() & pl.col("launch_ts_ns").is_not_null()
    forward = pl.lit("forward", pl.Enum(PHASES))
    return ops.with_columns(pl.when(unnamed & shows_backward).then(forward).otherwise("phase").alias("phase"))
