"""One result table as CSV or Markdown: the same columns and values as JSON, one header."""

from __future__ import annotations

import html

import polars as pl
import polars.selectors as cs

from traceview.reports.printable import printable


def csv(table: pl.DataFrame) -> str:
    """``table`` as CSV; values as they are, quoted where needed, empty for null."""
    return _flat(table).write_csv()


def markdown(table: pl.DataFrame) -> str:
    """``table`` as a Markdown table; numbers right-aligned, empty for null."""
    flat = _flat(table)
    rules = ["---:" if dtype.is_numeric() else "---" for dtype in flat.dtypes]
    body = [[_cell(value) for value in row] for row in flat.iter_rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in (flat.columns, rules, *body))


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Lists as text, and null instead of the floats that are no number."""
    finite = pl.when(cs.float().is_finite()).then(cs.float())
    lists = cs.list().cast(pl.List(pl.String)).list.join(";")
    return table.with_columns(finite.name.keep(), lists.name.keep())


def _cell(value: object) -> str:
    if value is None:
        return ""
    # an unescaped <int> would vanish from the rendered table, and a | would end the cell
    return html.escape(printable(str(value)), quote=False).replace("\\", "\\\\").replace("|", "\\|")
