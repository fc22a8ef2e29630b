"""Matrix products under the device's two limits: operations per second over operations per byte."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import polars as pl

from traceview.reports.figures import _theme

POINTS = 400
"""Products drawn, those that take most time."""

ROOFS = 8
"""Limits drawn; devices of one job have one for each precision."""

KEYS = ("operator", "precision", "shape")
COLOURS = dict(zip(("bf16", "fp16", "fp8", "fp4", "fp32"), _theme.OKABE_ITO, strict=False))
NEGLIGIBLE = 0.001
"""Products that take less of the time drawn do not stretch the axis."""

SMALLEST, LARGEST = 6.0, 22.0
"""Diameter of a product that takes next to no time, and of the one that takes most."""


def points(roofline: pl.DataFrame) -> pl.DataFrame:
    """What is drawn of a `roofline` by `KEYS`: intensity, rate, limits, time; the longest products first."""
    known = roofline.filter((pl.col("intensity") > 0) & (pl.col("tflops") > 0))
    return (
        known.sort(-pl.col("time_ns"), *KEYS)
        .head(POINTS)
        .select(
            *KEYS,
            pl.col("intensity").alias("FLOP/byte"),
            pl.col("tflops").alias("TFLOP/s"),
            (pl.col("time_ns") / pl.col("window_count") / 1e6).alias("ms"),
            (100 * pl.col("roof_ratio")).alias("% of roof"),
            pl.col("peak_tflops").alias("peak TFLOP/s"),
            pl.col("memory_gb_per_s").alias("memory GB/s"),
        )
    )


def legend(roofline: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Types of the operands and their colours."""
    found = points(roofline)["precision"].unique().sort(nulls_last=True).to_list()
    return tuple((name or "type not told", _colour(name)) for name in found)


def by_product(roofline: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Rate over intensity of a `roofline` by `KEYS`, log-log, under the limits of each precision."""
    table = points(roofline)
    reach = table["FLOP/byte"].to_numpy()
    rates = table["TFLOP/s"].to_numpy()
    span = (reach.min(initial=10) / 2, reach.max(initial=1_000) * 2)
    roofs = [_roof(row, span) for row in _limits(table).iter_rows(named=True)]
    peaks = table["peak TFLOP/s"].drop_nulls().to_numpy()
    top = max(rates.max(initial=1), peaks.max(initial=1)) * 1.6
    return _theme.styled(
        hv.Overlay([*roofs, *_scatters(table)]),
        xlabel="FLOP per byte of least traffic",
        ylabel="TFLOP/s",
        xlim=span,
        ylim=(_lowest(table) / 2, top),
        logx=True,
        logy=True,
    )


def _lowest(table: pl.DataFrame) -> float:
    """The slowest rate of products that take some time: there the axis begins."""
    told = table.filter(pl.col("ms") >= NEGLIGIBLE * pl.col("ms").sum())
    return float(told["TFLOP/s"].to_numpy().min(initial=1e3))


def _limits(table: pl.DataFrame) -> pl.DataFrame:
    """Peak and memory bandwidth of each precision whose limits are known."""
    limits = ["precision", "peak TFLOP/s", "memory GB/s"]
    return table.select(limits).drop_nulls(limits[1:]).unique().sort(limits).head(ROOFS)


def _roof(row: dict[str, Any], span: tuple[float, float]) -> Any:  # noqa: ANN401 - an hv.Curve
    """Memory's limit up to the ridge, the peak beyond it."""
    peak, memory = row["peak TFLOP/s"], row["memory GB/s"]
    ridge = 1e3 * peak / memory
    low, high = min(span[0], ridge), max(span[1], ridge)
    reach = np.array([low, ridge, high], np.float32)
    rate = np.array([low * memory / 1e3, peak, peak], np.float32)
    line = hv.Curve({"FLOP/byte": reach, "TFLOP/s": rate}, kdims=["FLOP/byte"], vdims=["TFLOP/s"])
    return line.opts(color=_colour(row["precision"]), line_dash="dashed", line_width=1.5)


def _scatters(table: pl.DataFrame) -> list[Any]:
    most = table["ms"].max() or 1.0
    scaled = table.with_columns(size=SMALLEST + (LARGEST - SMALLEST) * (pl.col("ms") / most).sqrt())
    return [
        hv.Scatter(
            _theme.arrays(part.drop("precision", "peak TFLOP/s", "memory GB/s")),
            kdims=["FLOP/byte"],
            vdims=["TFLOP/s", "operator", "shape", "ms", "% of roof", "size"],
        ).opts(
            color=_colour(precision),
            size="size",
            alpha=0.7,
            line_width=0,
            tools=["hover"],
            hover_tooltips=[
                ("product", "@operator @shape"),
                ("type", precision or "not told"),
                ("rate", "@{TFLOP/s}{0.0} TFLOP/s"),
                ("intensity", "@{FLOP/byte}{0.0} FLOP/byte"),
                ("of roof", "@{% of roof}{0.0} %"),
                ("time", "@ms{0.000} ms per rank and step"),
            ],
        )
        for (precision,), part in scaled.group_by("precision", maintain_order=True)
    ]


def _colour(precision: object) -> str:
    return COLOURS.get(str(precision), _theme.TEXT)


FIGURES = {KEYS: by_product}
