"""Why communication along an axis costs more in the larger run: the first cause that the figures bear out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers import work as works
from traceview.analyzers.several import JOINED
from traceview.bandwidth import far_ratio
from traceview.schema import AXES, Column, Table

if TYPE_CHECKING:
    from traceview.comparisons.scaling import Size

CAUSES = (
    "left_domain",
    "waiting",
    "more_bytes",
    "same_bytes_for_less",
    "less_hidden",
    "larger_group",
    "slower",
)
"""In the order in which they are considered:

- *left_domain*: a larger share of the bytes leaves the scale-up (NVLink) domain
- *waiting*: most of the loss is waiting for the last rank
- *more_bytes*: a rank sends more
- *same_bytes_for_less*: what a rank sends does not shrink with its tokens
- *less_hidden*: it takes no longer than before, but less of it is under compute
- *larger_group*: the group has more members
- *slower*: it takes longer, with nothing of the above
"""

LEAST_LOSS = 0.0005
"""Share of the step time below which a loss needs no cause."""

FAR_CHANGE, HIDDEN_CHANGE, MORE, LEAST_BYTES = 0.05, 0.01, 1.05, 1e6
"""From when on a change counts: of the far share, of the hidden share, of times and bytes, in bytes."""

_I32, _I64, _F64, _STR = pl.Int32(), pl.Int64(), pl.Float64(), pl.String()


def _known(doc: str, unit: str | None = None, dtype: pl.DataType = _F64) -> Column:
    return Column(dtype, doc, unit, nullable=True)


_FACTS = {
    "size": _known("members of the group", dtype=_I32),
    "dur_ns": _known("durations of the ops, waiting included", "ns"),
    "hidden_ratio": _known("share of that under compute"),
    "sent_bytes": _known("bytes sent to other ranks", "bytes"),
    "far_ratio": _known("share of them that leaves the scale-up domain"),
}
RESULT = Table(
    "scaling_axes",
    "Communication along each axis in two runs, per window, and why it costs more in the larger one.",
    {
        "run": Column(_STR, "name of the run"),
        "base_run": Column(_STR, "run it is compared with"),
        "axis": Column(pl.Enum(AXES), "parallelism axis"),
        "loss_ns": Column(_I64, "exposed time beyond the ideal while no other op communicates", "ns"),
        "shared_loss_ns": Column(
            _I64,
            "the same of time shared with other ops; stands in the row of each axis that shares it",
            "ns",
        ),
        "loss_ratio": _known("both over the step time"),
        "cause": _known("why; null without a loss worth naming", dtype=pl.Enum(CAUSES)),
        **{f"base_{name}": column for name, column in _FACTS.items()},
        **_FACTS,
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
    joined = _lost(losses)
    for prefix, one in (("base_", base), ("", size)):
        facts = _facts(one)
        joined = joined.join(
            facts.rename({name: f"{prefix}{name}" for name in facts.columns if name != "axis"}),
            on="axis",
            how="left",
        )
    rows = RESULT.frame(joined.with_columns(cause=_cause(work)))
    return rows.sort(pl.col("loss_ns") + pl.col("shared_loss_ns"), "axis", descending=[True, False])


def _lost(losses: pl.DataFrame) -> pl.DataFrame:
    """Loss of each axis, alone and shared; and the waiting in it, ``wait_ns``."""
    alone = pl.col("part") == "comm"
    ns, ratio = pl.col("loss_ns"), pl.col("loss_ratio")
    return (
        losses.drop_nulls("axes")
        .with_columns(axis=pl.col("axes").str.split(JOINED))
        .explode("axis")
        .group_by("run", "base_run", pl.col("axis").cast(pl.Enum(AXES)))
        .agg(
            loss_ns=ns.filter(alone).sum(),
            shared_loss_ns=ns.filter(~alone).sum(),
            loss_ratio=ratio.sum(),
            wait_ns=ns.filter(pl.col("cause") == "wait").sum(),
        )
    )


def _facts(size: Size) -> pl.DataFrame:
    """``axis`` and `_FACTS` of one run, per window; an axis without any op moved nothing."""
    work = size.answers["work"].to_dicts()
    sizes = {axis: work[0][f"{axis}_size"] for axis in works.AXES} if work else {}
    known = pl.DataFrame({"axis": list(AXES)}).with_columns(
        size=pl.col("axis").replace_strict(
            sizes | {"world": size.rank_count}, default=None, return_dtype=_I32
        )
    )
    found = size.answers["collectives"].filter(pl.col("window_count") > 0)
    measured = found.select(
        "axis",
        dur_ns=pl.col("dur_ns") / pl.col("window_count"),
        hidden_ratio=pl.when(pl.col("dur_ns") > 0).then(pl.col("hidden_ns") / pl.col("dur_ns")),
        sent_bytes=pl.col("sent_bytes") / pl.col("window_count"),
        far_ratio=far_ratio(),
    )
    is_silent = ~pl.col("axis").is_in(found["axis"].implode())
    return (
        known.join(measured, on="axis", how="left")
        .with_columns(
            pl.when(is_silent).then(0.0).otherwise(name).alias(name) for name in ("dur_ns", "sent_bytes")
        )
        .with_columns(pl.col("axis").cast(pl.Enum(AXES)))
    )


def _cause(work: float) -> pl.Expr:
    """The first of `CAUSES` that holds; null values bear nothing out."""
    lost = pl.col("loss_ns") + pl.col("shared_loss_ns")
    longer = pl.col("dur_ns") > MORE * work * pl.col("base_dur_ns")
    is_sizeable = pl.col("sent_bytes") >= LEAST_BYTES
    tests = {
        "left_domain": pl.col("far_ratio") - pl.col("base_far_ratio") >= FAR_CHANGE,
        "waiting": 2 * pl.col("wait_ns") >= lost,
        "more_bytes": is_sizeable & (pl.col("sent_bytes") > MORE * pl.col("base_sent_bytes")),
        "same_bytes_for_less": is_sizeable & (pl.col("sent_bytes") > MORE * work * pl.col("base_sent_bytes")),
        "less_hidden": ~longer & (pl.col("base_hidden_ratio") - pl.col("hidden_ratio") >= HIDDEN_CHANGE),
        "larger_group": pl.col("size") > pl.col("base_size"),
        "slower": longer,
    }
    first = pl.coalesce(pl.when(test).then(pl.lit(name)) for name, test in tests.items())
    return pl.when((lost > 0) & (pl.col("loss_ratio") >= LEAST_LOSS)).then(first)
