"""Collective metadata of Kineto traces: which communication call each device op carries out.

It stands on the kernel; failing that on the ``record_param_comms`` host row with the kernel's ``External
id`` (or its launch's); failing that on the one whose call contains the launch.
"""

from __future__ import annotations

import polars as pl

from traceview import schema
from traceview.enclosure import enclosing
from traceview.parsers._json_events import COMM_SCHEMA


def comm_calls(
    ops: pl.DataFrame, launches: pl.DataFrame, comm: pl.DataFrame | None, groups: pl.DataFrame
) -> pl.DataFrame:
    """`COMM_CALLS`: metadata on the kernel, else on the host call linked by External id, else by time."""
    on_kernel = ops.filter(pl.col("collective_name").is_not_null()).with_columns(source=pl.lit("kernel_args"))
    calls = [on_kernel.select("op", *COMM_SCHEMA, "source")]
    if comm is not None and len(comm):
        bare = ops.filter(pl.col("collective_name").is_null() & (pl.col("kind") == "kernel"))
        calls.append(_from_host(bare, launches, comm).select("op", *COMM_SCHEMA, "source"))
    found = (
        pl.concat(calls, how="vertical_relaxed").unique("op", keep="first", maintain_order=True).sort("op")
    )
    cut = pl.concat_str([pl.col(c).fill_null("") for c in ("in_splits", "out_splits")]).str.contains(
        "...", literal=True
    )
    listed = found.with_columns(
        splits_complete=pl.when(_listed("in_splits").is_not_null() | cut).then(~cut),
        in_splits=_listed("in_splits"),
        out_splits=_listed("out_splits"),
        group_ranks=_listed("group_ranks"),
    )
    return schema.COMM_CALLS.admit(_with_members(listed, groups))


def _listed(column: str) -> pl.Expr:
    """``"[1, 2]"`` as a list; null when empty or cut short (Kineto keeps 30 entries and writes ``...``)."""
    numbers = pl.col(column).str.extract_all(r"\d+").cast(pl.List(pl.Int64), strict=False)
    whole = ~pl.col(column).str.contains("...", literal=True) & (numbers.list.len() > 0)
    return pl.when(whole).then(numbers)


def _with_members(calls: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Member lists that the event cut short or left out, from the file's group table."""
    known = groups.select(pl.col("group_name").cast(pl.String), members="group_ranks").unique(
        "group_name", keep="first"
    )
    joined = calls.join(known, on="group_name", how="left", maintain_order="left")
    return joined.with_columns(
        group_ranks=pl.coalesce("group_ranks", pl.col("members").cast(pl.List(pl.Int64)))
    )


def _from_host(ops: pl.DataFrame, launches: pl.DataFrame, comm: pl.DataFrame) -> pl.DataFrame:
    """Metadata of kernels that carry none, from the ``record_param_comms`` row of their launch."""
    calls = comm.filter(pl.col("collective_name").is_not_null()).with_row_index("call")
    launch = launches.unique("correlation", keep="first").select(
        "correlation", launch_id="external_id", launch_pid="pid", launch_tid="tid", launch_ts="ts_ns"
    )
    linked = ops.select("op", "correlation", "external_id").join(
        launch, on="correlation", how="left", maintain_order="left"
    )
    by_id = calls.select("call", "external_id").unique("external_id", keep="none").drop_nulls()
    linked = linked.with_columns(pl.coalesce("external_id", "launch_id").alias("external_id"))
    linked = linked.join(by_id, on="external_id", how="left", maintain_order="left")
    linked = linked.with_columns(call=pl.coalesce(pl.col("call").cast(pl.Int64), _containing(linked, calls)))
    known = linked.drop_nulls("call").with_columns(pl.col("call").cast(pl.UInt32)).select("op", "call")
    return known.join(calls, on="call", how="left", maintain_order="left").with_columns(
        source=pl.lit("host_op")
    )


def _containing(linked: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Index of the call on the launching thread that contains each launch; null where there is none."""
    launched = linked.select(pid="launch_pid", tid="launch_tid", ts_ns="launch_ts")
    return enclosing(calls, launched, on=("pid", "tid"))
