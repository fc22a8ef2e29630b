"""What differs between two runs before any time is measured: size, groups, devices, versions, evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.recipe import AXES as AXES_SAID
from traceview.schema import AXES, ROLES, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from traceview.comparisons._alignment import Side
    from traceview.recipe import Recipe

_STR = pl.String()

CONFIGURATION = Table(
    "configuration",
    "One row per fact about either run.",
    {
        "fact": Column(_STR, "what is told"),
        "a": Column(_STR, "of the first run; null if unknown", nullable=True),
        "b": Column(_STR, "of the second run; null if unknown", nullable=True),
        "is_different": Column(pl.Boolean(), "whether they differ; null if one is unknown", nullable=True),
    },
)


def configuration(before: Side, after: Side) -> pl.DataFrame:
    """`CONFIGURATION` of two runs; what neither knows is left out."""
    a, b = _facts(before), _facts(after)
    names = list(dict.fromkeys([*a, *b]))
    rows = [(name, a.get(name), b.get(name)) for name in names if a.get(name) or b.get(name)]
    found = pl.DataFrame(rows, schema={"fact": _STR, "a": _STR, "b": _STR}, orient="row")
    return CONFIGURATION.frame(found.with_columns(is_different=pl.col("a") != pl.col("b")))


def _facts(side: Side) -> Mapping[str, str | None]:
    run = side.run
    facts = [trace.facts for trace in run.traces]
    hosts = {fact.host for fact in facts} - {None}
    versions = sorted({name for fact in facts for name in fact.versions})
    used = side.steps["step"].drop_nulls().to_list()
    return {
        "world size": None if run.world_size is None else str(run.world_size),
        "ranks read": f"{len(run.ranks)}: {units.numbers(run.ranks)}",
        "hosts": str(len(hosts)) if hosts else None,
        "device": _listed(fact.device_name for fact in facts),
        "format": _listed(fact.format for fact in facts),
        **{name: _listed(fact.versions.get(name) for fact in facts) for name in versions},
        **_recipe(run.recipe),
        "steps compared": units.numbers(used) if used else "none: the whole window",
        **{f"{axis} group size": _sizes(side.groups, axis) for axis in AXES if axis != "unknown"},
        **{f"{role} dtype": _dtypes(side.groups, role) for role in ROLES},
    }


def _recipe(recipe: Recipe) -> Mapping[str, str | None]:
    """What the owner of a job says of it beside the traces."""
    counts = {
        "sequence length": recipe.seq_len,
        "sequences per step": recipe.global_batch_size,
        "tokens per step": recipe.tokens_per_step,
        "GPUs": recipe.gpus,
        **{axis: recipe.parallel.get(axis) for axis in AXES_SAID},
    }
    said = {
        "model": recipe.model.name if recipe.model else None,
        "precision": recipe.precision,
        **{name: None if count is None else f"{count:,}" for name, count in counts.items()},
    }
    return {f"{name} (run.toml)": value for name, value in said.items()}


def _sizes(groups: pl.DataFrame, axis: str) -> str | None:
    sizes = groups.filter(pl.col("axis").cast(pl.String) == axis)["group_size"].drop_nulls().unique().sort()
    return ", ".join(map(str, sizes)) or None


def _dtypes(groups: pl.DataFrame, role: str) -> str | None:
    return _listed(groups.filter(pl.col("role").cast(pl.String) == role)["dtype"])


def _listed(values: Iterable[str | None]) -> str | None:
    """Distinct known values in order."""
    return ", ".join(sorted({value for value in values if value})) or None
