"""What a metric means: definition, formula, method, unit, where it appears, what it needs, who says so."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview import metrics
from traceview.errors import UsageError
from traceview.reports import layout, notebook, outputs
from traceview.reports.layout import Facts, Grid, Note
from traceview.reports.outputs import COLUMNS, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from traceview.metrics import Metric
    from traceview.reports.layout import Block

NEAREST = 5
LETTERS = 80


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about one name.

    Attributes:
        name: The column asked for.
        metric: The metric it shows; None for a column whose one line says it all.
        columns: `COLUMNS`, one row per place where the column of that name stands.
    """

    name: str
    metric: Metric | None
    columns: pl.DataFrame

    def blocks(self) -> list[Block]:
        """The page."""
        meanings = self.columns["meaning"].unique(maintain_order=True).to_list()
        units = self.columns["unit"].drop_nulls().unique(maintain_order=True).to_list()
        pairs = [("means", meanings[0]), ("unit", ", ".join(units) or _unit_of(self.name))]
        if self.metric is not None:
            also = [column for column in self.metric.columns if column != self.name]
            pairs += [(field, getattr(self.metric, field)) for field in ("formula", "method", "evidence")]
            pairs += [("pitfalls", self.metric.pitfalls), ("source", self.metric.source)]
            pairs += [("see also", ", ".join(also))] if also else []
        title = f"{self.name}: {self.metric.title}" if self.metric else self.name
        rows = self.columns.select("result", "table", "meaning").rows()
        return [
            Facts(tuple(pairs), title),
            Grid("appears in", ("result", "table", "what it is there"), tuple(rows), label_count=3),
        ]

    def __repr__(self) -> str:
        return f"<{self.name}: {self.columns['meaning'][0]}>"

    def __str__(self) -> str:
        return layout.plain(self.blocks())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook.blocks(self.blocks())


def explain(name: str) -> Explanation:
    """What the column ``name`` means; what people call a metric is understood too.

    Raises:
        UsageError: There is no such column; the message has the nearest names.
    """
    known = columns()
    words = metrics.by_word()
    wanted = name.strip()
    column = words.get(wanted.lower().replace("_", " "), wanted)
    found = known.filter(pl.col("column") == column)
    if found.is_empty():
        raise UsageError(_unknown(wanted, [*known["column"].unique(maintain_order=True), *words]))
    return Explanation(column, metrics.by_column().get(column), found)


def columns() -> pl.DataFrame:
    """`COLUMNS` of every command, by column, result and table."""
    rows = [
        {"column": name, "result": name_of_result, "table": key, "meaning": column.doc, "unit": column.unit}
        for name_of_result, tables in sorted(outputs.tables().items())
        for key, table in tables.items()
        for name, column in table.columns.items()
    ]
    return COLUMNS.frame(rows).sort("column", maintain_order=True)


def overview() -> list[Block]:
    """All metrics in a line each."""
    rows = tuple((metric.columns[0], metric.title) for metric in metrics.metrics())
    return [
        Grid("", ("metric", "what it is"), rows, label_count=2),
        Note("traceview explain METRIC says more, of these and of every other column of a result."),
    ]


def table(found: Iterable[Metric]) -> pl.DataFrame:
    """``found`` as `METRICS`."""
    return METRICS.conform(pl.DataFrame([asdict(metric) for metric in found], schema=METRICS.schema()))


def _unknown(name: str, names: Sequence[str]) -> str:
    wanted = name[:LETTERS].lower()
    near = dict.fromkeys(
        [
            *difflib.get_close_matches(wanted, names, n=NEAREST, cutoff=0.5),
            *(known for known in names if wanted and wanted in known),
        ]
    )
    listed = ", ".join(list(near)[:NEAREST]) or "none"
    return (
        f"no result has a column '{name[:LETTERS]}'; nearest: {listed}.\n"
        "Hint: traceview explain, without a name, lists the metrics."
    )


def _unit_of(name: str) -> str:
    """The unit that a name without one stands for, by the rules of the tables."""
    if name.endswith("_ratio"):
        return "ratio (1 is the whole, not per cent)"
    return "count" if name.endswith("_count") else "none"
