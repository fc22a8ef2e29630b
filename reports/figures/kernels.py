"""Kernels by family, and the parts of the mixture-of-experts layers: how long they keep the device busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.analyzers._moe_parts import TAXES
from traceview.reports.figures import _bars, _theme
from traceview.schema import CLASS_OF_CATEGORY

if TYPE_CHECKING:
    from collections.abc import Mapping

CLASSES = (
    ("compute", _theme.OKABE_ITO[0]),
    ("communication", _theme.OKABE_ITO[2]),
    ("fused", _theme.OKABE_ITO[4]),
    ("other", _theme.NOTHING),
)
MOE_PARTS = (("expert compute and exchange", _theme.OKABE_ITO[0]), ("tax", _theme.OKABE_ITO[3]))
UNIT, MOST = "%", 24
_NAMES = {"compute": "compute", "comm": "communication", "fused": "fused"}


def shares(kernels: pl.DataFrame) -> pl.DataFrame:
    """``family``, ms per rank and step, and `CLASSES` in % of busy time, of a `kernels` by category."""
    classes = {name: _NAMES.get(one, "other") for name, one in CLASS_OF_CATEGORY.items()}
    return _shares(kernels, "category", "family", classes, CLASSES)


def moe_shares(kernels: pl.DataFrame) -> pl.DataFrame:
    """``part``, ms per rank and step, and `MOE_PARTS` in % of busy time, of a `kernels` by moe_part."""
    known = kernels.drop_nulls("moe_part")
    names = known["moe_part"].cast(pl.String).unique().to_list()
    parts = {name: MOE_PARTS[name in TAXES][0] for name in names}
    return _shares(known, "moe_part", "part", parts, MOE_PARTS)


def _shares(
    rows: pl.DataFrame, key: str, name: str, kinds: Mapping[str, str], colours: _bars.Colours
) -> pl.DataFrame:
    """One row per value of ``key``, busiest first; its share stands in the column of its kind."""
    label = pl.col(key).cast(pl.String)
    kind = label.replace_strict(kinds, default=colours[-1][0], return_dtype=pl.String)
    share = 100 * pl.col("busy_ratio")
    return rows.sort(-pl.col("busy_ns"), key).select(
        label.alias(name),
        (pl.col("busy_ns") / pl.col("window_count") / 1e6).alias("busy ms"),
        *(pl.when(kind == one).then(share).otherwise(0.0).alias(f"{one} {UNIT}") for one, _ in colours),
    )


def by_category(kernels: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of a `kernels` by category."""
    return _bars.lying(shares(kernels).head(MOST), CLASSES, key="family", unit=UNIT)


def by_moe_part(kernels: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of a `kernels` by part of the MoE layer."""
    return _bars.lying(moe_shares(kernels).head(MOST), MOE_PARTS, key="part", unit=UNIT)


FIGURES = {("category",): by_category, ("moe_part",): by_moe_part}
