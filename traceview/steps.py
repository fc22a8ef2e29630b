"""Training steps of one rank: which host ranges mark them, and the device windows they tile.

Device work belongs to the step whose host range contains its *launch*; it may well run after that range
has ended. The device window of a step therefore runs from the first start of an op launched in the step
to the first start of one launched in the next; the last window ends with the last end of its ops. Windows
tile the timeline, so their durations add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.enclosure import enclosing
from traceview.schema import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

WARMUP_FACTOR = 1.5
"""A leading step longer than this many median steps is marked warm-up."""

LINKED_SHARE = 0.95
"""A step with a smaller share of its kernel launches found on the device is marked partial."""

_OPTIMIZER_STEP = r"^Optimizer\.step#"


def host_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """Host ranges of the steps: ``step, ts_ns, dur_ns, source, whole``; empty when nothing marks steps.

    ``whole`` is false for a stretch whose other end was not recorded. Ranges never overlap.
    """
    for candidate in _SOURCES:
        found = candidate(ranges)
        if len(found):
            return found
    return _none()


def _none() -> pl.DataFrame:
    schema = {
        "step": pl.Int64,
        "ts_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "source": pl.String,
        "whole": pl.Boolean,
    }
    return pl.DataFrame(schema=schema)


def _marked(ranges: pl.DataFrame, *, profiler: bool) -> pl.DataFrame:
    """Ranges that carry a step number; of several families the one with the most steps."""
    is_profiler = pl.col("raw_name").cast(pl.String).str.starts_with("ProfilerStep#")
    marked = ranges.filter(
        (pl.col("kind") == "step") & pl.col("step").is_not_null() & (is_profiler == profiler)
    )
    if not len(marked):
        return _none()
    family = marked.group_by("name").len().sort(["len", "name"], descending=[True, False])["name"][0]
    one_each = marked.filter(pl.col("name") == family).unique("step", keep="first").sort("ts_ns", "step")
    # a range that reaches into the next one is cut there: an instant belongs to one step
    end = pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), pl.col("ts_ns").shift(-1))
    source = pl.lit("ProfilerStep") if profiler else pl.col("name").cast(pl.String)
    return one_each.select(
        "step", "ts_ns", dur_ns=end - pl.col("ts_ns"), source=source, whole=pl.lit(value=True)
    )


def _by_optimizer(ranges: pl.DataFrame) -> pl.DataFrame:
    """Steps that end with the optimizer: needs the same ``Optimizer.step#…`` range at least twice.

    Where several optimizers run per step, the one that runs last in the trace ends it. What was recorded
    before the first end and after the last one are parts of steps.
    """
    calls = ranges.filter(pl.col("raw_name").cast(pl.String).str.contains(_OPTIMIZER_STEP)).sort("ts_ns")
    calls = calls.filter(pl.len().over("raw_name") >= 2)
    if not len(calls):
        return _none()
    closing = calls.filter(pl.col("raw_name") == calls["raw_name"][-1])
    ends = (closing["ts_ns"] + closing["dur_ns"]).alias("end")
    first, last = ranges["ts_ns"].min(), (ranges["ts_ns"] + ranges["dur_ns"]).max()
    starts = pl.concat([pl.Series("ts_ns", [first], pl.Int64), ends.alias("ts_ns")])
    until = pl.concat([ends, pl.Series("end", [last], pl.Int64)])
    steps = pl.DataFrame([starts, until]).with_row_index("step")
    inner = pl.col("step").is_between(1, len(ends) - 1)
    return steps.filter(pl.col("end") > pl.col("ts_ns")).select(
        pl.col("step").cast(pl.Int64),
        "ts_ns",
        dur_ns=pl.col("end") - pl.col("ts_ns"),
        source=pl.lit("optimizer"),
        whole=inner,
    )


_SOURCES: tuple[Callable[[pl.DataFrame], pl.DataFrame], ...] = (
    lambda ranges: _marked(ranges, profiler=True),
    lambda ranges: _marked(ranges, profiler=False),
    _by_optimizer,
)


def step_of_launch(host: pl.DataFrame, launch_ts: pl.Series) -> pl.Series:
    """The step whose host range contains each launch, on whatever thread; null outside of all steps."""
    if not len(host):
        return pl.Series("step", [None] * len(launch_ts), dtype=pl.Int64)
    everywhere = pl.lit(0).alias("place")
    row = enclosing(
        host.with_columns(everywhere), launch_ts.to_frame("ts_ns").with_columns(everywhere), on=("place",)
    )
    return host["step"].gather(row).alias("step")


def device_steps(host: pl.DataFrame, ops: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """`STEPS` of a rank whose ``ops`` carry their ``step``; steps that launched nothing are absent."""
    work = ops.filter(pl.col("step").is_not_null()).group_by("rank", "step")
    begun = work.agg(
        ts_ns=pl.col("ts_ns").min(), end_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max(), op_count=pl.len()
    )
    # windows follow the order of the host ranges, not of the numbers, and never run backwards
    order = host.select("step", "source", "whole", host_ts_ns="ts_ns", host_dur_ns="dur_ns")
    tiled = (
        begun.join(order, on="step", how="left")
        .sort("host_ts_ns")
        .with_columns(pl.col("ts_ns").cum_max())
        .with_columns(dur_ns=pl.coalesce(pl.col("ts_ns").shift(-1), pl.col("end_ns").max()) - pl.col("ts_ns"))
    )
    linked = tiled.join(_linked_share(host, ops, launches), on="step", how="left")
    median = pl.col("dur_ns").median()
    leading = (pl.col("dur_ns") > WARMUP_FACTOR * median).cum_prod().cast(pl.Boolean)
    status = (
        pl.when(~pl.col("whole") | (pl.col("linked_share") < LINKED_SHARE))
        .then(pl.lit("partial"))
        .when(leading & (pl.len() >= 3))
        .then(pl.lit("warmup"))
        .otherwise(pl.lit("complete"))
    )
    return STEPS.conform(linked.sort("host_ts_ns").with_columns(status=status))


def _linked_share(host: pl.DataFrame, ops: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Per step, the share of its kernel-launch calls that have device work: ``step, linked_share``."""
    starting = pl.col("name").cast(pl.String).str.contains("(?i)launchkernel|graphlaunch")
    calls = launches.filter(starting & pl.col("correlation").is_not_null())
    found = pl.col("correlation").is_in(ops["correlation"].drop_nulls().unique().implode())
    return (
        calls.with_columns(step_of_launch(host, calls["ts_ns"]), found=found)
        .drop_nulls("step")
        .group_by("step")
        .agg(linked_share=pl.col("found").mean())
    )
