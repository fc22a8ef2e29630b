"""Differences as lying bars from zero, with their intervals: what takes more time, and what less."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import polars as pl

from traceview.reports.figures import _theme

COLOURS = (
    ("more", _theme.OKABE_ITO[2]),
    ("less", _theme.OKABE_ITO[4]),
    ("not told from chance", _theme.NOTHING),
)
MOST = 24
_SIDES = ["x0", "y0", "x1", "y1"]


def lying(table: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """A bar per row of ``table``, the first on top.

    Args:
        table: ``what``, ``Δ ms``, ``low ms`` and ``high ms`` (null: no interval), and ``kind``: of `COLOURS`.
    """
    shown = table.head(MOST).reverse()
    place = np.arange(len(shown), dtype=np.float32)
    ends = _theme.arrays(shown.select("Δ ms", "low ms", "high ms"))
    parts = [_bars(shown, place, kind, colour) for kind, colour in COLOURS if (shown["kind"] == kind).any()]
    known = ~np.isnan(ends["low ms"])
    whiskers = hv.Segments(
        (ends["low ms"][known], place[known], ends["high ms"][known], place[known]), kdims=_SIDES
    ).opts(color=_theme.TEXT, line_width=2)
    reach = np.concatenate([np.zeros(1, np.float32), *(part[~np.isnan(part)] for part in ends.values())])
    low, high = float(reach.min()), float(reach.max())
    margin = 0.04 * (high - low) or 1.0
    zero = hv.VLine(0).opts(color=_theme.TEXT, line_width=1)
    return _theme.styled(
        hv.Overlay([*parts, whiskers, zero]),
        height=90 + 28 * len(shown),
        yticks=_theme.ticks(shown["what"].to_list(), most=64),
        xlabel="ms per rank and step",
        ylabel="",
        ylim=(-0.6, max(len(shown) - 0.4, 0.6)),
        xlim=(low - margin * (low < 0), high + margin),
        gridstyle={"grid_line_color": _theme.LINE, "ygrid_line_color": None},
    )


def _bars(shown: pl.DataFrame, place: Any, kind: str, colour: str) -> Any:  # noqa: ANN401 - hv.Rectangles
    own = (shown["kind"] == kind).to_numpy()
    delta = _theme.arrays(shown.select("Δ ms"))["Δ ms"][own]
    at, zero = place[own], np.zeros(own.sum(), np.float32)
    sides = (np.minimum(zero, delta), at - np.float32(0.32), np.maximum(zero, delta), at + np.float32(0.32))
    names = _theme.arrays(shown.filter(pl.Series(own)).select("what"))["what"]
    data = dict(zip(_SIDES, sides, strict=True)) | {"delta": delta, "of": names}
    return hv.Rectangles(data, kdims=_SIDES, vdims=["delta", "of"]).opts(
        color=colour,
        line_width=0,
        tools=["hover"],
        hover_tooltips=[("what", "@of"), (kind, "@delta{+0.000} ms")],
    )
