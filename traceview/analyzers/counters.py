"""What the trace's counters read in the windows looked at, and what while the device did what.

A sample stands for a stretch of time: a mean for the time since the sample before it (`holds` is "before", as
GPU and NIC metrics), a level for the time until the next one ("after", as memory). So their statistics are
weighted by time: the mean is the integral over the sampled time, and a quantile is the least value at or
below which the metric was for that share of the time. The stretch of a mean is never longer than twice the
usual distance of samples, since nothing was measured in a gap; the first of them gets the usual one. Where
the trace does not say, a sample stands for no time: each counts once, where it is stamped.

The states are the parts of `breakdown`, which tile the window. A level holds in each state that it meets. A
mean speaks for a state only if at least `PURE` of its stretch lies in it: what is shorter than a sample it
blurs into its neighbours. ``sampled_ratio`` says for how much of a state some sample speaks, and without any,
the figures are null.

Mean, extremes and counts are exact over any number of ranks. Quantiles are exact too while a metric of a
device has at most `DISTINCT` values; beyond that values are put in buckets `BUCKET` wide, and
``quantile_error_ratio`` says so. Samples of no device go with the first device of their rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, covered, split
from traceview.schema import HOLDS, Column, Table

if TYPE_CHECKING:
    from traceview.analyzers._occupancy import Occupancy
    from traceview.trace import Trace

STATES = ("compute", "exposed_comm", "exposed_copy", "idle")
"""What the device did: compute or fused kernels; communication without them; copies alone; nothing."""
METHODS = ("mean before", "level after", "each sample")
"""What a sample was taken to stand for; the last where the trace does not say: it counts once."""

DISTINCT = 256
BUCKET = 0.01
"""Width of a bucket, as a share of the values in it."""
PURE = 0.9
_LONGEST_STRETCH = 2

_NS, _F64 = pl.Int64(), pl.Float64()
_METRIC = ("metric", "unit")
_SPANS = ("rank", "device", "step")
GRAINS = {
    "metric": _METRIC,
    "rank": (*_METRIC, "rank", "device"),
    "device": (*_METRIC, "device"),
    "step": (*_METRIC, "step"),
    "state": (*_METRIC, "state"),
}

RESULT = Table(
    "counters",
    "Time-weighted statistics of every counter of the trace.",
    {
        "metric": Column(pl.String(), "metric as the profiler names it"),
        "unit": Column(pl.String(), "unit of the values"),
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when devices are summed", nullable=True),
        "step": Column(_NS, "step; null for the whole window or when steps are summed", nullable=True),
        "state": Column(pl.Enum(STATES), "what the device did; null when states are summed", nullable=True),
        "mean": Column(_F64, "mean over the sampled time; null if there is none", nullable=True),
        "median": Column(_F64, "at or below it for half of the sampled time", nullable=True),
        "p95": Column(_F64, "at or below it for 95 % of the sampled time", nullable=True),
        "min": Column(_F64, "least sample", nullable=True),
        "max": Column(_F64, "greatest sample", nullable=True),
        "quantile_error_ratio": Column(_F64, "how far median and p95 may be off; 0 if exact"),
        "sample_count": Column(_NS, "samples that stand for some of the time"),
        "device_count": Column(_NS, "devices (rank × device) with the metric"),
        "period_ns": Column(
            _NS, "usual distance of samples, the greatest of any device", "ns", nullable=True
        ),
        "sampled_ns": Column(
            _NS, "time that samples stand for; null if each counts once", "ns", nullable=True
        ),
        "window_ns": Column(_NS, "time looked at, in this state", "ns"),
        "sampled_ratio": Column(
            _F64, "sampled / window; null for an empty window or if each sample counts once", nullable=True
        ),
        "method": Column(pl.Enum(METHODS), "what a sample was taken to stand for"),
    },
)

PARTIAL = Table(
    "counters",
    "Time by value of each metric of a device; and, with `value` null, the time looked at.",
    {name: RESULT.columns[name] for name in ("metric", "unit", "rank", "device", "step", "state", "method")}
    | {
        "value": Column(_F64, "the value, or the lower edge of its bucket", nullable=True),
        "is_bucket": Column(pl.Boolean(), "whether it is a bucket"),
        "weight": Column(_NS, "ns that samples stand for, or samples if each counts once"),
        "integral": Column(_F64, "sum of value × weight", nullable=True),
        **{name: RESULT.columns[name] for name in ("min", "max", "sample_count", "period_ns")},
        "window_ns": Column(_NS, "time looked at; 0 in a row of values", "ns"),
    },
)


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank: a row per metric, device, value and label asked for; empty without counters."""
    frames = windows(trace, options)
    if "counters" not in trace.tables or not len(trace.table("counters")) or not len(frames):
        return PARTIAL.empty()
    samples = _stretches(_placed(trace.table("counters"), frames), frames)
    found = occupancy(trace, frames)
    labels = [name for name in ("step", "state") if name in options.columns(GRAINS)]
    keys = (*_METRIC, "rank", "device", *labels, "method")
    pieces = _pieces(samples, frames, found)
    if "state" in labels:
        stretch = pl.col("end_ns") - pl.col("start_ns")
        pieces = pieces.filter((pl.col("method") != METHODS[0]) | (pl.col("weight") >= PURE * stretch))
    values = pieces.group_by(*keys, "value", "is_bucket").agg(
        integral=(pl.col("sample_value") * pl.col("weight")).sum(),
        min=pl.col("sample_value").min(),
        max=pl.col("sample_value").max(),
        sample_count=pl.col("sample").n_unique(),
        weight=pl.col("weight").sum(),
    )
    known = samples.group_by("rank", "device", *_METRIC, "method").agg(pl.col("period_ns").first())
    looked_at = (
        known.join(_windows_by_state(frames, found), on=["rank", "device"])
        .group_by(*keys)
        .agg(pl.col("window_ns").sum(), pl.col("period_ns").max())
    )
    rows = pl.concat([values, looked_at], how="diagonal").with_columns(
        pl.col("is_bucket").fill_null(value=False),
        pl.col("sample_count", "weight", "window_ns").fill_null(0),
    )
    return PARTIAL.frame(rows)


def _placed(counters: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Samples of devices that were looked at; those of no device go with the first one."""
    first = frames["device"].min()
    return counters.with_columns(
        pl.col("device").fill_null(first), pl.col("metric", "unit").cast(pl.String)
    ).filter(pl.col("device").is_in(frames["device"].unique().implode()) & pl.col("value").is_finite())


def _stretches(samples: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """``samples`` with the time each stands for, its ``method``, and the value or bucket it counts under."""
    one = ("device", *_METRIC, "holds")
    ts = pl.col("ts_ns")
    ordered = samples.sort(*one, "ts_ns", maintain_order=True).with_columns(
        before_ns=ts.shift(1).over(one),
        after_ns=ts.shift(-1).over(one),
        period_ns=(ts - ts.shift(1)).median().over(one).round().cast(pl.Int64),
        is_mean=(pl.col("holds").cast(pl.String) == HOLDS[0]).fill_null(value=False),
        is_bucket=(pl.col("value").n_unique() > DISTINCT).over(one) & (pl.col("value") != 0),
    )
    last = int((frames["ts_ns"] + frames["dur_ns"]).to_numpy().max())
    usual = pl.col("period_ns").fill_null(0)  # of a lone sample nothing tells for how long it speaks
    measured_from = pl.max_horizontal(pl.coalesce("before_ns", ts - usual), ts - _LONGEST_STRETCH * usual)
    level_until = pl.max_horizontal(pl.coalesce("after_ns", pl.lit(last)), ts)
    is_level = pl.col("holds").is_not_null() & ~pl.col("is_mean")
    method = pl.when("is_mean").then(pl.lit(METHODS[0])).when(is_level)
    magnitude = (pl.col("value").abs().log() / np.log1p(BUCKET)).floor()
    edge = pl.col("value").sign() * (magnitude * np.log1p(BUCKET)).exp()
    return ordered.with_row_index("sample").select(
        "sample",
        "rank",
        "device",
        *_METRIC,
        "period_ns",
        "is_bucket",
        start_ns=pl.when("is_mean").then(measured_from).otherwise(ts),
        end_ns=pl.when("is_mean").then(ts).when(is_level).then(level_until).otherwise(ts + 1),
        method=method.then(pl.lit(METHODS[1])).otherwise(pl.lit(METHODS[2])),
        value=pl.when("is_bucket").then(edge).otherwise("value"),
        sample_value="value",
    )


def _pieces(samples: pl.DataFrame, frames: pl.DataFrame, found: Occupancy) -> pl.DataFrame:
    """The time each sample shares with each window and state: ``step, state, weight`` and its columns."""
    start, end = (samples[name].to_numpy() for name in ("start_ns", "end_ns"))
    spans = Spans.of(start, end, key=samples["device"].to_numpy())
    begin = frames["ts_ns"].to_numpy()
    within = Spans.of(begin, begin + frames["dur_ns"].to_numpy(), key=frames["device"].to_numpy())
    pieces, row = split(spans, within)
    shared = _by_state(pieces, found)
    of_samples: pl.DataFrame = samples[row]
    of_windows = of_samples.with_columns(frames["step"].gather(pieces.key), **shared)
    return _melted(of_windows, "weight").filter(pl.col("weight") > 0)


def _by_state(pieces: Spans, found: Occupancy) -> dict[str, pl.Series]:
    """Time of each piece in each of `STATES`; pieces are keyed by window, as `Occupancy` is."""
    compute, exposed, busy = (covered(part, pieces) for part in (found.compute, found.exposed, found.busy))
    times = (compute, exposed, busy - compute - exposed, pieces.durations() - busy)
    return {state: pl.Series(state, time) for state, time in zip(STATES, times, strict=True)}


def _melted(frame: pl.DataFrame, value: str) -> pl.DataFrame:
    others = [name for name in frame.columns if name not in STATES]
    return frame.unpivot(STATES, index=others, variable_name="state", value_name=value)


def _windows_by_state(frames: pl.DataFrame, found: Occupancy) -> pl.DataFrame:
    """``rank, device, step, state, window_ns``."""
    shown = frames.select("rank", "device", "step").with_columns(**_by_state(found.windows, found))
    return _melted(shown, "window_ns")


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per metric and value of ``options.by``."""
    keys = [*dict.fromkeys((*_METRIC, *options.columns(GRAINS))), "method"]
    own = partials.with_columns(pl.struct("rank", "device").alias("owner"))
    by_value = (
        own.filter(pl.col("value").is_not_null())
        .group_by(*keys, "value")
        .agg(
            pl.col("integral", "sample_count", "weight").sum(),
            pl.col("min").min(),
            pl.col("max").max(),
            pl.col("is_bucket").any(),
        )
    )
    statistics = (
        by_value.sort("value")
        .group_by(keys)
        .agg(
            mean=pl.col("integral").sum() / pl.col("weight").sum(),
            median=_quantile(1, 2),
            p95=_quantile(19, 20),
            min=pl.col("min").min(),
            max=pl.col("max").max(),
            quantile_error_ratio=pl.col("is_bucket").any().cast(pl.Float64) * BUCKET,
            sample_count=pl.col("sample_count").sum(),
            weight=pl.col("weight").sum(),
        )
    )
    looked_at = (
        own.filter(pl.col("value").is_null())
        .group_by(keys)
        .agg(pl.col("window_ns").sum(), pl.col("period_ns").max(), device_count=pl.col("owner").n_unique())
    )
    joined = looked_at.join(statistics, on=keys, how="left", nulls_equal=True)
    sampled = pl.when(pl.col("method") != METHODS[2]).then("weight")
    filled = joined.with_columns(
        pl.col("sample_count", "weight").fill_null(0), pl.col("quantile_error_ratio").fill_null(0.0)
    )
    return RESULT.frame(
        filled.with_columns(sampled_ns=sampled, sampled_ratio=ratio(sampled, "window_ns"))
    ).sort(*_METRIC, *_SPANS, pl.col("state").to_physical(), "method")


def _quantile(part: int, of: int) -> pl.Expr:
    """The least value at or below which the metric was for ``part / of`` of the time; rows ascend."""
    reached = pl.col("weight").cum_sum() * of >= pl.col("weight").sum() * part
    # within a bucket its mean stands for all, and is no further from any of them than the bucket is wide
    return (
        (pl.when("is_bucket").then(pl.col("integral") / pl.col("weight")).otherwise("value"))
        .filter(reached)
        .first()
    )


ANALYSIS = Analysis(
    name="counters",
    question="What did the devices' counters read, and what while communication was exposed?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
