"""Stamps of an Nsight Systems report: which of them can be used, and what they count from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview.trace import diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceview.parsers._nsys_export import Export

_DAY_NS = 86_400 * 10**9
_JUDGED = 200_000  # stamps that tell where the middle is
_NONE = pl.Series("stamp", dtype=pl.Int64)
_HIGHEST = 1 << 62  # sums of two stamps stay within int64
_NORMALIZED, _SHIFT = "EXPORT_PARAM_TIME_NORMALIZE", "EXPORT_PARAM_TIME_SHIFT"


def rows_where(frame: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """``frame`` where the condition holds; the same frame where it always does, for a copy may be large."""
    holds = frame.select(condition).to_series()
    return frame if holds.sum() == len(frame) else frame.filter(holds)


@dataclass(frozen=True, slots=True)
class Clock:
    """What turns stamps of the report into the trace's clock: ``base_ns`` is added."""

    base_ns: int
    origin: str

    @classmethod
    def of(cls, export: Export) -> Clock:
        """Unix time where the report says when its session started, else time since then."""
        said = export.named("META_DATA_EXPORT", [_NORMALIZED, _SHIFT])
        shift = int(said[_SHIFT]) if said.get(_SHIFT, "").lstrip("-").isdecimal() else 0
        if said.get(_NORMALIZED) == "true":
            return cls(-shift, "unix epoch (normalized export)")
        started = export.table("TARGET_INFO_SESSION_START_TIME")["utcEpochNs"].drop_nulls()
        if len(started) and 0 < started[0] < _HIGHEST:
            return cls(started[0] - shift, "unix epoch (session start)")
        return cls(-shift, "session start")


@dataclass(frozen=True, slots=True)
class Stamps:
    """Judges the stamps of a report: those more than a day from its middle are no stamps.

    ``last_ns`` is the last credible one, which is where ranges left open are taken to end.
    """

    middle_ns: int
    last_ns: int

    @classmethod
    def of(cls, frames: Iterable[pl.DataFrame]) -> Stamps:
        """From the frames' ``start`` and ``end``."""
        parts = [frame[column] for frame in frames for column in ("start", "end")]
        apart = max(1, sum(map(len, parts)) // _JUDGED)
        some = pl.concat([_NONE, *(part.gather_every(apart).alias("stamp") for part in parts)]).drop_nulls()
        middle = max(-_HIGHEST, min(int(some.quantile(0.5, "nearest") or 0), _HIGHEST))
        latest = [part.filter(part.is_between(middle - _DAY_NS, middle + _DAY_NS)).max() for part in parts]
        return cls(middle, max([middle, *(int(stamp) for stamp in latest if isinstance(stamp, int))]))

    def spans(self, frame: pl.DataFrame, what: str, clock: Clock) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """``frame`` with ``ts_ns, dur_ns`` for ``start, end``, without the rows that have none.

        Also a diagnostic for each kind of row that had to be left out or mended.
        """
        near = pl.col("start", "end").is_between(self.middle_ns - _DAY_NS, self.middle_ns + _DAY_NS)
        kept = rows_where(frame, pl.all_horizontal(near))
        notes = []
        if lost := len(frame) - len(kept):
            text = f"{lost} {what} rows lack a stamp, or have one more than a day from the rest; left out"
            notes.append(diagnostic("warning", "nsys.stamp_unusable", text, count=lost))
        if reversed_ := int((kept["end"] < kept["start"]).sum()):
            text = f"{reversed_} {what} rows end before they start; taken as 0 ns long"
            notes.append(diagnostic("warning", "nsys.duration_negative", text, count=reversed_))
        spans = kept.with_columns(
            ts_ns=pl.col("start") + clock.base_ns,
            dur_ns=(pl.col("end") - pl.col("start")).clip(lower_bound=0),
        )
        return spans.drop("start", "end"), notes
