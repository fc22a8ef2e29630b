"""Whether overlap pays: how much slower kernels run under communication than the same kernels alone.

Communication takes SMs, memory and link bandwidth from the compute that hides it, so hidden time has a price:
``net_hidden = hidden − excess``, where ``excess`` sums (duration − median alone) over overlapped kernels.

A kernel is *overlapped* when at least half of it runs under communication and *alone* when less than a
twentieth does; what lies between is counted and not used. "The same kernel" means one name, grid, phase and
module on one device: a persistent kernel has the same grid whatever it multiplies, so name and grid would
compare a forward product with the larger one of its backward. Where the durations of such a kernel, alone or
overlapped, still differ by more than `MIXED_SPREAD`, it does different work under one name and is left out.

Medians are taken per rank and device, over all windows looked at, and never merged: what crosses ranks are
sums, so that every figure but the two medians is exact over any number of ranks. Compute kernels that run
beside each other slow each other too; that part is not told apart here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._occupancy import occupancy
from traceview.analyzers._ratios import ratio
from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, covered, split
from traceview.schema import OPS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

OVERLAPPED_SHARE, ALONE_SHARE = 0.5, 0.05
MIXED_SPREAD = 3
"""Longest over shortest duration that one kernel at one amount of work may show."""

METHODS = ("name_grid_context", "name_grid")
"""What told kernels apart: phase or module as well, or, where some had neither, name and grid alone."""

_NS, _MEDIAN = pl.Int64(), pl.Float64()
LABELS = ("category", "name", "grid_blocks", "phase", "module")
GRAINS = {
    "rank": ("rank", "device"),
    "step": ("step",),
    "category": ("category",),
    "kernel": ("category", "name", "grid_blocks"),
    "phase": ("phase",),
    "module": ("module",),
}
_COUNTS = ("alone_count", "overlapped_count", "partly_count", "compared_count", "mixed_count")
_SUMS = (*_COUNTS, "overlapped_ns", "compared_ns", "expected_ns")

RESULT = Table(
    "interference",
    "Kernels under communication against the same kernels alone, and what is left of hidden communication.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "device": Column(pl.Int32(), "device; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are summed", nullable=True),
        **{name: Column(OPS.columns[name].dtype, OPS.columns[name].doc, nullable=True) for name in LABELS},
        "alone_count": Column(_NS, "kernels with less than 5 % under communication"),
        "overlapped_count": Column(_NS, "kernels with at least 50 % under communication"),
        "partly_count": Column(_NS, "kernels between the two, not used"),
        "compared_count": Column(_NS, "of the overlapped, those compared with the same kernel alone"),
        "mixed_count": Column(_NS, "of the overlapped, those not compared as their durations are too mixed"),
        "overlapped_ns": Column(_NS, "summed durations of the overlapped", "ns"),
        "compared_ns": Column(_NS, "summed durations of the compared", "ns"),
        "compared_ratio": Column(pl.Float64(), "compared / overlapped; null if none overlaps", nullable=True),
        "alone_median_ns": Column(
            _MEDIAN, "median alone: mean of the ranks' medians, by compared kernels", "ns", nullable=True
        ),
        "overlapped_median_ns": Column(_MEDIAN, "median overlapped, in the same way", "ns", nullable=True),
        "slowdown": Column(
            pl.Float64(), "compared durations over what they take alone; null if none", nullable=True
        ),
        "excess_ns": Column(
            _NS, "compared durations beyond the median alone; null if none is compared", "ns", nullable=True
        ),
        "hidden_comm_ns": Column(
            _NS, "communication under compute; null in rows of single kinds of kernels", "ns", nullable=True
        ),
        "net_hidden_ns": Column(
            _NS, "hidden − excess: an upper bound while compared_ratio < 1", "ns", nullable=True
        ),
        "window_ns": Column(_NS, "time looked at", "ns"),
        "window_count": Column(_NS, "windows (rank × device × step) looked at"),
        "method": Column(pl.Enum(METHODS), "what told kernels apart", nullable=True),
    },
)

PARTIAL = Table(
    "interference",
    "Sums per device, window and label; and, with `window_ns`, one row per device and window.",
    {name: RESULT.columns[name] for name in ("rank", "device", "step", *LABELS, *_COUNTS)}
    | {
        "overlapped_ns": RESULT.columns["overlapped_ns"],
        "compared_ns": RESULT.columns["compared_ns"],
        "expected_ns": Column(_NS, "what the compared would take alone", "ns"),
        "overlapped_medians_ns": Column(_NS, "what they would take at their overlapped median", "ns"),
        "placed_count": Column(_NS, "of the compared, those of known phase or module"),
        "hidden_comm_ns": RESULT.columns["hidden_comm_ns"],
        "window_ns": Column(_NS, "time looked at; null in a row of kernels", "ns", nullable=True),
    },
)
_PARTIAL_SUMS = (*_SUMS, "overlapped_medians_ns", "placed_count")


# --- map: one rank -----------------------------------------------------------------------------------


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank: one row per device, window and label asked for, and one per window."""
    frames = windows(trace, options)
    kernels = _compared(_kernels(trace, frames))
    labels = [name for name in options.columns(GRAINS) if name in LABELS]
    sums = kernels.group_by("rank", "device", "step", *labels).agg(_sums())
    found = occupancy(trace, frames)
    hidden = found.measure(found.comm) - found.measure(found.exposed)
    looked_at = frames.select(
        "rank", "device", "step", pl.Series("hidden_comm_ns", hidden), window_ns="dur_ns"
    )
    rows = pl.concat([looked_at, sums], how="diagonal_relaxed")
    return PARTIAL.frame(rows.with_columns(pl.col(_PARTIAL_SUMS).fill_null(0)))


def _kernels(trace: Trace, frames: pl.DataFrame) -> pl.DataFrame:
    """Compute kernels that start in a window, with its ``step``; ``state`` is alone, overlapped or partly."""
    ops = trace.table("ops")
    start = ops["ts_ns"].to_numpy()
    spans = Spans.of(start, start + ops["dur_ns"].to_numpy(), key=ops["device"].to_numpy())
    begin = frames["ts_ns"].to_numpy()
    within = Spans.of(begin, begin + frames["dur_ns"].to_numpy(), key=frames["device"].to_numpy())
    pieces, row = split(spans, within)
    begun = pieces.start == spans.start[row]  # an op that a window cuts counts where it starts
    under = covered(spans.take((ops["class"] == "comm").to_numpy()), spans)
    share = pl.col("under_ns") / pl.col("dur_ns")
    state = pl.when(share >= OVERLAPPED_SHARE).then(pl.lit("overlapped"))
    placed: pl.DataFrame = ops.with_columns(pl.Series("under_ns", under))[row[begun]].with_columns(
        step=frames["step"].gather(pieces.key[begun]),
        state=state.when(share < ALONE_SHARE).then(pl.lit("alone")).otherwise(pl.lit("partly")),
    )
    computes = (pl.col("class") == "compute") & (pl.col("kind") == "kernel")
    return placed.filter(computes).select("rank", "device", "step", *LABELS, "dur_ns", "state")


def _compared(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the medians of the same kernel, ``is_compared`` and ``is_mixed`` (never compared)."""
    same = ("rank", "device", *LABELS)
    lengths = {state: pl.col("dur_ns").filter(pl.col("state") == state) for state in ("alone", "overlapped")}
    medians = {
        f"{state}_median_ns": values.median().floor().cast(pl.Int64) for state, values in lengths.items()
    }
    mixed = [values.max() > MIXED_SPREAD * values.min() for values in lengths.values()]
    known = kernels.group_by(same).agg(**medians, is_mixed=pl.any_horizontal(mixed))
    joined = kernels.join(known, on=same, how="left", nulls_equal=True, maintain_order="left")
    has_pair = (pl.col("state") == "overlapped") & pl.col("alone_median_ns").is_not_null()
    return joined.with_columns(
        is_compared=has_pair & ~pl.col("is_mixed"), is_mixed=has_pair & pl.col("is_mixed")
    )


def _sums() -> list[pl.Expr]:
    state, compared = pl.col("state"), pl.col("is_compared")
    placed = pl.any_horizontal(pl.col("phase", "module").is_not_null())
    return [
        (state == "alone").sum().alias("alone_count"),
        (state == "overlapped").sum().alias("overlapped_count"),
        (state == "partly").sum().alias("partly_count"),
        compared.sum().alias("compared_count"),
        pl.col("is_mixed").sum().alias("mixed_count"),
        pl.col("dur_ns").filter(state == "overlapped").sum().alias("overlapped_ns"),
        pl.col("dur_ns").filter(compared).sum().alias("compared_ns"),
        pl.col("alone_median_ns").filter(compared).sum().alias("expected_ns"),
        pl.col("overlapped_median_ns").filter(compared).sum().alias("overlapped_medians_ns"),
        (placed & compared).sum().alias("placed_count"),
    ]


# --- reduce: all ranks -------------------------------------------------------------------------------


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` with one row per value of ``options.by``; windows without any kernel have a row too."""
    keys = options.columns(GRAINS)
    labels = [name for name in keys if name in LABELS]
    spans = [name for name in keys if name not in LABELS]
    rows = partials.with_columns(pl.lit(0).alias("all"))  # a group for "by nothing"
    is_window = pl.col("window_ns").is_not_null()
    totals = (
        rows.filter(is_window)
        .group_by("all", *spans)
        .agg(pl.col("window_ns", "hidden_comm_ns").sum(), window_count=pl.len())
    )
    sums = rows.filter(~is_window).group_by("all", *keys).agg(pl.col(_PARTIAL_SUMS).sum())
    if labels:
        joined = sums.join(totals.drop("hidden_comm_ns"), on=["all", *spans], how="left", nulls_equal=True)
    else:
        joined = totals.join(sums, on=["all", *spans], how="left", nulls_equal=True)
    figures = RESULT.frame(_with_figures(joined.with_columns(pl.col(_PARTIAL_SUMS).fill_null(0))))
    names = [pl.col(name).cast(pl.String) for name in labels]
    return figures.sort("rank", "device", "step", -pl.col("excess_ns").fill_null(0), *names)


def _with_figures(sums: pl.DataFrame) -> pl.DataFrame:
    compared = pl.col("compared_count") > 0

    def per_kernel(total: str) -> pl.Expr:
        return pl.when(compared).then(pl.col(total) / pl.col("compared_count"))

    placed = pl.when(pl.col("placed_count") == pl.col("compared_count")).then(pl.lit(METHODS[0]))
    figures = sums.with_columns(
        compared_ratio=ratio("compared_ns", "overlapped_ns"),
        alone_median_ns=per_kernel("expected_ns"),
        overlapped_median_ns=per_kernel("overlapped_medians_ns"),
        slowdown=pl.when(compared).then(pl.col("compared_ns") / pl.col("expected_ns")),
        excess_ns=pl.when(compared).then(pl.col("compared_ns") - pl.col("expected_ns")),
        method=pl.when(compared).then(placed.otherwise(pl.lit(METHODS[1]))),
    )
    hidden = pl.col("hidden_comm_ns") if "hidden_comm_ns" in sums.columns else pl.lit(None, _NS)
    return figures.with_columns(hidden_comm_ns=hidden, net_hidden_ns=hidden - pl.col("excess_ns"))


ANALYSIS = Analysis(
    name="interference",
    question="How much slower does compute run under communication, and what does overlap then save?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
