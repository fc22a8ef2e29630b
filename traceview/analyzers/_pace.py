"""How fast each rank computes: time per kernel family against the ranks that did the same work."""

from __future__ import annotations

import polars as pl

from traceview.schema import Column

FIXED_WORK = ("gemm", "attention", "norm", "optimizer")
"""Families whose work does not depend on how tokens were routed."""

ENOUGH_RANKS = 3
"""A median over fewer ranks cannot tell which of them is off."""

_LISTED = pl.List(pl.Int64())
COLUMNS = {
    "families": Column(pl.List(pl.String()), "compute families of the window", nullable=True),
    "families_ns": Column(_LISTED, "their summed durations", "ns", nullable=True),
    "families_ops": Column(_LISTED, "their ops", nullable=True),
    "families_blocks": Column(_LISTED, "their thread blocks", nullable=True),
}


def with_families(looked_at: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Rows of windows plus `COLUMNS`: the compute launched in each step, or all of it without steps."""
    family = pl.col("category").cast(pl.String)
    compute = ops.filter(pl.col("class") == "compute")
    if looked_at["step"].null_count():
        compute = compute.with_columns(step=pl.lit(None, pl.Int64))
    sums = compute.group_by("device", "step", families=family).agg(
        families_ns=pl.col("dur_ns").sum(), families_ops=pl.len(), families_blocks=pl.col("grid_blocks").sum()
    )
    listed = sums.sort("families").group_by("device", "step").agg(*COLUMNS)
    return looked_at.join(listed, on=["device", "step"], how="left", nulls_equal=True, maintain_order="left")


def paces(windows: pl.DataFrame) -> pl.DataFrame:
    """``rank, family, pace``: time on fixed work over the median of the ranks that did the same work.

    The same work is the same step, family, number of ops and of thread blocks; 1.2 is 20 % slower.

    Args:
        windows: Rows of windows of all ranks, with `COLUMNS`.
    """
    same = ("step", "families", "families_ops", "families_blocks")
    fixed = (
        windows.select("rank", "step", *COLUMNS)
        .explode(*COLUMNS)
        .filter(pl.col("families").is_in(FIXED_WORK) & (pl.col("families_ns") > 0))
    )
    comparable = fixed.filter(pl.col("rank").n_unique().over(same) >= ENOUGH_RANKS)
    ratio = pl.col("families_ns") / pl.col("families_ns").median().over(same)
    return (
        comparable.with_columns(ratio=ratio)
        .group_by("rank", family="families")
        .agg(pace=pl.col("ratio").median())
    )


def on_fixed_work(paces: pl.DataFrame) -> pl.DataFrame:
    """``rank, pace``: the median over families."""
    return paces.group_by("rank").agg(pl.col("pace").median())
