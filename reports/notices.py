"""Diagnostics of many ranks as few sentences: one per code, with how many ranks it concerns."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Notice:
    """One kind of diagnostic over all ranks.

    Attributes:
        severity: info, warning or error.
        code: Stable identifier.
        text: The sentence of the rank where it counts most.
        ranks: Ranks concerned; empty when it is about the run.
        row_count: Diagnostics rows behind it.
    """

    severity: str
    code: str
    text: str
    ranks: tuple[int, ...]
    row_count: int


def notices(diagnostics: pl.DataFrame) -> list[Notice]:
    """``diagnostics`` grouped by severity and code, the most severe first and then the most frequent."""
    grouped = (
        diagnostics.sort("count", "text", descending=[True, False])
        .group_by("severity", "code", maintain_order=True)
        .agg(
            text=pl.col("text").first(),
            ranks=pl.col("rank").drop_nulls().unique().sort(),
            row_count=pl.len(),
        )
        .sort(pl.col("severity").to_physical(), "row_count", "code", descending=[True, True, False])
    )
    return [
        Notice(row["severity"], row["code"], row["text"], tuple(row["ranks"]), row["row_count"])
        for row in grouped.iter_rows(named=True)
    ]
