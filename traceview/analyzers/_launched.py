"""Device work beside the host call that launched it: what every question about launches starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.attribution import with_launch

if TYPE_CHECKING:
    from traceview.trace import Trace

_GRAPH_LAUNCH = "GraphLaunch"
_KEPT = (
    "device",
    "stream",
    "ts_ns",
    "dur_ns",
    "kind",
    "category",
    "class",
    "role",
    "correlation",
    "bytes",
    "copy_kind",
    "phase",
    "layer",
)
_END = pl.col("ts_ns") + pl.col("dur_ns")
_RETURN = pl.col("launch_ts_ns") + pl.col("launch_dur_ns")


def launched(trace: Trace) -> pl.DataFrame:
    """The `ops` of ``trace``, row by row, with their launch.

    Returns:
        `_KEPT` of the columns of `OPS`, ``launch_ts_ns, launch_pid, launch_tid`` and

        - ``end_ns``: end of the work.
        - ``launch_end_ns``: when the launching call returned.
        - ``issued_ns``: when it had handed the work over: its return, or its start where it is a copy to the
          host whose call lasted until the copy was done, since such a call waits for its own work.
        - ``is_blocking_copy``: whether it is one of those.
        - ``is_graph``: launched by a graph launch, or itself an opaque graph.
        - ``continues``: some work of the same call starts earlier.
    """
    ops = with_launch(trace.table("ops").select(_KEPT), trace.table("launches"))
    to_host = pl.col("copy_kind").cast(pl.String) == "DtoH"
    by_graph = pl.col("launch_name").cast(pl.String).str.contains(_GRAPH_LAUNCH, literal=True)
    known = ops.with_columns(
        end_ns=_END,
        launch_end_ns=_RETURN,
        is_blocking_copy=(to_host & (_RETURN >= _END)).fill_null(value=False),
        is_graph=by_graph.fill_null(value=False) | (pl.col("kind") == "graph"),
    )
    first = pl.col("ts_ns").min().over("correlation")
    return known.with_columns(
        issued_ns=pl.when("is_blocking_copy").then("launch_ts_ns").otherwise("launch_end_ns"),
        continues=pl.col("launch_ts_ns").is_not_null() & (pl.col("ts_ns") > first),
    ).drop("launch_dur_ns", "launch_name")


def graph_calls(launches: pl.DataFrame) -> pl.DataFrame:
    """Calls that launch a graph, each once even where runtime and driver both recorded it."""
    calls = launches.filter(pl.col("name").cast(pl.String).str.contains(_GRAPH_LAUNCH, literal=True)).sort(
        "ts_ns", maintain_order=True
    )
    numbered = calls.drop_nulls("correlation").unique("correlation", keep="first", maintain_order=True)
    return pl.concat([numbered, calls.filter(pl.col("correlation").is_null())])
