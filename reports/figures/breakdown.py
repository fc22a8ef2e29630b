"""Where each rank's time goes, as stacked bars that add up to its step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview.reports.figures import _theme

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = (
    ("compute alone", _theme.OKABE_ITO[0]),
    ("compute over communication", _theme.OKABE_ITO[1]),
    ("exposed communication", _theme.OKABE_ITO[2]),
    ("exposed copies", _theme.OKABE_ITO[3]),
    ("idle", "#b9bec6"),
)
"""Parts and their colours, from the bottom up."""


def parts(breakdown: pl.DataFrame) -> pl.DataFrame:
    """``rank, device`` and the `PARTS` of a mean window in ms, by rank; null ranks (all summed) are "all"."""
    compute, hidden = pl.col("compute_ns"), pl.col("hidden_comm_ns")
    times = (
        compute - hidden,
        hidden,
        pl.col("exposed_comm_ns"),
        pl.col("exposed_copy_ns"),
        pl.col("idle_ns"),
    )
    per = pl.col("window_count") * 1e6
    return breakdown.select(
        "rank",
        "device",
        *((time / per).alias(f"{name} ms") for (name, _), time in zip(PARTS, times, strict=True)),
    )


def by_rank(breakdown: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Stacked bars of a `breakdown` by rank, in the order of the rows."""
    return stacked_ranks(parts(breakdown), PARTS)


def slowest_first(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of `parts` by their sum, the largest first."""
    whole = pl.sum_horizontal(pl.col("^.* ms$"))
    return table.sort(whole, descending=True, maintain_order=True)


def stacked_ranks(table: pl.DataFrame, colours: Sequence[tuple[str, str]]) -> Any:  # noqa: ANN401 - an hv.Overlay
    """A bar per row of ``table``: its columns ``<part> ms``, stacked in the order of ``colours``."""
    shown = table.head(_theme.GLYPHS // len(colours))
    place, width = np.arange(len(shown), dtype=np.float32), 0.42 if len(shown) <= 128 else 0.5
    base = np.zeros(len(shown), np.float32)
    rank = shown["rank"].cast(float).to_numpy().astype(np.float32)
    columns = []
    for name, colour in colours:
        height = shown[f"{name} ms"].fill_null(0).to_numpy().astype(np.float32)
        data = {"x0": place - width, "y0": base, "x1": place + width, "y1": base + height}
        tooltips = [("rank", "@rank{0}"), (name, "@ms{0.000} ms")]
        columns.append(
            {
                "data": data | {"rank": rank, "ms": height},
                "vdims": ["rank", "ms"],
                "color": colour,
                "tooltips": tooltips,
            }
        )
        base = base + height
    return _theme.stacked(
        columns,
        xticks=_theme.ticks(shown["rank"].to_list(), most=32),
        xlabel="rank",
        ylabel="ms per rank and window",
        xlim=(-0.6, max(len(shown) - 0.4, 0.6)),
        ylim=(0, float(base.max(initial=0)) * 1.04 or 1.0),
    )


FIGURES = {("rank",): by_rank}
