"""Each kind of communication: hidden under compute, exposed alone, exposed beside other communication."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.analyzers.overlap import NONE, SEVERAL
from traceview.reports.figures import _bars, _theme

PARTS = (
    ("hidden", _theme.OKABE_ITO[1]),
    ("exposed alone", _theme.OKABE_ITO[2]),
    ("exposed beside other communication", _theme.OKABE_ITO[4]),
)
KEYS = ("axis", "collective", "role", "phase", "layer")
MOST = 16
"""Kinds drawn; those that cost more come first."""


def parts(overlap: pl.DataFrame) -> pl.DataFrame:
    """``kind`` and the `PARTS` of a mean window in ms, of an `overlap`; the costliest first."""
    texts = [pl.when(~pl.col(key).is_in([NONE])).then(pl.col(key)) for key in KEYS]
    hidden, exposed, alone = (pl.col(f"{name}_ns") for name in ("hidden", "exposed", "exclusive"))
    per = pl.col("window_count") * 1e6
    named = (
        (time / per).alias(f"{name} ms")
        for (name, _), time in zip(PARTS, (hidden, alone, exposed - alone), strict=True)
    )
    is_several = pl.any_horizontal(pl.col(KEYS) == SEVERAL).fill_null(value=False)
    order = (-pl.col("exclusive_ns"), -pl.col("comm_ns"), *KEYS)
    kind = pl.concat_str(texts, separator=" ", ignore_nulls=True).alias("kind")
    return overlap.filter(~is_several).sort(order).select(kind, *named)


def by_kind(overlap: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of an `overlap` by kind."""
    return _bars.lying(parts(overlap).head(MOST), PARTS, key="kind")


FIGURES = {("axis",): by_kind, ("axis", "collective", "role"): by_kind, ("axis", "phase"): by_kind}
