"""The ledger of a step: every nanosecond of a rank's window on one row, communication by what it was for.

Rows are ``compute``, one ``comm`` row per axis, role and phase (exposed while no other op communicates),
``several`` (exposed while several ops do), ``copy`` and ``idle``. They add up to the window exactly, in
integers, and this is checked on every call. A ``comm`` row splits into waiting for the last rank and
transferring; what belongs to no complete instance stays unsplit.

Exposed time stands in the window in which it passes, also that of an op launched in another step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import breakdown
from traceview.analyzers._exchanges import EXCHANGES, collect, exposed_stretches, per_op, shared, timed
from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import AXES, PHASES, ROLES, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

PARTS = ("compute", "comm", "several", "copy", "idle")
_NS = pl.Int64()
_OF_WINDOW = {"compute": "compute_ns", "several": "several_ns", "copy": "exposed_copy_ns", "idle": "idle_ns"}
_WINDOW = ("rank", "device", "step")
_KIND = ("part", "axis", "role")
_LABELS = (*_KIND, "phase", "layer")
_EXPOSED = ("time_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns")
_SUMS = (*_EXPOSED, "uncertainty_ns", "hidden_ns", "op_count")

RESULT = Table(
    "ledger",
    "Time of the windows by what it went into; `time_ns` adds up to `window_ns`, exactly.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(_NS, "step; null for the whole window or when steps are summed", nullable=True),
        "part": Column(pl.Enum(PARTS), "what the time went into"),
        "axis": Column(pl.Enum(AXES), "parallelism axis of a comm row", nullable=True),
        "role": Column(pl.Enum(ROLES), "dispatch or combine", nullable=True),
        "phase": Column(pl.Enum(PHASES), "phase of a comm row; null when phases are summed", nullable=True),
        "layer": Column(pl.Int32(), "layer of a comm row; null when layers are summed", nullable=True),
        "time_ns": Column(_NS, "time on this row and no other", "ns"),
        "time_ratio": Column(
            pl.Float64(), "time / window; the rows of a window add up to 1; null if empty", nullable=True
        ),
        "exposed_wait_ns": Column(
            _NS, "of it before the last rank arrived; null where no instance is complete", "ns", nullable=True
        ),
        "exposed_transfer_ns": Column(
            _NS, "of it after the last rank arrived; null where no instance is complete", "ns", nullable=True
        ),
        "exposed_unsplit_ns": Column(
            _NS, "of it in ops of no complete instance: ranks missing or unmatched", "ns", nullable=True
        ),
        "uncertainty_ns": Column(
            _NS,
            "wait and transfer may be off by this much, in opposite directions: the clock residual (p95) "
            "of every op whose group spans hosts, as if all erred the same way; null where nothing is split",
            "ns",
            nullable=True,
        ),
        "hidden_ns": Column(
            _NS,
            "communication under compute, per op and in the step that launched it; not part of the sum",
            "ns",
            nullable=True,
        ),
        "op_count": Column(_NS, "ops with exposed time on this row, per window", nullable=True),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
    },
)
PARTIAL = Table(
    "ledger_partial",
    "`exchanges`, those of other steps that run in the windows too; window rows also have the breakdown.",
    {
        **EXCHANGES.columns,
        **{
            name: Column(_NS, breakdown.RESULT.columns[name].doc, "ns", nullable=True)
            for name in ("compute_ns", "exposed_copy_ns", "idle_ns")
        },
    },
)
GRAINS = {
    "kind": _KIND,
    "rank": ("rank", "device"),
    "step": ("step",),
    "phase": ("phase",),
    "layer": ("layer",),
}


# --- map ---------------------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank.

    An op launched in a step that is not looked at can still be exposed in a window that is. It has a row
    here, but no group: whether the other ranks' records of it are whole cannot be told.
    """
    frames = windows(trace, options)
    found = occupancy(trace, frames)
    collected = collect(trace, options)
    is_window = pl.col("op").is_null()
    launched = collected.filter(~is_window)
    running = trace.table("collectives").filter(pl.col("op").is_in(pl.Series(found.row).unique().implode()))
    strangers = running.filter(~pl.col("op").is_in(launched["op"].implode())).with_columns(
        pl.lit(collected[name].first(), collected.schema[name]).alias(name)
        for name in ("host", "is_host_known", "node")
    )
    exposed = exposed_stretches(found, running["op"])
    alone = per_op(found, running["op"], exposed).drop("hidden_ns")
    exchanges = pl.concat([launched, EXCHANGES.frame(strangers)]).drop("alone_start_ns", "alone_end_ns")
    looked_at = collected.filter(is_window).with_columns(
        pl.Series("several_ns", shared(found, running["op"], exposed)),
        *breakdown.measure(trace, options).select("compute_ns", "exposed_copy_ns", "idle_ns"),
    )
    rows = exchanges.join(alone, on="op", how="left", maintain_order="left")
    return PARTIAL.frame(pl.concat([rows, looked_at], how="diagonal_relaxed"))


# --- reduce ------------------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` by kind and ``options.by``.

    Raises:
        AssertionError: The rows of a window do not add up to it, which would be a bug here.
    """
    looked_at = partials.filter(pl.col("op").is_null())
    entries = pl.concat([_of_windows(looked_at), _of_ops(partials)], how="diagonal_relaxed")
    _check(entries, looked_at)
    keys = list(dict.fromkeys((*_KIND, *options.columns(GRAINS))))
    spans = [name for name in keys if name in _WINDOW]
    everything = pl.lit(0).alias("everything")  # a group for "by nothing"
    totals = looked_at.group_by(everything, *spans).agg(
        window_ns=pl.col("dur_ns").sum(), window_count=pl.len()
    )
    rows = (
        entries.group_by(everything, *keys)
        .agg(map(_known_sum, _SUMS))
        .filter((pl.col("time_ns") > 0) | (pl.col("hidden_ns") > 0) | (pl.col("part") != "comm"))
        .join(totals, on=["everything", *spans], how="left", nulls_equal=True)
    )
    return RESULT.frame(rows.with_columns(time_ratio=ratio("time_ns", "window_ns"))).sort(
        *_WINDOW, *_LABELS, nulls_last=True
    )


def _known_sum(name: str) -> pl.Expr:
    """Sum of what is known of a column; null where nothing is."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)


def _of_windows(looked_at: pl.DataFrame) -> pl.DataFrame:
    """What the windows themselves know: one entry per window and part."""
    parts = looked_at.select(*_WINDOW, **{part: pl.col(name) for part, name in _OF_WINDOW.items()})
    entries = parts.unpivot(index=_WINDOW, variable_name="part", value_name="time_ns")
    return entries.with_columns(pl.col("part").cast(pl.Enum(PARTS)))


def _of_ops(partials: pl.DataFrame) -> pl.DataFrame:
    """One entry per communication op and window in which it is exposed, and one for its hidden time."""
    found = timed(partials.select(list(EXCHANGES.columns)))
    several_hosts = pl.col("host").n_unique().over("instance") > 1
    exchanges = found.exchanges.with_columns(
        part=pl.lit("comm", pl.Enum(PARTS)),
        turn_ns=pl.col("last_arrival_ns") - pl.col("shift_ns"),  # on the rank's own clock, as stretches are
        blur_ns=pl.when(several_hosts).then(found.clock.residual_p95_ns).otherwise(0),
    )
    about = exchanges.select("rank", "op", *_LABELS, "turn_ns", "blur_ns")
    exposed = _stretches(partials).join(about, on=["rank", "op"], how="left").with_columns(_split())
    per_window = exposed.group_by(*_WINDOW, "op", *_LABELS, "blur_ns").agg(
        *map(_known_sum, _EXPOSED), op_count=pl.lit(1, _NS)
    )
    is_split = pl.col("exposed_wait_ns").is_not_null()
    entries = per_window.with_columns(uncertainty_ns=pl.when(is_split).then("blur_ns"))
    return pl.concat(
        [entries.drop("op", "blur_ns"), _hidden(exchanges, found.windows)], how="diagonal_relaxed"
    )


def _stretches(partials: pl.DataFrame) -> pl.DataFrame:
    """Stretches in which an op alone is exposed; ``step`` is that of the window in which they pass."""
    is_window = pl.col("op").is_null()
    frames = partials.filter(is_window & (pl.col("dur_ns") > 0)).select(*_WINDOW, "ts_ns").sort("ts_ns")
    alone = (
        partials.filter(~is_window)
        .select("rank", "device", "op", "alone_start_ns", "alone_end_ns")
        .drop_nulls("alone_start_ns")
        .explode("alone_start_ns", "alone_end_ns")
        .sort("alone_start_ns")
    )
    # stretches were cut by the windows, and windows never overlap: the last to begin is the one
    return alone.join_asof(
        frames,
        left_on="alone_start_ns",
        right_on="ts_ns",
        by=["rank", "device"],
        check_sortedness=False,  # it cannot be checked within groups
    )


def _split() -> list[pl.Expr]:
    """Each stretch before and after the last arrival; whole where that is not known."""
    length = pl.col("alone_end_ns") - pl.col("alone_start_ns")
    waiting = pl.min_horizontal("alone_end_ns", "turn_ns") - pl.col("alone_start_ns")
    is_split = pl.col("turn_ns").is_not_null()
    wait = pl.when(is_split).then(waiting.clip(lower_bound=0))
    unsplit = pl.when(is_split).then(0).otherwise(length)
    return [
        expr.alias(name) for name, expr in zip(_EXPOSED, (length, wait, length - wait, unsplit), strict=True)
    ]


def _hidden(exchanges: pl.DataFrame, looked_at: pl.DataFrame) -> pl.DataFrame:
    """Entries of hidden time, which cost nothing; the step is null where windows are not steps."""
    stepped = looked_at.select(*_WINDOW, is_stepped=pl.lit(value=True)).drop_nulls("step").unique()
    placed = exchanges.drop_nulls("hidden_ns").join(stepped, on=list(_WINDOW), how="left")
    zero = pl.lit(0, _NS)
    zero_if_split = pl.when(pl.col("turn_ns").is_not_null()).then(zero)
    return placed.select(
        "rank",
        "device",
        *_LABELS,
        "hidden_ns",
        step=pl.when("is_stepped").then("step"),
        time_ns=zero,
        exposed_wait_ns=zero_if_split,
        exposed_transfer_ns=zero_if_split,
        exposed_unsplit_ns=zero,
        uncertainty_ns=zero_if_split,
        op_count=zero,
    )


def _check(entries: pl.DataFrame, looked_at: pl.DataFrame) -> None:
    """Makes sure that entries add up to the windows."""
    sums = entries.group_by(_WINDOW).agg(pl.col("time_ns").sum())
    windows_ns = looked_at.group_by(_WINDOW).agg(pl.col("dur_ns").sum())
    beside = windows_ns.join(sums, on=list(_WINDOW), how="full", nulls_equal=True)
    wrong = beside.filter(pl.col("dur_ns").fill_null(0) != pl.col("time_ns").fill_null(0))
    if len(wrong):
        message = f"the ledger of {len(wrong)} windows does not add up; this is a bug in traceview"
        raise AssertionError(message)


ANALYSIS = Analysis(
    name="ledger",
    question="What does every nanosecond of the step go into?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
    maps_by=(),
)
