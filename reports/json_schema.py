"""JSON Schemas (draft 2020-12) of what commands write as JSON, made from the tables they are made of.

New keys may come at any time, so none is forbidden; one that is promised is required.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.reports.json_ import VERSION
from traceview.schema import DIAGNOSTICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traceview.schema import Column, Table

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_RUN_FIELDS: dict[str, Any] = {
    "name": _TEXT,
    "ranks": {"type": "array", "items": {"type": "integer"}},
    "world_size": {"type": ["integer", "null"]},
    "formats": _TEXTS,
    "device_names": _TEXTS,
    "hosts": _TEXTS,
}
_OF_RUN = {"type": ["string", "null"], "description": "name of the run"}


def schema(command: str, tables: Mapping[str, Table]) -> dict[str, Any]:
    """The schema of what ``command`` writes.

    Args:
        command: Name of the command.
        tables: The tables of its JSON, by key.
    """
    properties = {
        "schema": {"const": f"traceview/{command}/{VERSION}"},
        "inputs": {**_TEXTS, "description": "places as the user gave them"},
        "runs": {"type": "array", "items": _object(_RUN_FIELDS)},
        "diagnostics": _rows(DIAGNOSTICS),
        **{name: _rows(table) for name, table in tables.items()},
    }
    return {
        "$schema": DIALECT,
        "title": f"traceview {command} -f json",
        **_object(properties),
    }


def report(results: Mapping[str, Table]) -> dict[str, Any]:
    """The schema of what ``traceview report --json`` writes: a table for each question in each grain.

    Args:
        results: The result tables, by analysis.
    """
    found = schema("report", {})
    # such as "alltoall by layer, rank"
    questions = {f"^{name}( by [a-z_, ]+)?$": _rows(table) for name, table in sorted(results.items())}
    return {**found, "title": "traceview report --json", "patternProperties": questions}


def _rows(table: Table) -> dict[str, Any]:
    columns = {"run": _OF_RUN} if "run" not in table.columns else {}
    properties = columns | {name: _value(column) for name, column in table.columns.items()}
    required = list(table.columns)
    return {
        "type": "array",
        "description": table.doc,
        "items": {"type": "object", "properties": properties, "required": required},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _value(column: Column) -> dict[str, Any]:
    description = f"{column.doc} [{column.unit}]" if column.unit else column.doc
    return {**_type(column.dtype, nullable=column.nullable), "description": description}


def _type(dtype: pl.DataType, *, nullable: bool) -> dict[str, Any]:
    if isinstance(dtype, pl.Enum):
        return {"enum": [*dtype.categories, *([None] if nullable else [])]}
    if isinstance(dtype, pl.List):
        inner = dtype.inner() if isinstance(dtype.inner, type) else dtype.inner
        return {"type": _nullable("array", nullable=nullable), "items": _type(inner, nullable=True)}
    return {"type": _nullable(_name(dtype), nullable=nullable)}


def _nullable(name: str, *, nullable: bool) -> str | list[str]:
    return [name, "null"] if nullable else name


def _name(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "integer"
    if dtype.is_float():
        return "number"
    return "boolean" if dtype == pl.Boolean() else "string"
