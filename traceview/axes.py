"""Process group → parallelism axis: on whose behalf a collective runs.

The knowledge is ``data/axes.toml``. With expert parallelism folded into the attention grid a rank has two
coordinate systems (tp, cp, dp, pp and etp, ep, edp, pp), so the group's own words decide, never its size
alone.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TypeVar

import polars as pl

from traceview.rules import Field, RuleTable
from traceview.schema import AXES, GROUPS

FIELDS = {"axis": Field(AXES, required=True)}
"""Payload of an axis rule."""

_SILENT = r"^(?:|\d+|undefined|default_pg)$"
"""Descriptions that say nothing: PyTorch's defaults and running numbers."""

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


@cache
def axis_rules() -> RuleTable:
    """The rules that come with traceview."""
    return RuleTable.load(files("traceview.data") / "axes.toml", FIELDS)


def axis_of(
    desc: str | None, name: str | None = None, *, size: int | None = None, world_size: int | None = None
) -> str:
    """The axis of one group; see `with_axis`."""
    schema = {"desc": pl.String, "name": pl.String, "size": pl.Int64}
    group = pl.DataFrame({"desc": [desc], "name": [name], "size": [size]}, schema=schema)
    axis: str = with_axis(group, desc="desc", name="name", size="size", world_size=world_size)["axis"].item()
    return axis


def with_axis(frame: Frame, *, desc: str, name: str, size: str, world_size: int | None) -> Frame:
    """``frame`` plus ``axis``, replacing the one it had.

    The description decides; one that says nothing leaves it to the name. A group of which neither says
    anything is ``world`` when it has all ranks of the job, and otherwise ``unknown``.

    Args:
        frame: One row per group or per use of one; row order is kept.
        desc: Column of descriptions (``EXPERT_MODEL_PARALLEL_GROUP``, ``mesh_ep``, ``undefined``).
        name: Column of names (often running numbers).
        size: Column of member counts.
        world_size: Ranks of the job, where known.
    """
    bare = frame.lazy().drop("axis", strict=False)
    keys = [desc, name, size]
    distinct = bare.select(keys).unique().collect()
    silent = pl.col(desc).cast(pl.String).fill_null("").str.contains(_SILENT)
    whole_world = pl.when(pl.col(size) == pl.lit(world_size, pl.Int64)).then(pl.lit("world"))
    lookup = distinct.with_columns(
        pl.when(~silent)
        .then(pl.coalesce(_said(distinct[desc]), pl.lit("unknown")))
        .otherwise(pl.coalesce(_said(distinct[name]), whole_world, pl.lit("unknown")))
        .cast(GROUPS.columns["axis"].dtype)
        .alias("axis")
    )
    joined = bare.join(lookup.lazy(), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined.collect() if isinstance(frame, pl.DataFrame) else joined


def _said(words: pl.Series) -> pl.Series:
    """The axis each word names, null where no rule knows it."""
    axis_of_word = axis_rules().match(words).select("name", "axis")
    named = words.alias("name").to_frame().join(axis_of_word, on="name", how="left", maintain_order="left")
    return named["axis"]
