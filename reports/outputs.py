"""What the JSON of every command holds: its tables, by key.

Commands with one analysis need no line here: their ``rows`` are the result of the analysis of their name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import registry, schema, utilization
from traceview.comparisons import compare, scaling
from traceview.reports.findings import FINDINGS
from traceview.reports.inventory import GAPS, GROUPS, INVENTORY
from traceview.reports.summary import STEP_TIMES, STEPS
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCTOR = Table(
    "doctor",
    "One row per fact about this installation.",
    {
        "name": Column(pl.String(), "what it is"),
        "value": Column(pl.String(), "version, place or size; null: not found", nullable=True),
        "kind": Column(pl.String(), "version, machine, tool, cache or plugin"),
    },
)

COLUMNS = Table(
    "columns",
    "One row per place where a column stands.",
    {
        "column": Column(pl.String(), "name of the column"),
        "result": Column(pl.String(), "command, or analysis for `tv.analyze`, whose result has it"),
        "table": Column(pl.String(), "key of the table in its JSON"),
        "meaning": Column(pl.String(), "what it is there"),
        "unit": Column(pl.String(), "unit; null for counts, ratios and text", nullable=True),
    },
)
METRICS = Table(
    "metrics",
    "One row per metric.",
    {
        "title": Column(pl.String(), "what it is called"),
        "columns": Column(pl.List(pl.String()), "columns that show it, the main one first"),
        "words": Column(pl.List(pl.String()), "what else people call it"),
        "formula": Column(pl.String(), "how it is computed"),
        "method": Column(pl.String(), "by which rules"),
        "evidence": Column(pl.String(), "what a trace has to hold"),
        "pitfalls": Column(pl.String(), "what it does not say"),
        "source": Column(pl.String(), "where the definition comes from"),
    },
)

_STEPS = Table(
    "steps",
    "One row per rank and step.",
    {
        **schema.TABLES["steps"].only(*STEPS).columns,
        "used": Column(pl.Boolean(), "whether the figures describe it"),
    },
)
_GROUPS = Table(
    "groups",
    "One row per distinct process group.",
    {
        **schema.TABLES["groups"].only(*GROUPS).columns,
        "rank_count": Column(pl.UInt32(), "ranks that name it"),
    },
)


def tables() -> dict[str, Mapping[str, Table]]:
    """The tables of every command that gives JSON: by command, then by key."""
    known = {name: analysis.result for name, analysis in registry.analyses().items()}
    single: dict[str, Mapping[str, Table]] = {name: {"rows": table} for name, table in known.items()}
    totals, changes, kernels, configuration = compare.TABLES
    sizes, losses, axes = scaling.TABLES
    return single | {
        "compare": {
            "totals": totals,
            "changes": changes,
            "kernels": kernels,
            "configuration": configuration,
        },
        "doctor": {"rows": DOCTOR},
        "explain": {"rows": COLUMNS, "metrics": METRICS},
        "info": {"rows": INVENTORY, "groups": _GROUPS, "missing": GAPS},
        "kernels": {
            "rows": known["kernels"],
            "products": known["roofline"],
            "moe_parts": known["kernels"],
            "moe": known["kernels"],
            "sm_share": known["sm_share"],
            "copies": known["copies"],
        },
        "mfu": {"rows": utilization.RESULT},
        "scaling": {"rows": sizes, "losses": losses, "axes": axes, "efficiency": known["efficiency"]},
        "summary": {
            "breakdown": known["breakdown"],
            "collectives": known["overlap"],
            "findings": FINDINGS,
            "steps": _STEPS,
            "step_time": STEP_TIMES,
            "mfu": utilization.RESULT,
        },
    }
