"""Why communication along an axis costs more in the larger run: the first cause that the figures bear out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import work as works
from traceview.schema import AXES, Column, Table

if TYPE_CHECKING:
    from traceview.comparisons.scaling import Size

CAUSES = ("left_domain", "waiting", "more_bytes", "less_hidden", "larger_group", "slower")
"""In the order in which they are considered:

- *left_domain*: a larger share of the bytes leaves the scale-up (NVLink) domain
- *waiting*: most of the loss is waiting for the last rank
- *more_bytes*: a rank sends more for the same tokens
- *less_hidden*: no longer in all than before, but less of it under compute
- *larger_group*: the group has more members, and takes longer for the same bytes
- *slower*: it takes longer, with nothing of the above
"""

LEAST_LOSS = 0.0005
"""Share of the step time below which a loss needs no cause."""

FAR_CHANGE, HIDDEN_CHANGE, MORE = 0.05, 0.01, 1.05

_I32, _F64, _STR = pl.Int32(), pl.Float64(), pl.String()


def _known(doc: str, unit: str | None = None, dtype: pl.DataType = _F64) -> Column:
    return Column(dtype, doc, unit, nullable=True)


RESULT = Table(
    "scaling_axes",
    "Communication along each axis in two runs, per window, and why it costs more in the larger one.",
    {
        "run": Column(_STR, "name of the run"),
        "base_run": Column(_STR, "run it is compared with"),
        "axis": Column(pl.Enum(AXES), "parallelism axis"),
        "loss_ns": Column(pl.Int64(), "exposed time beyond the ideal, while no other op communicates", "ns"),
        "loss_ratio": _known("loss over the step time"),
        "cause": _known("why; null without a loss worth naming", dtype=pl.Enum(CAUSES)),
        **{
            f"{when}{name}": column
            for when in ("base_", "")
            for name, column in {
                "size": _known("members of the group", dtype=_I32),
                "dur_ns": _known("durations of the ops, waiting included", "ns"),
                "hidden_ratio": _known("share of that under compute"),
                "sent_bytes": _known("bytes sent to other ranks", "bytes"),
                "far_ratio": _known("share of them that leaves the scale-up domain"),
            }.items()
        },
    },
)


def causes(base: Size, size: Size, losses: pl.DataFrame, work: float) -> pl.DataFrame:
    """`RESULT` of one pair.

    Args:
        base: The smaller run.
        size: The larger run.
        losses: Rows of the pair, from `scaling.LOSSES`.
        work: Tokens per rank over those of ``base``.
    """
    comm = losses.filter(pl.col("part") == "comm")
    by_axis = comm.group_by("run", "base_run", axis=pl.col("axes").cast(pl.Enum(AXES))).agg(
        pl.col("loss_ns", "loss_ratio").sum(),
        wait_ns=pl.col("loss_ns").filter(pl.col("cause") == "wait").sum(),
    )
    joined = by_axis
    for prefix, one in (("base_", base), ("", size)):
        facts = _facts(one)
        joined = joined.join(
            facts.rename({name: f"{prefix}{name}" for name in facts.columns if name != "axis"}),
            on="axis",
            how="left",
        )
    return RESULT.frame(joined.with_columns(cause=_cause(work))).sort(
        "loss_ns", "axis", descending=[True, False]
    )


def _facts(size: Size) -> pl.DataFrame:
    """``axis`` and what is known of it in one run, per window."""
    found = size.answers["collectives"].filter(pl.col("window_count") > 0)
    work = size.answers["work"].to_dicts()
    known = {axis: work[0][f"{axis}_size"] for axis in works.AXES} if work else {}
    known["world"] = size.rank_count
    is_moved = pl.col("sent_bytes") > 0
    axis = pl.col("axis")
    return found.select(
        axis.cast(pl.Enum(AXES)),
        size=axis.replace_strict(known, default=None, return_dtype=_I32),
        dur_ns=pl.col("dur_ns") / pl.col("window_count"),
        hidden_ratio=pl.when(pl.col("dur_ns") > 0).then(pl.col("hidden_ns") / pl.col("dur_ns")),
        sent_bytes=pl.col("sent_bytes") / pl.col("window_count"),
        far_ratio=pl.when(is_moved).then(pl.col("scale_out_bytes") / pl.col("sent_bytes")),
    )


def _cause(work: float) -> pl.Expr:
    """The first of `CAUSES` that holds; null values bear nothing out."""

    def grew(name: str, scale: float = 1.0) -> pl.Expr:
        return pl.col(name) > MORE * scale * pl.col(f"base_{name}")

    longer = grew("dur_ns", work)
    tests = {
        "left_domain": pl.col("far_ratio") - pl.col("base_far_ratio") >= FAR_CHANGE,
        "waiting": 2 * pl.col("wait_ns") >= pl.col("loss_ns"),
        "more_bytes": grew("sent_bytes", work),
        "less_hidden": ~longer & (pl.col("base_hidden_ratio") - pl.col("hidden_ratio") >= HIDDEN_CHANGE),
        "larger_group": pl.col("size") > pl.col("base_size"),
        "slower": longer,
    }
    first = pl.coalesce(pl.when(test).then(pl.lit(name)) for name, test in tests.items())
    return pl.when((pl.col("loss_ns") > 0) & (pl.col("loss_ratio") >= LEAST_LOSS)).then(first)
