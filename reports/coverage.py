"""What device work was taken for, and which kernels no rule names: what every figure rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.classify import UNMATCHED_RULE
from traceview.reports.layout import Block, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from traceview.trace import Trace

NAMES = 12
"""Unknown names that are listed; of each rank at most `NAMES_KEPT` are remembered."""

NAMES_KEPT = 200
_KIND = ("class", "category")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Device work of a run by what it was taken for.

    Attributes:
        classes: ``class, category, op_count, dur_ns``: durations are summed, and may overlap.
        unmatched: ``name, op_count, dur_ns`` of kernels that no rule names, the longest first.
    """

    classes: pl.DataFrame
    unmatched: pl.DataFrame

    def unmatched_ratio(self) -> float | None:
        """Share of summed durations that no rule names; None without device work."""
        whole = int(self.classes["dur_ns"].sum())
        return int(self.unmatched["dur_ns"].sum()) / whole if whole else None


def of_rank(trace: Trace) -> Coverage:
    """The coverage of one rank."""
    texts = [pl.col(name).cast(pl.String) for name in (*_KIND, "name", "rule_id")]
    ops = trace.table("ops").select(*texts, "dur_ns")
    sums = {"op_count": pl.len().cast(pl.Int64), "dur_ns": pl.col("dur_ns").sum()}
    unknown = ops.filter(pl.col("rule_id") == UNMATCHED_RULE)
    return Coverage(
        ops.group_by(_KIND).agg(**sums), _longest(unknown.group_by("name").agg(**sums)).head(NAMES_KEPT)
    )


def merged(ranks: Sequence[Coverage]) -> Coverage:
    """The coverage of all ``ranks`` together."""
    sums = pl.col("op_count", "dur_ns").sum()
    classes = pl.concat([rank.classes for rank in ranks]).group_by(_KIND).agg(sums)
    unmatched = pl.concat([rank.unmatched for rank in ranks]).group_by("name").agg(sums)
    return Coverage(classes.sort(-pl.col("dur_ns"), *_KIND), _longest(unmatched))


def blocks(found: Coverage) -> Iterator[Block]:
    """What device work was taken for, and what nobody knows."""
    whole = int(found.classes["dur_ns"].sum())
    if not whole:
        return
    yield Grid(
        "what device work was taken for; durations are summed, so streams that overlap count twice",
        ("class", "category", "ops", "time ms", "%"),
        tuple(
            (kind, category, units.count(count), units.milliseconds(time), units.percent_value(time / whole))
            for kind, category, count, time in found.classes.iter_rows()
        ),
        label_count=2,
    )
    if found.unmatched.is_empty():
        yield Note("Every kernel is named by a rule.", "info")
        return
    yield Note(
        f"{units.percent(found.unmatched_ratio())} of this time is in kernels that no rule names; they count "
        "as compute. --rules FILE.toml names them.",
        "warning",
    )
    yield Grid(
        "kernels that no rule names",
        ("kernel", "ops", "time ms", "%"),
        tuple(
            (name, units.count(count), units.milliseconds(time), units.percent_value(time / whole))
            for name, count, time in found.unmatched.head(NAMES).iter_rows()
        ),
    )


def _longest(names: pl.DataFrame) -> pl.DataFrame:
    return names.sort(-pl.col("dur_ns"), "name")
