"""How every figure looks, and how small frames reach HoloViews.

Figures are transparent with mid-grey text, so one drawing serves a light page, a dark one and paper. Colours
are those of Okabe and Ito (2008), told apart by colour-blind readers too, and viridis for magnitudes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holoviews as hv
import holoviews.plotting.bokeh
import numpy as np

from traceview.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    from numpy.typing import NDArray

hv.Store.set_current_backend("bokeh")
hv.renderer("bokeh").webgl = False  # remote desktops have no GPU, and warn

TEXT, GRID, EMPTY = "#7a7f87", "#7a7f8740", "#7a7f8722"
OKABE_ITO = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#999999")
HEAT = "viridis"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
HEIGHT, GLYPHS, CELLS = 320, 20_000, 20_000
LETTERS = 40
"""Letters of a name in a figure; the table beside it has more."""

_TEXT_STARTS = ("$$", "\\[", "\\(")  # Bokeh would take what follows for TeX, and ask a server to set it


def arrays(frame: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """``frame`` as float32 and text arrays, null as NaN; the only way data reach HoloViews."""
    return {
        name: np.array([label(str(value)) for value in column], dtype=object)
        if (column := frame[name]).dtype.is_nested() or not column.dtype.is_numeric()
        else column.cast(float).to_numpy().astype(np.float32)
        for name in frame.columns
    }


def label(text: str) -> str:
    """``text`` fit for a canvas: printable, short, and never TeX."""
    safe = printable(text)
    for start in _TEXT_STARTS:
        safe = safe.replace(start, " ".join(start))
    return safe if len(safe) <= LETTERS else f"{safe[: LETTERS - 1]}…"


def ticks(labels: Sequence[object], *, most: int = 64) -> Any:  # noqa: ANN401 - what HoloViews takes
    """Places 0, 1, 2 ... named ``labels``, each n-th only where there are more than ``most``."""
    every = -(-len(labels) // most) if labels else 1
    return [(place, label(str(labels[place]))) for place in range(0, len(labels), every)]


def styled(element: Any, *, height: int = HEIGHT, **options: Any) -> Any:  # noqa: ANN401 - an element of any kind
    """``element`` as wide as the page, in the house style."""
    shared: dict[str, Any] = {
        "responsive": True,
        "height": height,
        "hooks": [_paint],
        "default_tools": ["box_zoom", "pan", "wheel_zoom", "reset"],
        "active_tools": ["box_zoom"],
        "show_legend": False,
        "title": "",
    }
    return element.opts(**(shared | options))


def _paint(plot: Any, _element: Any) -> None:  # noqa: ANN401 - HoloViews' hook
    figure = plot.state
    figure.background_fill_alpha = figure.border_fill_alpha = 0
    figure.outline_line_color = None
    figure.lod_threshold = None  # else Bokeh draws every tenth glyph while the user pans
    figure.toolbar.logo, figure.toolbar.autohide = None, True
    figure.min_border_right = 16
    for axis in figure.axis:
        axis.axis_label_text_color = axis.major_label_text_color = TEXT
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = GRID
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
    for grid in figure.grid:
        grid.grid_line_color = GRID
    for bar in figure.right:
        if hasattr(bar, "color_mapper"):
            bar.background_fill_alpha = 0
            bar.major_label_text_color = bar.title_text_color = TEXT
            bar.major_label_text_font = bar.title_text_font = FONT
            bar.bar_line_color = None


def stacked(columns: Sequence[Mapping[str, Any]], **options: Any) -> Any:  # noqa: ANN401 - an overlay
    """Rectangles side by side and on top of each other: an overlay with one element per mapping.

    Args:
        columns: For each part its ``data`` (``x0, y0, x1, y1`` and more for the hover), ``color``, ``name``.
        options: Of the overlay.
    """
    parts = [
        hv.Rectangles(part["data"], kdims=["x0", "y0", "x1", "y1"], vdims=part["vdims"]).opts(
            color=part["color"], line_width=0, tools=["hover"], hover_tooltips=part["tooltips"]
        )
        for part in columns
    ]
    return styled(hv.Overlay(parts), **options)


def image(
    values: NDArray[np.float32],
    *,
    bounds: tuple[float, float, float, float],
    names: tuple[str, str, str],
    **options: Any,  # noqa: ANN401 - of HoloViews
) -> Any:  # noqa: ANN401 - an image
    """``values`` (rows from the top) as a heat map; NaN is left blank.

    Args:
        values: What to show.
        bounds: Left, bottom, right, top.
        names: Of the horizontal axis, the vertical axis, and the value with its unit.
        options: Of the image.
    """
    across, down, value = names
    element = hv.Image(values, bounds=bounds, kdims=[across, down], vdims=[value])
    shared: dict[str, Any] = {
        "cmap": HEAT,
        "colorbar": True,
        "colorbar_opts": {"title": value, "width": 10, "padding": 2},
        "clipping_colors": {"NaN": EMPTY},
        "tools": ["hover"],
    }
    return styled(element, **(shared | options))
