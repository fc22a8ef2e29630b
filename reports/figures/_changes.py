"""What changed between two runs: the rows of the step, which add up to its difference."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.reports import compare as pages
from traceview.reports.figures import _differences, _theme


def table(changes: pl.DataFrame) -> pl.DataFrame:
    """``what``, ms in both runs, difference, interval and verdict of a ledger; the largest first."""
    rows = changes.filter(
        (pl.col("scope").cast(pl.String) == "ledger") & ((pl.col("a_ns") > 0) | (pl.col("b_ns") > 0))
    ).sort(-pl.col("delta_ns").abs(), maintain_order=True)
    names = pl.Series("what", [pages.name(row) for row in rows.iter_rows(named=True)], dtype=pl.String)
    columns = {"a": "A", "b": "B", "delta": "Δ", "low": "low", "high": "high", "noise": "noise"}
    verdict = pl.col("verdict").cast(pl.String)
    told = verdict.is_in(["more", "less"])
    return rows.select(
        names,
        *((pl.col(f"{name}_ns") / 1e6).alias(f"{shown} ms") for name, shown in columns.items()),
        pl.col("p_value").alias("p"),
        pl.when(told).then(verdict).otherwise(pl.lit(_differences.COLOURS[-1][0])).alias("kind"),
    )


def of_ledger(changes: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of a `compare`'s changes."""
    return _differences.lying(table(changes))


def legend(changes: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Verdicts that occur, the whiskers, and their colours."""
    shown = table(changes)
    found = tuple(pair for pair in _differences.COLOURS if (shown["kind"] == pair[0]).any())
    return (*found, ("95 % interval", _theme.TEXT)) if shown["low ms"].count() else found


FIGURES = {(): of_ledger}
