"""Ratios of sums, null where there is nothing to be a share of."""

from __future__ import annotations

import polars as pl


def ratio(part: str | pl.Expr, whole: str | pl.Expr) -> pl.Expr:
    """``part / whole``; null where ``whole`` is 0 or unknown. Names are columns."""
    over, under = (pl.col(name) if isinstance(name, str) else name for name in (part, whole))
    return pl.when(under > 0).then(over / under)
