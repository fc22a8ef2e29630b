"""Two runs brought onto the same rows: by what work is, never by the order in which it happened.

A row is named by its meaning: part of the step or family of work, axis, role, phase, layer. A label that only
one run knows (phases without annotations, axes without process groups) would tear every row in two, so it is
left out of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers.ledger import PARTS
from traceview.errors import AnalysisError
from traceview.schema import AXES, PHASES, ROLES
from traceview.statistics import Steps

if TYPE_CHECKING:
    from traceview.run import Run

LABELS = ("axis", "role", "phase", "layer")
KEYS = ("scope", "part", "family", *LABELS)
SCOPES = ("step", "ledger", "family")


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the two runs, and what its analyses said.

    Attributes:
        run: The run.
        windows: Its `breakdown` by step.
        ledger: Its `ledger` by step, kind and the labels asked for.
        families: Its `families` by step, family and the labels asked for.
        kernels: Its `families` by kernel.
        groups: Its `families` by group.
    """

    run: Run
    windows: pl.DataFrame
    ledger: pl.DataFrame
    families: pl.DataFrame
    kernels: pl.DataFrame
    groups: pl.DataFrame

    @property
    def steps(self) -> pl.DataFrame:
        """The windows; where there are steps, only those: a whole window beside them is no longer step."""
        looked_at = self.windows.filter(pl.col("window_count") > 0)
        stepped = looked_at.filter(pl.col("step").is_not_null())
        return stepped if len(stepped) else looked_at

    @property
    def is_stepped(self) -> bool:
        """Whether the windows are steps."""
        return self.windows["step"].count() > 0

    @property
    def step_count(self) -> int:
        """Steps that can be drawn; 0 where the whole window is one window."""
        return len(self.steps) if self.is_stepped else 0


@dataclass(frozen=True, slots=True, eq=False)
class Aligned:
    """Both runs on the same rows.

    Attributes:
        rows: Columns `KEYS`, one row per column of the totals; the first is the step itself.
        before: Times of the first run.
        after: Times of the second.
        before_ops: Ops of the first run, in the place of times; NaN where they are not counted.
        after_ops: Ops of the second.
        dropped: Labels left out, each with the name of the run that lacks it.
    """

    rows: pl.DataFrame
    before: Steps
    after: Steps
    before_ops: Steps
    after_ops: Steps
    dropped: tuple[tuple[str, str], ...]


def align(before: Side, after: Side) -> Aligned:
    """The rows of both runs; a row that one run lacks took no time there.

    Raises:
        AnalysisError: A run has no window, so there is nothing to compare.
    """
    for side in (before, after):
        if not len(side.steps):
            message = f"run '{side.run.name}' holds no device work, so there is nothing to compare."
            raise AnalysisError(message)
    dropped = _dropped(before, after)
    lost = [label for label, _ in dropped]
    entries = [_entries(side, lost) for side in (before, after)]
    rows = pl.concat(entries).select(KEYS).unique().sort(_order(), nulls_last=True)
    times = [
        [_steps(side, found, rows, value) for value in ("time_ns", "op_count")]
        for side, found in zip((before, after), entries, strict=True)
    ]
    (before_times, before_ops), (after_times, after_ops) = times
    return Aligned(rows, before_times, after_times, before_ops, after_ops, dropped)


def _order() -> list[pl.Expr]:
    """The order of the ledger and of the tables, rather than that of the alphabet."""
    ranked = {"part": ("step", *PARTS), "axis": AXES, "role": ROLES, "phase": PHASES}
    return [pl.col(key).cast(pl.Enum(ranked[key])) if key in ranked else pl.col(key) for key in KEYS]


def _dropped(before: Side, after: Side) -> tuple[tuple[str, str], ...]:
    """Labels that one run knows and the other could, but does not; with the name of the latter."""
    found = []
    for label in LABELS:
        lacking = [_lacks(side, label) for side in (before, after)]
        if lacking == [True, False] and _knows(after, label):
            found.append((label, before.run.name))
        elif lacking == [False, True] and _knows(before, label):
            found.append((label, after.run.name))
    return tuple(found)


def _knows(side: Side, label: str) -> bool:
    values = side.families[label].cast(pl.String).drop_nulls()
    return bool((values != "unknown").any())


def _lacks(side: Side, label: str) -> bool:
    """Whether ``label`` is known of no row that could have it: only expert exchanges have a role."""
    axis = pl.col("axis").cast(pl.String)
    could = {"axis": axis.is_not_null(), "role": axis.is_in(["ep", "unknown"])}.get(label, pl.lit(value=True))
    return len(side.families.filter(could)) > 0 and not _knows(side, label)


def _entries(side: Side, lost: list[str]) -> pl.DataFrame:
    """Rows of the step, the ledger and the families per step: `KEYS`, ``step, time_ns, op_count``."""
    no_count = pl.lit(None, pl.Int64)
    step = side.windows.select("step", time_ns="window_ns", op_count=no_count, part=pl.lit("step"))
    ledger = side.ledger.select(
        "step", *LABELS, "time_ns", op_count=no_count, part=pl.col("part").cast(pl.String)
    )
    families = side.families.select("step", *LABELS, "family", "op_count", time_ns="busy_ns")
    frames = [
        frame.with_columns(scope=pl.lit(scope, pl.Enum(SCOPES)))
        for scope, frame in zip(SCOPES, (step, ledger, families), strict=True)
    ]
    whole = pl.concat(frames, how="diagonal_relaxed").with_columns(pl.lit(None).alias(name) for name in lost)
    texts = [pl.col(name).cast(pl.String) for name in ("part", "family", "axis", "role", "phase")]
    known = pl.when(pl.col("op_count").count() > 0).then(pl.col("op_count").sum())
    return (
        whole.with_columns(*texts, pl.col("layer").cast(pl.Int32))
        .group_by(*KEYS, "step")
        .agg(pl.col("time_ns").sum(), op_count=known)
    )


def _steps(side: Side, entries: pl.DataFrame, rows: pl.DataFrame, value: str) -> Steps:
    """``value`` of ``entries`` per step and row."""
    windows = side.steps.sort("step").with_row_index("at")
    placed = entries.join(windows.select("at", "step"), on="step", nulls_equal=True).join(
        rows.with_row_index("row"), on=KEYS, nulls_equal=True
    )
    totals = np.zeros((len(windows), len(rows)))
    totals[placed["at"].to_numpy(), placed["row"].to_numpy()] = placed[value].cast(pl.Float64).to_numpy()
    return Steps(totals, windows["window_count"].cast(pl.Float64).to_numpy())
