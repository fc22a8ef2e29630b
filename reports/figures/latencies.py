"""Distributions of durations: what share of exchanges takes no longer than so many ms."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import polars as pl

from traceview.analyzers._latency_table import NONE
from traceview.reports.figures import _theme

KEYS = ("collective", "role", "phase")
MEASURES = ("duration", "waiting", "transfer")
_COLUMNS = dict(zip(MEASURES, ("dur_ns", "wait_ns", "transfer_ns"), strict=True))
_MOST = len(_theme.OKABE_ITO)


def curves(rows: pl.DataFrame) -> pl.DataFrame:
    """``kind, share %`` and the `MEASURES` in ms, of a `latencies`; the kinds with most ops."""
    texts = [pl.when(pl.col(key) != NONE).then(pl.col(key)) for key in KEYS]
    kind = pl.concat_str(texts, separator=" ", ignore_nulls=True)
    named = rows.with_columns(kind=kind).sort(-pl.col("op_count"), "kind", "quantile")
    kept = named["kind"].unique(maintain_order=True).head(_MOST)
    return named.filter(pl.col("kind").is_in(kept.implode())).select(
        "kind",
        (100 * pl.col("quantile")).alias("share %"),
        *((pl.col(column) / 1e6).alias(f"{name} ms") for name, column in _COLUMNS.items()),
    )


def legend(rows: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Kinds and their colours."""
    kinds = curves(rows)["kind"].unique(maintain_order=True)
    return tuple(zip(kinds, _theme.OKABE_ITO[: len(kinds)], strict=True))


def by_kind(rows: pl.DataFrame, measure: str = "duration") -> Any:  # noqa: ANN401 - an hv.Overlay
    """Cumulative distributions of one of `MEASURES`, of a `latencies` by collective, role and phase."""
    table, column = curves(rows), f"{measure} ms"
    drawn = [
        hv.Curve(_theme.arrays(part), kdims=[column], vdims=["share %"]).opts(
            color=colour,
            line_width=2,
            tools=["hover"],
            hover_tooltips=[
                ("kind", _theme.label(kind)),
                (measure, f"@{{{column}}}{{0.000}} ms"),
                ("no longer", "@{share %}{0.0} %"),
            ],
        )
        for kind, colour in legend(rows)
        if (part := table.filter(pl.col("kind") == kind).drop_nulls(column)).height
    ]
    return _theme.styled(hv.Overlay(drawn), xlabel=f"{measure}, ms", ylabel="% of ops", ylim=(0, 101))


FIGURES = {KEYS: by_kind}
