"""What annotations cost on the device: the work launched inside them, by name.

A range holds the device work whose launch lies in it, on its own thread; work that autograd launches from
another thread is not its work. Of that work three measures are told:

- ``device_ns``: the union of all work held by ranges of the label, at any depth below them;
- ``own_ns``: the same of the work for which the range is the innermost one, so that names do not share any;
- ``projected_ns``: per range from the first start to the last end of its work, gaps included, and summed:
  what Nsight Systems' ``nvtx_gpu_proj_sum`` shows.

Statistics are per range. A range counts in the step in whose host range it starts. Operators of PyTorch are
no annotations here, even where a profiler records them as ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers import _distribution
from traceview.analyzers._placed import launched
from traceview.analyzers._windows import chosen_steps
from traceview.contracts import Analysis, Options
from traceview.enclosure import Enclosed, enclosed, enclosing
from traceview.intervals import Ints, Spans, innermost, total, union
from traceview.schema import RANGES, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.trace import Trace

PAIRS_AT_ONCE = 1 << 22
"""Pairs of range and work looked at together: what bounds the memory of deep nesting."""

_N = pl.Int64()
LABELS = ("domain", "name", "kind", "layer", "phase")
GRAINS = {
    "rank": ("rank",),
    "step": ("step",),
    "domain": ("domain",),
    "name": ("domain", "name"),
    "kind": ("kind",),
    "layer": ("layer",),
    "phase": ("phase",),
}
_SPANS, _ALL = ("rank", "step"), "all"
MEASURES = ("host_ns", "projected_ns", "device_ns")

RESULT = Table(
    "ranges",
    "Annotations by label: how often, how long on the host, and the device work launched inside.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null when steps are summed or unknown", nullable=True),
        **{
            name: Column(RANGES.columns[name].dtype, RANGES.columns[name].doc, nullable=True)
            for name in LABELS
        },
        "range_count": Column(_N, "ranges"),
        "launching_count": Column(_N, "ranges that hold device work"),
        "op_count": Column(_N, "device ops held, each once"),
        "own_op_count": Column(_N, "of them, those no other range lies closer around"),
        "host_ns": Column(_N, "summed durations on the host, nested ranges included", "ns"),
        "projected_ns": Column(_N, "first start to last end of each range's work, summed", "ns"),
        "device_ns": Column(_N, "time in which work held by the label runs (union)", "ns"),
        "own_ns": Column(_N, "the same of the work that no other range lies closer around", "ns"),
        "max_host_ns": Column(_N, "longest on the host", "ns", nullable=True),
        "max_projected_ns": Column(
            _N, "longest from first start to last end; null without work", "ns", nullable=True
        ),
        "max_device_ns": Column(
            _N, "longest union of one range's work; null without work", "ns", nullable=True
        ),
        **_distribution.result_columns(*MEASURES, what="per range; without work there is none"),
        "rank_count": Column(_N, "ranks with such a range"),
    },
)
_SUMS = (
    "range_count",
    "launching_count",
    "op_count",
    "own_op_count",
    "host_ns",
    "projected_ns",
    "device_ns",
    "own_ns",
)
_MAXIMA = tuple(f"max_{measure}" for measure in MEASURES)
PARTIAL = Table(
    "ranges",
    "Sums and distributions per rank, step if asked for, and label.",
    {name: RESULT.columns[name] for name in (*_SPANS, *LABELS, *_SUMS, *_MAXIMA)}
    | _distribution.partial_columns(*MEASURES),
)


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    asked = {"rank", *options.columns(GRAINS)}
    keys = [name for name in (*_SPANS, *LABELS) if name in asked]
    work, launches = trace.table("ops"), launched(trace)
    everything = trace.table("ranges").with_row_index("range")
    ranges = _in_steps(everything, trace, options)
    held = enclosed(ranges, launches, on=("pid", "tid"))
    labels = ranges.select(keys).unique(maintain_order=True).with_row_index("label")
    label = ranges.select(keys).join(labels, on=keys, how="left", nulls_equal=True, maintain_order="left")[
        "label"
    ]
    code = label.cast(pl.Int64).to_numpy()
    inner = enclosing(everything, launches, on=("pid", "tid"))
    own = pl.DataFrame({"range": inner.cast(pl.UInt32)}).with_row_index("op_row").drop_nulls()
    own = own.join(ranges.select("range", label=label), on="range", how="inner")
    merged = union(
        Spans(code, held.first, held.stop)
    )  # in places of the launch order: each op once per label
    op, stretch = held.rows(merged.start, merged.end)
    each = _of_ranges(ranges, held, work)
    rows = (
        each.with_columns(ranges.select(keys))
        .group_by(keys)
        .agg(
            range_count=pl.len(),
            launching_count=pl.col("device_ns").count(),
            host_ns=pl.col("host_ns").sum(),
            projected_ns=pl.col("projected_ns").sum(),
            **{f"max_{measure}": pl.col(measure).max() for measure in MEASURES},
        )
    )
    counts = np.bincount(merged.key[stretch], minlength=len(labels))
    measured = labels.with_columns(
        pl.Series("op_count", counts),
        pl.Series("own_op_count", np.bincount(own["label"].to_numpy(), minlength=len(labels))),
        pl.Series("device_ns", _busy(work, op, merged.key[stretch], len(labels))),
        pl.Series(
            "own_ns",
            _busy(work, own["op_row"].to_numpy(), own["label"].cast(pl.Int64).to_numpy(), len(labels)),
        ),
    )
    spread = _distribution.distributions(
        each.with_columns(ranges.select(keys)), keys, **{measure: measure for measure in MEASURES}
    )
    for other in (measured, spread):
        rows = rows.join(other, on=keys, how="left", nulls_equal=True)
    return PARTIAL.frame(rows)


def _in_steps(ranges: pl.DataFrame, trace: Trace, options: Options) -> pl.DataFrame:
    """The ranges that start in the host range of a chosen step, with its ``step``; all if none is known."""
    steps = chosen_steps(trace, options).drop_nulls(["host_ts_ns", "host_dur_ns"])
    bare = ranges.drop("step")
    if not len(steps):
        return bare.with_columns(step=pl.lit(None, _N))
    start = steps["host_ts_ns"].to_numpy()
    step = innermost(
        Spans.of(start, start + steps["host_dur_ns"].to_numpy()),
        np.zeros(len(ranges), np.int64),
        ranges["ts_ns"].to_numpy(),
    )
    inside = np.flatnonzero(step >= 0)
    return bare[inside].with_columns(steps["step"].gather(step[inside]))


def _of_ranges(ranges: pl.DataFrame, held: Enclosed, work: pl.DataFrame) -> pl.DataFrame:
    """`MEASURES` of each range; those of the device are null where it holds no work."""
    device = np.zeros(len(ranges), np.int64)
    projected = np.zeros(len(ranges), np.int64)
    start = work["ts_ns"].to_numpy()
    end = start + work["dur_ns"].to_numpy()
    for chunk in _chunks(held):
        op, place = held.rows(held.first[chunk], held.stop[chunk])
        device[chunk] = _busy(work, op, place, len(chunk))
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        projected[chunk] = np.maximum.reduceat(end[op], begins) - np.minimum.reduceat(start[op], begins)
    holds = pl.Series(held.stop > held.first)
    return pl.DataFrame({"host_ns": ranges["dur_ns"]}).with_columns(
        pl.when(holds).then(pl.Series(values)).alias(name)
        for name, values in (("projected_ns", projected), ("device_ns", device))
    )


def _chunks(held: Enclosed) -> Iterator[Ints]:
    """Rows of the ranges that hold work, in portions of about `PAIRS_AT_ONCE` pairs."""
    rows = np.flatnonzero(held.stop > held.first)
    portion = np.cumsum((held.stop - held.first)[rows]) // PAIRS_AT_ONCE
    yield from (part for part in np.split(rows, np.flatnonzero(np.diff(portion)) + 1) if len(part))


def _busy(work: pl.DataFrame, op: Ints, label: Ints, labels: int) -> Ints:
    """Time in which the ops of each label run: unions per device, summed over devices."""
    device = work["device"].to_numpy().astype(np.int64)[op]
    known, code = np.unique(device, return_inverse=True)
    start = work["ts_ns"].to_numpy()[op]
    spans = Spans(label * len(known) + code, start, start + work["dur_ns"].to_numpy()[op])
    summed: Ints = total(union(spans), labels * len(known)).reshape(labels, len(known)).sum(axis=1)
    return summed


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that has a range; most device time first."""
    asked = options.columns(GRAINS)
    keys = [_ALL, *(name for name in (*_SPANS, *LABELS) if name in asked)]
    rows = partials.with_columns(pl.lit(0).alias(_ALL))  # a group for "by nothing"
    sums = rows.group_by(keys).agg(
        pl.col(_SUMS).sum(), pl.col(_MAXIMA).max(), rank_count=pl.col("rank").n_unique()
    )
    spread = _distribution.quantiles(rows, keys, *MEASURES)
    joined = RESULT.frame(sums.join(spread, on=keys, how="left", nulls_equal=True))
    texts = [pl.col(name).cast(pl.String) for name in LABELS]
    return joined.sort("rank", "step", -pl.col("device_ns"), -pl.col("host_ns"), *texts)


ANALYSIS = Analysis(
    name="ranges",
    question="What device work do annotations stand for?",
    needs=("ops", "launches", "ranges", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
