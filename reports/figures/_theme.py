"""How every figure looks, and how small frames reach HoloViews.

Figures are transparent with mid-grey text, so one drawing serves a light page, a dark one and paper. Colours
are those of Okabe and Ito (2008), told apart by colour-blind readers too, and viridis for magnitudes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import holoviews as hv
import holoviews.plotting.bokeh
import numpy as np
import polars as pl

from traceview.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

hv.Store.set_current_backend("bokeh")
hv.renderer("bokeh").webgl = False  # remote desktops have no GPU, and warn

TEXT, LINE, EMPTY = "#7a7f87", "#7a7f8740", "#7a7f8722"
OKABE_ITO = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#999999")
NOTHING = "#b9bec6"
"""Colour of idle time."""

HEAT, DIVERGING = "viridis", "RdBu_r"
ROLES = {"dispatch": OKABE_ITO[0], "combine": OKABE_ITO[2]}
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
HEIGHT, GLYPHS, CELLS = 320, 20_000, 16_000
LETTERS = 40
"""Letters of a name in a figure; the table beside it has more."""

_TEX = ("$$", "\\[", "\\(")
"""Bokeh would take what follows for TeX, and ask a server for the means to set it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Values by column and row.

    Attributes:
        columns: What the columns stand for, ascending.
        rows: What the rows stand for, ascending.
        values: One row of them for each of ``rows``.
        size: Neighbouring columns that share a value, the largest of theirs.
    """

    columns: list[Any]
    rows: list[Any]
    values: NDArray[np.float32]
    size: int = 1


def arrays(frame: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """``frame`` as float32 and text arrays, null as NaN; HoloViews takes these without pandas."""
    return {column.name: _array(column) for column in frame}


def _array(column: pl.Series) -> NDArray[Any]:
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).to_numpy().astype(np.float32)
    return np.array([label(str(value)) for value in column], dtype=object)


def label(text: str) -> str:
    """``text`` fit for a canvas: printable, short, and never TeX."""
    safe = printable(text)
    for start in _TEX:
        safe = safe.replace(start, " ".join(start))
    return safe if len(safe) <= LETTERS else f"{safe[: LETTERS - 1]}…"


def ticks(labels: Sequence[object], *, start: int = 0, most: int = 24) -> list[tuple[int, str]]:
    """Places from ``start`` on named ``labels``; each n-th only where there are more than ``most``."""
    every = -(-len(labels) // most) or 1
    return [(start + place, label(str(labels[place]))) for place in range(0, len(labels), every)]


def styled(element: Any, *, height: int = HEIGHT, **options: Any) -> Any:  # noqa: ANN401 - of any kind
    """``element`` as wide as the page, in the house style."""
    shared: dict[str, Any] = {
        "responsive": True,
        "height": height,
        "hooks": [_paint],
        "default_tools": ["box_zoom", "pan", "wheel_zoom", "reset"],
        "active_tools": ["box_zoom"],  # an active wheel would keep the page from scrolling
        "show_legend": False,
        "show_grid": True,
        "gridstyle": {"grid_line_color": LINE},
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
        axis.axis_line_color = axis.major_tick_line_color = LINE
        axis.minor_tick_line_color = None
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
    for bar in figure.right:
        if hasattr(bar, "color_mapper"):
            bar.background_fill_alpha = 0
            bar.major_label_text_color = bar.title_text_color = TEXT
            bar.major_label_text_font = bar.title_text_font = FONT
            bar.title_text_font_style = "normal"
            bar.bar_line_color = bar.major_tick_line_color = None


def grid(
    frame: pl.DataFrame, across: str, down: str, value: str, *, columns: Sequence[int] | None = None
) -> Grid:
    """``value`` of ``frame`` laid out by two of its columns; what has no row is NaN.

    Args:
        frame: At most one row per cell.
        across: Column of the horizontal axis.
        down: Column of the vertical axis.
        value: Column of the value.
        columns: Everything on the horizontal axis, ascending; else what occurs.
    """
    occurring = frame[across].unique().sort()
    places = occurring if columns is None else pl.Series(columns, dtype=occurring.dtype)
    rows = frame[down].unique().sort()
    values = np.full((len(rows), len(places)), np.nan, np.float32)
    cells = (rows.search_sorted(frame[down]).to_numpy(), places.search_sorted(frame[across]).to_numpy())
    values[cells] = frame[value].cast(pl.Float64).to_numpy()
    size = merged_columns(len(places), len(rows))
    if size > 1:
        values = np.fmax.reduceat(values, np.arange(0, len(places), size), axis=1)
    return Grid(places.to_list(), rows.to_list(), values, size)


def merged_columns(columns: int, rows: int) -> int:
    """Neighbouring columns that have to share a value, so that an image has no more than `CELLS`."""
    size = 1
    while -(-columns // size) * rows > CELLS:
        size *= 2
    return size


def merging(columns: int, rows: int) -> str:
    """What `merged_columns` does to ranks, as a sentence; nothing where it does nothing."""
    size = merged_columns(columns, rows)
    return f" Of {size} neighbouring ranks the largest value is drawn." if size > 1 else ""


def image(laid: Grid, names: tuple[str, str, str], **options: Any) -> Any:  # noqa: ANN401 - an hv.Image
    """``laid`` as a heat map, its first row at the bottom; what is NaN is left blank.

    Args:
        laid: What to show.
        names: Of the columns, the rows, and the value with its unit.
        options: Of the image.
    """
    left, bottom = _start(laid.columns), _start(laid.rows)
    right, top = left + laid.size * laid.values.shape[1], bottom + len(laid.rows)
    bounds = (left - 0.5, bottom - 0.5, right - 0.5, top - 0.5)
    across, down, value = names
    element = hv.Image(_coarse(laid.values[::-1]), bounds=bounds, kdims=["across", "down"], vdims=["value"])
    shared: dict[str, Any] = {
        "cmap": HEAT,
        "colorbar": True,
        "clabel": value,
        "colorbar_opts": {"width": 12, "padding": 4},
        "clipping_colors": {"NaN": EMPTY},
        "tools": ["hover"],
        "hover_tooltips": [
            (_axis_name(across, laid.columns), "$x{0}"),
            (_axis_name(down, laid.rows), "$y{0}"),
            (value, "@image{0.000}"),
        ],
        "xlabel": across,
        "ylabel": down,
        "xticks": ticks(laid.columns, start=left, most=16),
        "yticks": ticks(laid.rows, start=bottom, most=16),
        "xlim": (bounds[0], left + len(laid.columns) - 0.5),
        "ylim": (bounds[1], bounds[3]),
        "show_grid": False,
    }
    return styled(element, **(shared | options))


def _coarse(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``values`` to one part in 2,048, which halves the size of the page and is finer than any colour."""
    return (np.ascontiguousarray(values).view(np.int32) & ~np.int32(0xFFF)).view(np.float32)


def _start(labels: list[Any]) -> int:
    """Coordinate of the first label: neighbouring integers are their own, others are counted."""
    numbers = bool(labels) and all(isinstance(one, int) for one in labels)
    return int(labels[0]) if numbers and labels[-1] - labels[0] == len(labels) - 1 else 0


def _axis_name(name: str, labels: list[Any]) -> str:
    return name if labels and labels[0] == _start(labels) else f"place of {name}"
