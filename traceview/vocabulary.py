"""Annotation name → meaning: which step, layer, microbatch, phase or part of a layer it marks.

The knowledge is ``data/ranges.toml``. A name no rule knows is kind ``other`` and keeps its whole name.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import polars as pl

from traceview.rules import Field, RuleTable
from traceview.schema import PHASES, RANGES

KINDS = ("step", "layer", "phase", "moe_part", "schedule", "comm", "other")
"""What an annotation marks, as in `RANGES`."""

FIELDS = {"kind": Field(KINDS, required=True), "phase": Field(PHASES), "part": Field(()), "base": Field()}
"""Payload of an annotation rule; the legal parts are listed in the file."""

_NUMBERS = ("step", "layer", "microbatch", "stage", "tokens", "experts")
_MEANING = ("name", "kind", *_NUMBERS, "phase", "part")


@cache
def range_rules() -> RuleTable:
    """The rules that come with traceview."""
    return RuleTable.load(files("traceview.data") / "ranges.toml", FIELDS)


def parse(names: pl.Series) -> pl.DataFrame:
    """What annotations of these names mark.

    Returns:
        One row per distinct name: ``raw_name`` (of its own dtype), and ``name, kind, step, layer,
        microbatch, stage, tokens, experts, phase, part``, typed as in `RANGES`; a number too large for its
        column is null.
    """
    matched = range_rules().match(names)
    named = pl.concat_str("base", "tail", ignore_nulls=True)
    bare = pl.when(pl.col("base").is_null() & pl.col("tail").is_null()).then(pl.col("name").cast(pl.String))
    # the group named like a phase says so by having taken part in the match
    marked = [pl.when(pl.col(phase).is_not_null()).then(pl.lit(phase)) for phase in PHASES]
    return matched.select(
        pl.col("name").alias("raw_name"),
        bare.otherwise(named).alias("name"),
        pl.col("kind").fill_null("other"),
        *_NUMBERS,
        pl.coalesce(*marked, "phase").alias("phase"),
        "part",
    ).with_columns(pl.col(name).cast(RANGES.columns[name].dtype, strict=False) for name in _MEANING)
