"""How fast matrix products run, and how fast they could: operations, traffic, and the device's two limits.

One row stands for products: operators whose recorded shapes tell what they compute. A product's time is that
of all kernels it launched, split-K reductions and the like included; it is named after the longest of them.
GEMM kernels of no such operator (shapes not recorded, CUDA graphs, libraries that call cuBLAS themselves) are
counted as unknown, and every rate is of the known alone.

The limits of a product are the peak for its precision and its least traffic over the memory bandwidth; the
roof is the larger of the two times. A rate may exceed the roof of single kernels where caches keep operands.
FP32 has no peak here, since the record does not tell FP32 from TF32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import hardware
from traceview.analyzers._placed import launched, window_of
from traceview.analyzers._products import OPERATORS, SCHEMA, products
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.enclosure import enclosing
from traceview.schema import HOST_OPS, OPS, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.trace import Trace

_N, _F = pl.Int64(), pl.Float64()
_GEMMS = ("gemm", "grouped_gemm")
_SPANS, _ALL = ("rank", "device", "step"), "all"
LABELS = ("category", "name", "operator", "shape", "precision", "layer", "phase", "module")
GRAINS = {"rank": ("rank", "device"), "step": ("step",)} | {label: (label,) for label in LABELS}

RESULT = Table(
    "roofline",
    "Matrix products by label: operations, least traffic, rates, and what the device could do.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        "category": Column(OPS.columns["category"].dtype, "of the product's longest kernel", nullable=True),
        "name": Column(OPS.columns["name"].dtype, "its longest kernel", nullable=True),
        "operator": Column(SCHEMA["operator"], "host operator; null: unknown", nullable=True),
        "shape": Column(
            SCHEMA["shape"], "m×n×k; batch·m×n×k; of grouped ones groups:m×n×k, all groups", nullable=True
        ),
        "precision": Column(SCHEMA["precision"], "type of the operands; null: not told", nullable=True),
        **{
            name: Column(OPS.columns[name].dtype, OPS.columns[name].doc, nullable=True)
            for name in ("layer", "phase", "module")
        },
        "product_count": Column(_N, "products whose shapes are known"),
        "time_ns": Column(_N, "summed durations of their kernels", "ns"),
        "unknown_count": Column(_N, "GEMM kernels of unknown shape"),
        "unknown_ns": Column(_N, "their summed durations", "ns"),
        "flops": Column(_F, "operations of the known products; null without any", nullable=True),
        "bytes": Column(_N, "their least traffic; null if a type is unknown", "bytes", nullable=True),
        "intensity": Column(_F, "operations per byte of least traffic; null if unknown", nullable=True),
        "tflops": Column(_F, "10^12 operations per second, achieved; null without time", nullable=True),
        "gb_per_s": Column(_F, "least traffic over time, decimal GB/s; null if unknown", nullable=True),
        "rows_per_group": Column(
            _F, "mean rows (tokens) per group of grouped products; null for others", nullable=True
        ),
        "peak_tflops": Column(
            _F, "the device's peak; null if unknown, or if devices or precisions differ", nullable=True
        ),
        "memory_gb_per_s": Column(
            _F, "its memory bandwidth; null if unknown, or if devices differ", nullable=True
        ),
        "ridge": Column(_F, "intensity above which the peak is the limit; null if unknown", nullable=True),
        "ceiling_tflops": Column(
            _F, "rate at the roof, of products whose roof is known; null if none", nullable=True
        ),
        "peak_ratio": Column(_F, "time at peak / time, where a peak is known; null if none", nullable=True),
        "achievable_ratio": Column(
            _F, "time at the best published rate / time, may exceed 1; null if none is known", nullable=True
        ),
        "roof_ratio": Column(_F, "time at the roof / time, where it is known; null if none", nullable=True),
        "window_count": Column(_N, "windows (rank × device × step) looked at"),
    },
)

_COUNTS = (
    "product_count",
    "time_ns",
    "unknown_count",
    "unknown_ns",
    "untyped_count",
    "group_count",
    "row_count",
)
_LIMITS = ("peak", "achievable", "roof")
_TIMES = tuple(f"{limit}_{part}" for limit in _LIMITS for part in ("ns", "of_ns"))
_SUM = "sum over the products; see the result"
_SUMS = (*_COUNTS, "flops", "bytes", *_TIMES, "roof_flops")
_RANGED = ("peak_tflops", "memory_gb_per_s")

PARTIAL = Table(
    "roofline",
    "Sums per device, step if asked for, and label; and, with `window_count`, what was looked at.",
    {name: RESULT.columns[name] for name in (*_SPANS, *LABELS)}
    | {name: Column(_N, _SUM, "ns" if name.endswith("_ns") else None) for name in _COUNTS}
    | {name: Column(_F, _SUM, "ns") for name in _TIMES}
    | {"bytes": Column(_N, _SUM, "bytes"), "flops": Column(_F, _SUM), "roof_flops": Column(_F, _SUM)}
    | {f"{end}_{name}": RESULT.columns[name] for name in _RANGED for end in ("low", "high")}
    | {"window_count": Column(_N, "windows; null in a row of products", nullable=True)},
)


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    asked = {"rank", "device", *options.columns(GRAINS)}
    spans = [name for name in _SPANS if name in asked]
    labels = [name for name in LABELS if name in asked]
    frames = windows(trace, options)
    rows = _with_limits(_products(trace, frames), trace)
    sums = rows.group_by(*spans, *labels).agg(
        pl.col(_SUMS).sum(),
        *(pl.col(name).min().alias(f"low_{name}") for name in _RANGED),
        *(pl.col(name).max().alias(f"high_{name}") for name in _RANGED),
    )
    looked_at = frames.group_by(spans).agg(window_count=pl.len())
    whole = pl.concat([looked_at, sums], how="diagonal_relaxed")
    return PARTIAL.frame(whole.with_columns(pl.col(_SUMS).fill_null(0)))


def _products(trace: Trace, frames: pl.DataFrame) -> pl.DataFrame:
    """One row per product and per GEMM kernel of unknown shape, labelled and placed in its window."""
    ops = trace.table("ops")
    operators = trace.tables.get("host_ops", HOST_OPS.empty())
    operators = operators.filter(pl.col("name").cast(pl.String).is_in(list(OPERATORS)))
    told = products(operators)
    caller = enclosing(operators, launched(trace), on=("pid", "tid"))
    known = told["flops"].gather(caller).is_not_null()
    window = window_of(ops, frames)
    kernels = ops.select(
        "rank", "device", "kind", "class", "dur_ns", "category", "name", "layer", "phase", "module"
    )
    kernels = kernels.with_columns(caller=caller, is_known=known, window=pl.Series(window))
    computing = (pl.col("kind") == "kernel") & (pl.col("class") == "compute") & (pl.col("window") >= 0)
    counted = kernels.filter(computing & (pl.col("is_known") | pl.col("category").is_in(_GEMMS)))
    placed = counted.with_columns(frames["step"].gather(counted["window"]))
    one_each = (
        placed.filter("is_known")
        .sort("dur_ns", descending=True, maintain_order=True)
        .group_by("caller", maintain_order=True)
        .agg(pl.all().exclude("caller", "dur_ns").first(), time_ns=pl.col("dur_ns").sum())
    )
    described = one_each.hstack(told[one_each["caller"]]).with_columns(
        product_count=1, untyped_count=pl.col("bytes").is_null().cast(pl.Int64)
    )
    unknown = placed.filter(~pl.col("is_known")).with_columns(unknown_count=1, unknown_ns="dur_ns")
    return pl.concat([described, unknown], how="diagonal_relaxed")


def _with_limits(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """``rows`` plus the device's limits, the times at them, and the time of what they are known for."""
    joined = rows.join(_limits(trace, rows), on=["device", "precision"], how="left", maintain_order="left")
    time, flops = pl.col("time_ns"), pl.col("flops")
    at = {
        "peak": flops / (pl.col("peak_tflops") * 1e3),
        "achievable": flops / (pl.col("achievable_tflops") * 1e3),
    }
    moving = pl.col("bytes") / pl.col("memory_gb_per_s")
    both = at["peak"].is_not_null() & moving.is_not_null()
    at["roof"] = pl.when(both).then(pl.max_horizontal(at["peak"], moving))
    timed = joined.with_columns(ns.alias(f"{limit}_ns") for limit, ns in at.items())
    return timed.with_columns(
        *(
            pl.when(pl.col(f"{limit}_ns").is_not_null()).then(time).cast(_F).alias(f"{limit}_of_ns")
            for limit in _LIMITS
        ),
        roof_flops=pl.when(pl.col("roof_ns").is_not_null()).then(flops),
    )


def _limits(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """What each device of the rank can do in each precision; nothing for a device nobody listed."""
    named = (
        dict(trace.tables["devices"].select("device", "name").iter_rows())
        if "devices" in trace.tables
        else {}
    )
    found = []
    for device in rows["device"].unique():
        gpu = hardware.of(named.get(device) or trace.facts.device_name)
        found += [(device, *rates) for rates in _rates(gpu)] if gpu else []
    columns = {"device": pl.Int32(), "precision": SCHEMA["precision"]}
    columns |= dict.fromkeys(("peak_tflops", "achievable_tflops", "memory_gb_per_s"), _F)
    return pl.DataFrame(found, schema=columns, orient="row")


def _rates(gpu: hardware.Device) -> Iterator[tuple[str, float | None, float | None, float | None]]:
    """Per precision: peak and best published TFLOP/s, and the memory's GB/s."""
    memory = gpu.memory.gb_per_s if gpu.memory else None
    for precision in hardware.PRECISIONS:
        peak, best = gpu.peak(precision), gpu.achievable(precision)
        yield precision, peak.tflops if peak else None, best.tflops if best else None, memory


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by`` that has a GEMM; the longest come first."""
    keys = [name for name in (*_SPANS, *LABELS) if name in options.columns(GRAINS)]
    spans = [name for name in keys if name in _SPANS]
    rows = partials.with_columns(pl.lit(0).alias(_ALL))  # a group for "by nothing"
    is_window = pl.col("window_count").is_not_null()
    whole = rows.filter(is_window).group_by(_ALL, *spans).agg(pl.col("window_count").sum())
    sums = (
        rows.filter(~is_window)
        .group_by(_ALL, *keys)
        .agg(
            pl.col(_SUMS).sum(),
            *(pl.col(f"low_{name}").min() for name in _RANGED),
            *(pl.col(f"high_{name}").max() for name in _RANGED),
        )
        .join(whole, on=[_ALL, *spans], how="left", nulls_equal=True)
    )
    figures = RESULT.frame(_with_rates(sums))
    texts = [pl.col(name).cast(pl.String) for name in LABELS]
    return figures.sort("rank", "device", "step", -(pl.col("time_ns") + pl.col("unknown_ns")), *texts)


def _with_rates(sums: pl.DataFrame) -> pl.DataFrame:
    is_known = pl.col("product_count") > 0
    told = sums.with_columns(
        flops=pl.when(is_known).then("flops"),
        bytes=pl.when(is_known & (pl.col("untyped_count") == 0)).then("bytes"),
        **{name: _common(name, limit) for name, limit in zip(_RANGED, ("peak", "roof"), strict=True)},
    )
    return told.with_columns(
        intensity=ratio("flops", "bytes"),
        tflops=ratio("flops", "time_ns") / 1e3,
        gb_per_s=ratio("bytes", "time_ns"),
        rows_per_group=ratio("row_count", "group_count"),
        ridge=1e3 * pl.col("peak_tflops") / pl.col("memory_gb_per_s"),
        ceiling_tflops=ratio("roof_flops", "roof_ns") / 1e3,
        **{f"{limit}_ratio": ratio(f"{limit}_ns", f"{limit}_of_ns") for limit in _LIMITS},
    )


def _common(name: str, limit: str) -> pl.Expr:
    """The device's ``name`` if all products of the row have one, and the same."""
    is_one = (pl.col(f"low_{name}") == pl.col(f"high_{name}")) & (
        pl.col(f"{limit}_of_ns") == pl.col("time_ns")
    )
    return pl.when(is_one).then(f"low_{name}")


ANALYSIS = Analysis(
    name="roofline",
    question="How fast are matrix products, and how fast could they be?",
    needs=("ops", "launches", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
