"""What a step of the larger run takes beyond the ideal, by owner, in whole ns that add up."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceview.analyzers.ledger import PARTS
from traceview.schema import Column, Table
from traceview.statistics import MINIMUM_STEPS, Steps, difference_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.comparisons._held import Held
    from traceview.comparisons.scaling import Size

CAUSES = ("wait", "transfer", "unsplit")
_OWNER = ("part", "axes", "cause")
_I64, _F64, _STR = pl.Int64(), pl.Float64(), pl.String()
_UNSPLIT_SHARE = 0.05
"""Up to this share of an axis's exposed time may be in exchanges that ranks are missing of."""


def _known(doc: str, unit: str | None = None, dtype: pl.DataType = _F64) -> Column:
    return Column(dtype, doc, unit, nullable=True)


LOSSES = Table(
    "scaling_losses",
    "What a step takes beyond the ideal, by owner, per window; `loss_ns` adds up to step time − ideal.",
    {
        "run": Column(_STR, "name of the run"),
        "base_run": Column(_STR, "run it is compared with"),
        "part": Column(pl.Enum(PARTS), "part of the step's ledger"),
        "axes": _known(
            "parallelism axis of exposed communication; joined by '+' where several share it", dtype=_STR
        ),
        "cause": _known(
            "waiting for the last rank, or transferring; null where ranks are missing to tell",
            dtype=pl.Enum(CAUSES),
        ),
        "base_ns": Column(_I64, "time of the base", "ns"),
        "ideal_ns": Column(_I64, "time of the base × tokens per rank over base", "ns"),
        "time_ns": Column(_I64, "time of the run", "ns"),
        "change_ns": Column(_I64, "time − base; adds up to the difference of the step times", "ns"),
        "loss_ns": Column(_I64, "time − ideal", "ns"),
        "loss_ratio": _known("loss over the step time; adds up to 1 − retention"),
        "loss_low_ns": _known("lower end of its bootstrap interval over steps (95 %)", "ns"),
        "loss_high_ns": _known("upper end", "ns"),
    },
)


def losses_of(base: Size, size: Size, fixed: Held) -> pl.DataFrame:
    """`LOSSES` of one pair; where retention is refused, a rank is taken to have as much work as before."""
    work = Fraction(1) if fixed.tokens_per_rank is None else fixed.tokens_per_rank
    split = _split_axes(base, size)
    entries = {one.name: _entries(one, split) for one in (base, size)}
    owners = pl.concat(entry.select(_OWNER) for entry in entries.values()).unique().sort(_OWNER)
    sums = {name: _totals(entry, owners) for name, entry in entries.items()}
    count, before = size.windows[0], base.windows[0]
    base_ns = apportioned(sums[base.name], Fraction(1, before))
    ideal_ns = apportioned(sums[base.name], work / before)
    time_ns = apportioned(sums[size.name], Fraction(1, count))
    low, high = _loss_intervals(entries[base.name], entries[size.name], owners, float(work))
    rows = owners.with_columns(
        pl.Series("base_ns", base_ns),
        pl.Series("ideal_ns", ideal_ns),
        pl.Series("time_ns", time_ns),
        run=pl.lit(size.name),
        base_run=pl.lit(base.name),
        loss_low_ns=pl.Series(low, dtype=_F64),
        loss_high_ns=pl.Series(high, dtype=_F64),
    )
    loss = pl.col("time_ns") - pl.col("ideal_ns")
    return LOSSES.frame(
        rows.with_columns(
            change_ns=pl.col("time_ns") - pl.col("base_ns"),
            loss_ns=loss,
            loss_ratio=pl.when(pl.col("time_ns").sum() > 0).then(loss / pl.col("time_ns").sum()),
        )
    )


def _split_axes(base: Size, size: Size) -> list[str]:
    """Axes whose exposed time is split into waiting and transferring, nearly all of it, in both runs.

    Where one run has all ranks of a group and the other has not, the parts could not be compared.
    """
    comm = [one.answers["ledger"].filter(pl.col("part") == "comm") for one in (base, size)]
    shares = pl.concat(
        frame.group_by(pl.col("axis").cast(_STR)).agg(
            whole=pl.col("time_ns").sum(), rest=pl.col("exposed_unsplit_ns").sum()
        )
        for frame in comm
    )
    is_poor = (pl.col("rest") > _UNSPLIT_SHARE * pl.col("whole")).any()
    return shares.group_by("axis").agg(is_poor=is_poor).filter(~pl.col("is_poor"))["axis"].to_list()


def _entries(size: Size, split: Sequence[str]) -> pl.DataFrame:
    """``step, part, axes, cause, time_ns, window_count``: the ledger, shared time by who shares it."""
    ledger = size.answers["ledger"].with_columns(axes=pl.col("axis").cast(_STR))
    is_split = (pl.col("part") == "comm") & pl.col("axes").is_in(split)
    keys = ["step", "part", "axes", "window_count"]
    nothing = pl.lit(None, pl.Enum(CAUSES))
    whole = ledger.filter(~is_split & (pl.col("part") != "several")).select(*keys, "time_ns", cause=nothing)
    parts = [
        ledger.filter(is_split).select(
            *keys, time_ns=pl.col(f"exposed_{cause}_ns").fill_null(0), cause=pl.lit(cause, pl.Enum(CAUSES))
        )
        for cause in CAUSES
    ]
    shared = size.answers["several"].select(
        "step", "axes", "window_count", "time_ns", part=pl.lit("several", pl.Enum(PARTS)), cause=nothing
    )
    entries = pl.concat([whole, *parts, shared.select(whole.columns)])
    return entries.filter((pl.col("time_ns") != 0) | pl.col("part").is_in(["compute", "copy", "idle"]))


def _totals(entries: pl.DataFrame, owners: pl.DataFrame) -> list[int]:
    """Time of each owner over all windows."""
    sums = entries.group_by(_OWNER).agg(pl.col("time_ns").sum())
    joined = owners.join(sums, on=list(_OWNER), how="left", nulls_equal=True, maintain_order="left")
    return [int(time) for time in joined["time_ns"].fill_null(0)]


def apportioned(totals: Sequence[int], share: Fraction) -> list[int]:
    """``totals × share`` as integers whose sum is that of the exact values, rounded: largest remainder."""
    exact = [total * share for total in totals]
    whole = [value.numerator // value.denominator for value in exact]
    missing = round(sum(exact, Fraction(0))) - sum(whole)
    order = sorted(range(len(exact)), key=lambda place: (whole[place] - exact[place], place))
    for place in order[:missing]:
        whole[place] += 1
    return whole


def steps_of(entries: pl.DataFrame, owner: Sequence[str], owners: pl.DataFrame | None = None) -> Steps:
    """Entries as a matrix of steps and ``owners``; of one row for everything without any."""
    windows = entries.group_by("step").agg(pl.col("window_count").max()).sort("step")
    if owners is None:
        owners = pl.DataFrame({"row": [0]})
    keyed = owners.with_row_index("place").drop("row", strict=False)
    placed = (
        entries.with_columns(place=pl.lit(0))
        if not owner
        else entries.join(keyed, on=list(owner), nulls_equal=True)
    )
    sums = placed.group_by("step", "place").agg(pl.col("time_ns").sum())
    at = sums.join(windows.with_row_index("number"), on="step", nulls_equal=True)
    totals = np.zeros((len(windows), len(owners)))
    totals[at["number"].to_numpy(), at["place"].to_numpy()] = at["time_ns"].to_numpy()
    return Steps(totals, windows["window_count"].to_numpy().astype(np.float64))


def _loss_intervals(
    before: pl.DataFrame, after: pl.DataFrame, owners: pl.DataFrame, work: float
) -> tuple[list[float | None], list[float | None]]:
    """Ends of the interval of each owner's loss; None with too few steps on either side."""
    was, now = (steps_of(entries, _OWNER, owners) for entries in (before, after))
    if min(was.count, now.count) < MINIMUM_STEPS:
        nothing: list[float | None] = [None] * len(owners)
        return nothing, nothing
    low, high = difference_interval(Steps(was.totals * work, was.windows), now)
    return low.tolist(), high.tolist()
