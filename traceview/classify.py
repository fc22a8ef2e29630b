"""Kernel name → category, collective, role: what each piece of device work is.

The knowledge is ``data/kernels.toml``; a user's rules are tried before it. What no rule names is
category ``other``, counted as compute and reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import polars as pl

from traceview.rules import RULE_ID, Field, RuleTable
from traceview.schema import CATEGORIES, CLASS_OF_CATEGORY, COLLECTIVES, OPS, ROLES, SUBROLES

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {
    "category": Field(CATEGORIES, required=True),
    "collective": Field(COLLECTIVES),
    "role": Field(ROLES),
    "subrole": Field(SUBROLES),
}
"""Payload of a kernel rule."""

VERDICT = ("category", "class", "collective", "role", "subrole", RULE_ID)
"""Columns that `Classifier.annotate` adds, typed as in `OPS`."""

CATEGORY_OF_KIND_RULE = {"kind-peer-copy": "p2p_copy", "kind-copy": "memory", "kind-graph": "graph"}
"""Category by the rule id given to device work that is no kernel; a copy between peers is communication."""

UNMATCHED_RULE = "unmatched"
"""``rule_id`` of kernels that no rule names."""

_TOP_NAMES = 10
_KEYS = ["name", "kind", "copy_kind"]

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


class Unmatched(NamedTuple):
    """Kernels that no rule names: their share of kernel time (0..1), and the longest-running names."""

    share: float
    names: list[str]


@cache
def kernel_rules() -> RuleTable:
    """The rules that come with traceview."""
    return RuleTable.load(files("traceview.data") / "kernels.toml", FIELDS)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Names device work by the first rule that fits its name."""

    rules: RuleTable

    @classmethod
    def default(cls) -> Self:
        """The rules that come with traceview."""
        return cls(kernel_rules())

    @classmethod
    def with_user_rules(cls, path: Path, base: RuleTable | None = None) -> Self:
        """The user's rules, tried before ``base``; one with the id of a rule there replaces it.

        Args:
            path: The user's file.
            base: The rules that come with traceview, unless others are given.

        Raises:
            RuleError: The file cannot be read, or a rule in it cannot be used.
        """
        return cls(RuleTable.load(path, FIELDS).before(base or kernel_rules()))

    @property
    def digest(self) -> str:
        """Short hash of the effective rules; a cache built with other rules is stale."""
        return self.rules.digest

    def classify(self, names: pl.Series) -> pl.DataFrame:
        """What kernels of these names are.

        Returns:
            One row per distinct name: ``name`` (of its own dtype), ``category, collective, role, subrole,
            rule_id``, typed as in `OPS`.
        """
        matched = self.rules.match(names).with_columns(
            pl.col("category").fill_null("other"), pl.col(RULE_ID).fill_null(UNMATCHED_RULE)
        )
        verdict = (column for column in VERDICT if column != "class")
        return matched.select("name", *(_typed(column) for column in verdict))

    def annotate(self, ops: Frame) -> Frame:
        """``ops`` plus the columns of `VERDICT`, replacing those it had.

        A copy or a fill is what its kind says, whatever its name; a copy between peers is communication.

        Args:
            ops: At least ``name, kind, copy_kind`` of `OPS`; row order is kept.
        """
        bare = ops.lazy().drop(VERDICT, strict=False)
        distinct = bare.select(_KEYS).unique().collect()
        is_kernel = pl.col("kind") == "kernel"
        kernels = distinct.filter(is_kernel)
        named = kernels.join(self.classify(kernels["name"]), on="name", how="left")
        rest = distinct.filter(~is_kernel).with_columns(_rule_of_kind()).with_columns(_category_of_kind())
        category = pl.col("category").cast(pl.String)
        lookup = pl.concat([named, rest], how="diagonal").with_columns(
            category.replace_strict(CLASS_OF_CATEGORY, return_dtype=pl.String).alias("class")
        )
        typed = lookup.select(*_KEYS, *(_typed(column) for column in VERDICT)).lazy()
        joined = bare.join(typed, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")
        return joined.collect() if isinstance(ops, pl.DataFrame) else joined


def unmatched(ops: pl.DataFrame) -> Unmatched:
    """How much kernel time has names that no rule knows; a share of 0 where there is no kernel time.

    Args:
        ops: Annotated device ops with ``name, kind, category, dur_ns``.
    """
    kernels = ops.lazy().filter(pl.col("kind") == "kernel")
    other = kernels.filter(pl.col("category") == "other")
    longest = other.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur_ns").sum())
    top = longest.sort(["dur_ns", "name"], descending=[True, False]).head(_TOP_NAMES).collect()
    time_ns, other_ns = (frame.select(pl.col("dur_ns").sum()).collect().item() for frame in (kernels, other))
    return Unmatched(other_ns / time_ns if time_ns else 0.0, top["name"].to_list())


def _typed(column: str) -> pl.Expr:
    return pl.col(column).cast(OPS.columns[column].dtype)


def _rule_of_kind() -> pl.Expr:
    """Rule id of device work that is no kernel."""
    peer = pl.col("copy_kind").cast(pl.String).eq_missing("PtoP")
    rule = (
        pl.when((pl.col("kind") == "memcpy") & peer)
        .then(pl.lit("kind-peer-copy"))
        .when(pl.col("kind") == "graph")
        .then(pl.lit("kind-graph"))
        .otherwise(pl.lit("kind-copy"))
    )
    return rule.cast(OPS.columns[RULE_ID].dtype).alias(RULE_ID)


def _category_of_kind() -> pl.Expr:
    """Category of device work that is no kernel."""
    dtype = OPS.columns["category"].dtype
    rule = pl.col(RULE_ID).cast(pl.String)
    return rule.replace_strict(CATEGORY_OF_KIND_RULE, return_dtype=dtype).alias("category")
