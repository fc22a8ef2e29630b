"""Stacked bars: one per rank, upright; or one per kind, lying, so that names can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holoviews as hv
import numpy as np
import polars as pl

from traceview.reports.figures import _theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Span = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

Colours = tuple[tuple[str, str], ...]
"""Parts of a bar and their colours, from its foot."""

HOVERED = 256
"""With more bars than this the pointer tells nothing: it would cost more than the bars themselves."""

_SIDES = ["x0", "y0", "x1", "y1"]


def used(table: pl.DataFrame, colours: Colours, *, unit: str = "ms") -> Colours:
    """Those of ``colours`` whose part occurs."""
    return tuple((name, colour) for name, colour in colours if table[f"{name} {unit}"].sum())


def longest_first(table: pl.DataFrame) -> pl.DataFrame:
    """Rows by the length of their bars."""
    whole = pl.sum_horizontal(pl.col("^.* ms$"))
    return table.sort(whole, descending=True, maintain_order=True)


def upright(table: pl.DataFrame, colours: Colours, *, key: str = "rank", unit: str = "ms") -> Any:  # noqa: ANN401 - an hv.Overlay
    """A bar per row of ``table``, of its columns ``<part> <unit>``; at most as many as a browser can draw."""
    shown = table.head(_theme.GLYPHS // max(len(colours), 1))
    names = shown[key].to_list()
    spans, top = _spans(shown, colours, unit, width=0.42 if len(shown) <= 128 else 0.5)
    parts = [_rectangles(span, names, part, flipped=False, key=key, unit=unit) for part, span in spans]
    return _theme.styled(
        hv.Overlay(parts),
        xticks=_theme.ticks(names),
        xlabel=key,
        ylabel=unit,
        xlim=(-0.6, max(len(shown) - 0.4, 0.6)),
        ylim=(0, 1.04 * top or 1.0),
        gridstyle={"grid_line_color": _theme.LINE, "xgrid_line_color": None},
    )


def lying(table: pl.DataFrame, colours: Colours, *, key: str, unit: str = "ms") -> Any:  # noqa: ANN401 - an hv.Overlay
    """The same with bars that lie, the first row on top."""
    shown = table.head(_theme.GLYPHS // max(len(colours), 1)).reverse()
    names = shown[key].to_list()
    spans, top = _spans(shown, colours, unit, width=0.36)
    parts = [_rectangles(span, names, part, flipped=True, key=key, unit=unit) for part, span in spans]
    return _theme.styled(
        hv.Overlay(parts),
        height=90 + 28 * len(shown),
        yticks=_theme.ticks(names, most=64),
        xlabel=unit,
        ylabel="",
        ylim=(-0.6, max(len(shown) - 0.4, 0.6)),
        xlim=(0, 1.04 * top or 1.0),
        gridstyle={"grid_line_color": _theme.LINE, "ygrid_line_color": None},
    )


def _spans(
    table: pl.DataFrame, colours: Colours, unit: str, *, width: float
) -> tuple[list[tuple[tuple[str, str], Span]], float]:
    """For each part where it begins and ends, and the edges of the bars; and the longest bar."""
    place = np.arange(len(table), dtype=np.float32)
    edges = np.stack([place - np.float32(width), place + np.float32(width)])
    base = np.zeros(len(table), np.float32)
    spans = []
    for part in colours:
        length = table[f"{part[0]} {unit}"].fill_null(0).to_numpy().astype(np.float32)
        spans.append((part, (base, base + length, edges)))
        base = base + length
    return spans, float(base.max(initial=0))


def _rectangles(  # noqa: PLR0913 - what a bar is drawn from
    span: Span, names: Sequence[object], part: tuple[str, str], *, flipped: bool, key: str, unit: str
) -> Any:  # noqa: ANN401 - hv.Rectangles
    name, colour = part
    low, high, edges = span
    sides = (low, edges[0], high, edges[1]) if flipped else (edges[0], low, edges[1], high)
    data = dict(zip(_SIDES, sides, strict=True))
    if len(names) > HOVERED:
        return hv.Rectangles(data, kdims=_SIDES).opts(color=colour, line_width=0)
    data["length"] = high - low
    numbers = all(isinstance(name, int) for name in names)
    data["of"] = _theme.arrays(pl.DataFrame({"of": names}))["of"]
    return hv.Rectangles(data, kdims=_SIDES, vdims=["length", "of"]).opts(
        color=colour,
        line_width=0,
        tools=["hover"],
        hover_tooltips=[(key, "@of{0}" if numbers else "@of"), (name, f"@length{{0.000}} {unit}")],
    )
