"""Results as one JSON object: stable keys, ns and ratios as they are, null for what is not known."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

VERSION = 1
"""Raised when a key is renamed or removed; new keys may come at any time."""


def document(
    command: str,
    *,
    inputs: Sequence[str],
    runs: Sequence[Mapping[str, Any]],
    diagnostics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
) -> str:
    """The text of one object; plain ASCII, so no terminal or locale can spoil it.

    Args:
        command: Name of the command, part of the schema's name.
        inputs: Places as the user gave them.
        runs: One object per run.
        diagnostics: Diagnostics of all runs.
        tables: Result tables by key.
    """
    content = {
        "schema": f"traceview/{command}/{VERSION}",
        "inputs": list(inputs),
        "runs": [dict(run) for run in runs],
        "diagnostics": _rows(diagnostics),
        **{name: _rows(table) for name, table in tables.items()},
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    return [{name: _value(value) for name, value in row.items()} for row in table.iter_rows(named=True)]


def _value(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
