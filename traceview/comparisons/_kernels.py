"""Kernels that one of two runs has and the other has not, and what the others cost in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.comparisons._alignment import Side

CHANGES = ("added", "removed", "kept")


def _per_step(what: str, unit: str | None = None) -> Column:
    return Column(pl.Float64(), f"{what}, per rank and step", unit)


KERNELS = Table(
    "kernels",
    "One row per kernel of either run, under names without the counters that compilers append.",
    {
        "family": Column(pl.String(), "what it does: category, or collective"),
        "name": Column(pl.String(), "name, less a generated kernel's number"),
        "change": Column(pl.Enum(CHANGES), "only in the second run, only in the first, or in both"),
        "a_count": _per_step("launches in the first run"),
        "b_count": _per_step("launches in the second run"),
        "a_ns": _per_step("summed durations in the first run", "ns"),
        "b_ns": _per_step("summed durations in the second run", "ns"),
        "delta_ns": _per_step("second less first", "ns"),
    },
)


def kernels(before: Side, after: Side) -> pl.DataFrame:
    """`KERNELS` of two runs, the largest differences first."""
    keys = ["family", "name"]
    joined = _side(before, "a").join(_side(after, "b"), on=keys, how="full", coalesce=True)
    change = (
        pl.when(pl.col("a_count").is_null())
        .then(pl.lit("added"))
        .when(pl.col("b_count").is_null())
        .then(pl.lit("removed"))
        .otherwise(pl.lit("kept"))
    )
    # a kernel that does not occur takes no time: that is known
    filled = joined.with_columns(change=change).with_columns(pl.col("^[ab]_(count|ns)$").fill_null(0.0))
    rows = KERNELS.conform(filled.with_columns(delta_ns=pl.col("b_ns") - pl.col("a_ns")))
    return rows.sort(-pl.col("delta_ns").abs(), *keys)


def _side(side: Side, prefix: str) -> pl.DataFrame:
    each = pl.col("window_count").first()
    return (
        side.kernels.with_columns(name=_normalised(pl.col("name")))
        .group_by("family", "name")
        .agg(
            (pl.col("op_count").sum() / each).alias(f"{prefix}_count"),
            (pl.col("busy_ns").sum() / each).alias(f"{prefix}_ns"),
        )
    )


def _normalised(name: pl.Expr) -> pl.Expr:
    """Names that stay the same from one compilation to the next.

    Inductor and XLA number the kernels of a program (``triton_poi_fused_add_7``, ``loop_add_fusion.12``):
    the number says only how many came before.
    """
    is_generated = name.str.contains(r"^triton_|fusion(?:[._]\d+)+$")
    bare = name.str.replace(r"(?:[._]\d+)+$", "")
    return pl.when(is_generated).then(bare).otherwise(name).str.replace_all(r"\s+", " ")
