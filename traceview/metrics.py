"""What the headline metrics mean beyond one line: formula, method, evidence, pitfalls, source.

The knowledge is ``data/metrics.toml``; what a column is in which table, and its unit, stands in the tables.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, which several columns may show.

    Attributes:
        title: What it is called.
        columns: Columns of result tables that show it, the main one first.
        words: What else people call it, in lower case.
        formula: How it is computed.
        method: By which rules.
        evidence: What a trace has to hold.
        pitfalls: What it does not say.
        source: Where the definition comes from.
    """

    title: str
    columns: tuple[str, ...]
    words: tuple[str, ...]
    formula: str
    method: str
    evidence: str
    pitfalls: str
    source: str


@cache
def metrics() -> tuple[Metric, ...]:
    """All metrics, in the order of the file."""
    text = (files("traceview.data") / "metrics.toml").read_text(encoding="utf-8")
    return tuple(_metric(entry) for entry in tomllib.loads(text)["metric"])


def _metric(entry: dict[str, Any]) -> Metric:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Metric(**fields)


@cache
def by_column() -> dict[str, Metric]:
    """The metric that each explained column shows."""
    return {column: metric for metric in metrics() for column in metric.columns}


@cache
def by_word() -> dict[str, str]:
    """Main column of every metric, by what people call it."""
    return {word: metric.columns[0] for metric in metrics() for word in (*metric.words, metric.title.lower())}
