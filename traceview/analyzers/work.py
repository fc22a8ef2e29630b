"""How much work a rank does in a step, as far as a trace shows it, and among how many ranks.

A trace names no tokens. What it holds instead grows with them: microbatches, matrix products and their
thread blocks, and the bytes that a rank puts into its dispatches. Two runs in which all of that is equal
work on the same number of tokens per rank; a persistent kernel has the same blocks whatever it multiplies,
so equal blocks prove less than unequal ones. What the optimizer does is left out: its share shrinks as
replicas grow in number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._windows import windows
from traceview.contracts import Analysis, Options
from traceview.schema import GROUPS, Column, Table

if TYPE_CHECKING:
    from traceview.trace import Trace

MATRIX_CATEGORIES = ("gemm", "grouped_gemm", "attention")
AXES = ("ep", "tp", "cp", "pp", "dp", "edp")
"""Axes whose sizes are told, experts first."""

_NO_PAYLOAD = ("local_epilogue", "barrier", "metadata")
_NS = pl.Int64()
MEASURES = ("microbatch_count", "layer_count", "matrix_count", "matrix_blocks", "dispatched_bytes")


def _measured(doc: str, unit: str | None = None) -> Column:
    return Column(pl.Float64(), doc, unit, nullable=True)


RESULT = Table(
    "work",
    "Work of one window (rank × device × step): means over the windows in the row; null where unknown.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are merged", nullable=True),
        "step": Column(pl.Int64(), "step; null for the whole window or when steps are merged", nullable=True),
        "window_count": Column(_NS, "windows looked at"),
        "microbatch_count": _measured("microbatches seen"),
        "layer_count": _measured("layers seen"),
        "matrix_count": _measured("matrix products and attention kernels outside of the optimizer"),
        "matrix_blocks": _measured("their thread blocks; null unless all are known"),
        "dispatched_bytes": _measured(
            "bytes put into forward dispatches, the own slice included; null unless all are known", "bytes"
        ),
        **{
            f"{axis}_size": Column(
                pl.Int32(), f"largest {axis} group; null where none is known", nullable=True
            )
            for axis in AXES
        },
    },
)
PARTIAL = Table(
    "work_partial",
    "One row per device and window of a rank.",
    {
        "rank": RESULT.columns["rank"],
        "device": Column(pl.Int32(), "device"),
        "step": RESULT.columns["step"],
        **{name: RESULT.columns[name] for name in (*MEASURES, *(f"{axis}_size" for axis in AXES))},
    },
)
GRAINS = {"rank": ("rank",), "step": ("step",)}


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    frames = windows(trace, options).select("rank", "device", "step")
    is_stepped = frames["step"].null_count() == 0
    keys = ["device", "step"] if is_stepped else ["device"]
    ops, comm = trace.table("ops"), trace.table("collectives")
    counted = frames
    for found in (_of_ops(ops, keys), _of_dispatches(comm, keys)):
        counted = counted.join(found, on=keys, how="left", maintain_order="left")
    return PARTIAL.frame(counted.with_columns(**_sizes(trace)))


def _of_ops(ops: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    is_update = (pl.col("phase").cast(pl.String) == "optimizer").fill_null(value=False)
    matrix = pl.col("category").cast(pl.String).is_in(MATRIX_CATEGORIES)
    blocks = pl.col("grid_blocks").filter(matrix)
    number = pl.Float64()
    return (
        ops.filter(~is_update)
        .group_by(keys)
        .agg(
            microbatch_count=_distinct("microbatch"),
            layer_count=_distinct("layer"),
            matrix_count=matrix.sum().cast(number),
            matrix_blocks=pl.when((blocks.len() > 0) & (blocks.null_count() == 0)).then(
                blocks.sum().cast(number)
            ),
        )
    )


def _distinct(name: str) -> pl.Expr:
    """How many different values there are; null for none."""
    values = pl.col(name).drop_nulls().n_unique()
    return pl.when(values > 0).then(values.cast(pl.Float64))


def _of_dispatches(comm: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    forward = (pl.col("phase").cast(pl.String) == "forward").fill_null(value=True)
    moved = ~pl.col("subrole").cast(pl.String).is_in(_NO_PAYLOAD).fill_null(value=False)
    sent = comm.filter((pl.col("role").cast(pl.String) == "dispatch") & forward & moved)
    known = pl.when(pl.col("in_bytes").null_count() == 0).then(pl.col("in_bytes").sum().cast(pl.Float64))
    return sent.group_by(keys).agg(dispatched_bytes=known)


def _sizes(trace: Trace) -> dict[str, pl.Expr]:
    """Size of the largest group along each axis."""
    listed = [trace.tables.get("groups", GROUPS.empty()), trace.table("collectives")]
    groups = pl.concat([frame.select(pl.col("axis").cast(pl.String), "group_size") for frame in listed])
    largest = dict(groups.drop_nulls().group_by("axis").agg(pl.col("group_size").max()).rows())
    return {f"{axis}_size": pl.lit(largest.get(axis), pl.Int32()) for axis in AXES}


def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT` by ``options.by``."""
    keys = ["everything", *options.columns(GRAINS)]

    def mean(name: str) -> pl.Expr:
        return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).mean()).alias(name)

    # in order, so that the last digit of a mean is the same each time
    grouped = (
        partials.with_columns(everything=pl.lit(0))
        .sort("rank", "device", "step")
        .group_by(keys, maintain_order=True)
    )
    sizes = [pl.col(f"{axis}_size").max() for axis in AXES]
    rows = grouped.agg(*map(mean, MEASURES), *sizes, window_count=pl.len())
    return RESULT.frame(rows).sort("rank", "step")


ANALYSIS = Analysis(
    name="work",
    question="How much work does a rank do in a step, and among how many ranks?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)
