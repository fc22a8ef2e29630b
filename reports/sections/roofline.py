"""How near to the device's limits matrix products run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview import units
from traceview.reports.figures import roofline as figures
from traceview.reports.kernels import RECORD_SHAPES
from traceview.reports.section import Answers, Figure, Section, SectionData, View

if TYPE_CHECKING:
    import polars as pl

BY_SHAPE = ("roofline", figures.KEYS)
NONE = f"no matrix product was recorded whose shape is known: {RECORD_SHAPES}."


def build(answers: Answers) -> SectionData:
    """Products of known shape, under the roof."""
    rows = answers.frames[BY_SHAPE]
    table = figures.points(rows)
    if table.is_empty():
        return SectionData(reason=NONE)
    figure = Figure(
        "roofline-products",
        "matrix products: TFLOP/s over FLOP per byte of least traffic",
        _caption(table, answers.window),
        table,
        (View("", lambda: figures.by_product(rows)),),
        figures.legend(rows),
        _method(rows, len(table)),
    )
    return SectionData(figures=(figure,))


def _caption(table: pl.DataFrame, window: str) -> str:
    longest = table.row(0, named=True)
    rate = f"{units.significant(longest['TFLOP/s'])} TFLOP/s"
    text = (
        f"Longest runs {longest['operator']} {longest['shape']}: {units.significant(longest['ms'])} ms per "
        f"rank and {window} at {rate}"
    )
    if longest["% of roof"] is None:
        return f"{text}; what this device could reach is not known."
    return f"{text}, {units.percent(longest['% of roof'] / 100)} of the roof."


def _method(rows: pl.DataFrame, drawn: int) -> str:
    known, unknown = int(rows["time_ns"].sum()), int(rows["unknown_ns"].sum())
    shapes = int((rows["product_count"] > 0).sum())
    first = f" The {drawn} of {shapes:,} shapes that take most time are drawn." if drawn < shapes else ""
    left = (
        f" {units.percent(unknown / (known + unknown))} of GEMM time is of unknown shape." if unknown else ""
    )
    return (
        "Dashed: memory bandwidth up to the ridge, the peak beyond it, as published. Caches may lift a "
        f"product above it. Area grows with time.{first}{left}"
    )


SECTION = Section("roofline", "Roofline", 108, (BY_SHAPE,), build, command="kernels")
