"""The timeline viewer's data: lanes packed into a few bytes per bar, and what is shown of a run.

Starts are sent as differences, so that most fit 32 bits and compress well; the page restores int64-exact
nanoseconds (float64 holds them up to 2^53 from the start of the window).
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview.reports import lanes as lanes_
from traceview.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.reports.lanes import Clock, Lane
    from traceview.trace import Trace

MOST_BARS = 1_000_000
"""Bars of a page of its own; a figure of the report has `FIGURE_BARS`."""

FIGURE_BARS = 20_000
FINEST = 1 << 20
"""Cells a window is cut into where bars have to be drawn together; halved until they are few enough."""

LETTERS = 160
_LARGEST = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over one window.

    Attributes:
        lanes: In the order drawn.
        begin_ns: Start of the window, on the common clock.
        span_ns: Its length.
        merged_ns: Bars shorter than this may have been drawn together; 0 if none was.
    """

    lanes: tuple[Lane, ...]
    begin_ns: int
    span_ns: int
    merged_ns: int = 0
    uncertainty_ns: int | None = field(default=None)

    @property
    def bar_count(self) -> int:
        """Bars of all lanes."""
        return sum(len(lane.bars) for lane in self.lanes)

    def groups(self) -> tuple[tuple[str, str], ...]:
        """Labels and colours of what is shown, in the order of `lanes.GROUPS`."""
        shown = {place for lane in self.lanes for place in lane.bars["group"].unique()}
        return tuple(
            (label, colour) for place, (label, colour, _) in enumerate(lanes_.GROUPS) if place in shown
        )


def compose(
    traces: Sequence[Trace],
    corrections: Mapping[int, Clock],
    *,
    step: int | None = None,
    most_bars: int = MOST_BARS,
    uncertainty_ns: int | None = None,
) -> Timeline:
    """The timeline of ``traces`` over one step, or over everything they hold.

    Args:
        traces: The ranks to show.
        corrections: Clock by rank.
        step: Only this step.
        most_bars: Beyond so many, short bars are drawn together.
        uncertainty_ns: How exactly the ranks' clocks are known.
    """
    found = [lane for lane in lanes_.of_run(traces, corrections, step=step) if len(lane.bars)]
    begin = min((int(lane.bars["ts_ns"].min()) for lane in found), default=0)  # type: ignore[arg-type]
    end = max((int((lane.bars["ts_ns"] + lane.bars["dur_ns"]).max()) for lane in found), default=0)  # type: ignore[arg-type]
    whole = Timeline(tuple(found), begin, end - begin, uncertainty_ns=uncertainty_ns)
    if whole.bar_count <= most_bars:
        return whole
    cells, timeline = FINEST, whole
    while timeline.bar_count > most_bars and cells:
        cut = tuple(lanes_.merged(lane, begin_ns=begin, span_ns=end - begin, cells=cells) for lane in found)
        timeline = Timeline(cut, begin, end - begin, max((end - begin) // cells, 1), uncertainty_ns)
        cells //= 2
    return timeline


def item(timeline: Timeline) -> dict[str, Any]:
    """What the viewer (``assets/timeline.js``) reads: JSON, with all bars in one gzipped block."""
    names, contexts = (_Table(timeline, column) for column in ("name", "context"))
    blocks, lanes = [], []
    for lane in timeline.lanes:
        bars = lane.bars
        start = bars["ts_ns"].to_numpy() - timeline.begin_ns
        columns = (
            np.diff(start, prepend=0),
            bars["dur_ns"].to_numpy(),
            names.places(bars),
            contexts.places(bars),
            bars["group"].to_numpy(),
        )
        packed = [_packed(column) for column in columns]
        blocks += [block for _, block in packed]
        lanes.append(
            {
                "rank": lane.rank,
                "label": printable(lane.label),
                "kind": lane.kind,
                "count": len(bars),
                "types": [kind for kind, _ in packed],
            }
        )
    data = gzip.compress(b"".join(blocks), compresslevel=6, mtime=0)
    return {
        "timeline": 1,
        "span": timeline.span_ns,
        "merged": timeline.merged_ns,
        "groups": [[label, colour] for label, colour, _ in lanes_.GROUPS],
        "names": names.texts,
        "contexts": contexts.texts,
        "lanes": lanes,
        "data": base64.b64encode(data).decode(),
    }


def text(timeline: Timeline) -> str:
    """`item` as JSON."""
    return json.dumps(item(timeline), separators=(",", ":"))


class _Table:
    """The distinct texts of a column over all lanes, and where each stands."""

    def __init__(self, timeline: Timeline, column: str) -> None:
        self._column = column
        parts = [lane.bars[column].fill_null("") for lane in timeline.lanes]
        unique = pl.concat(parts).unique().sort() if parts else pl.Series(dtype=pl.String)
        self._known = pl.DataFrame({column: unique, "place": np.arange(len(unique), dtype=np.uint32)})
        self.texts = [_short(one) for one in unique]

    def places(self, bars: pl.DataFrame) -> np.ndarray[Any, Any]:
        """Places of the texts of ``bars``."""
        own = bars.select(pl.col(self._column).fill_null(""))
        return own.join(self._known, on=self._column, how="left", maintain_order="left")["place"].to_numpy()


def _short(text: str) -> str:
    safe = printable(text[: LETTERS + 1])
    return safe if len(safe) <= LETTERS else f"{safe[: LETTERS - 1]}…"


def _packed(values: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    """The name of the smallest type that holds ``values``, and their little-endian bytes."""
    largest = int(values.max()) if len(values) else 0
    kind = "u1" if largest < 1 << 8 else "u2" if largest < 1 << 16 else "u4" if largest <= _LARGEST else "f8"
    return kind, values.astype(f"<{kind}").tobytes()
