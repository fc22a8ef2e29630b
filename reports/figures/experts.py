"""How unevenly the ranks are loaded with tokens, layer by layer."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import polars as pl

from traceview.reports.figures import _theme


def loads(rows: pl.DataFrame) -> pl.DataFrame:
    """``layer, rank, load / mean`` of an `experts` by layer and rank."""
    known = rows.drop_nulls(("layer", "rank", "load_over_mean"))
    return known.select("layer", "rank", pl.col("load_over_mean").alias("load / mean"))


def by_place(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Image
    """Layer by rank of an `experts`, coloured by the load over the mean load; white is balanced."""
    laid = _theme.grid(loads(rows), "rank", "layer", "load / mean")
    off = float(np.nanmax(np.abs(laid.values - 1), initial=0.05))
    names = ("rank", "layer", "load / mean")
    return _theme.image(laid, names, cmap=_theme.DIVERGING, clim=(1 - off, 1 + off))


def balance(rows: pl.DataFrame) -> pl.DataFrame:
    """``layer`` and max/mean: the median over its exchanges, and of its summed loads."""
    known = rows.drop_nulls(("layer", "exchange_max_over_mean"))
    return known.select(
        "layer",
        pl.col("exchange_max_over_mean").alias("max/mean per exchange"),
        pl.col("max_over_mean").alias("max/mean over all"),
    )


def by_layer(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Max/mean per layer of an `experts`: 1 is balanced, and waiting multiplies by it."""
    table = balance(rows).sort("layer")
    data = _theme.arrays(table)
    curves = [
        element.opts(color=colour)
        for name, colour in BALANCE
        for element in (
            hv.Curve(data, kdims=["layer"], vdims=[name]),
            hv.Scatter(data, kdims=["layer"], vdims=[name]).opts(size=6, tools=["hover"]),
        )
    ]
    highest = max([1.0, *table["max/mean per exchange"], *table["max/mean over all"].drop_nulls()])
    layers = table["layer"].to_list()
    every = -(-len(layers) // 24) or 1
    spread = highest - 1 or 1.0
    return _theme.styled(
        hv.Overlay(curves),
        xlabel="layer",
        ylabel="max/mean",
        ylim=(1 - 0.1 * spread, 1 + 1.15 * spread),
        xticks=[(layer, str(layer)) for layer in layers[::every]],
        padding=0.05,
    )


BALANCE = (("max/mean per exchange", _theme.OKABE_ITO[2]), ("max/mean over all", _theme.OKABE_ITO[0]))
FIGURES = {("layer",): by_layer, ("layer", "rank"): by_place}
