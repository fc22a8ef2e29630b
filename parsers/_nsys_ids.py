"""Ids of Nsight Systems exports: processes and threads packed into one number, and names by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers._nsys_export import Only

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceview.parsers._nsys_export import Export

MAX_NAME = 4096
"""Longest name kept, in characters."""

_THREAD_BITS = 24
_THREAD = (1 << _THREAD_BITS) - 1

NAMES = pl.Categorical()


def process(global_id: str) -> pl.Expr:
    """The process of a global id: hardware (8 bits), virtual machine (8), pid (24), thread (24 bits, now 0).

    Pids alone may repeat: reports may cover several machines.
    """
    return pl.col(global_id) & ~_THREAD


def pid(global_id: str) -> pl.Expr:
    """Process number on its machine; only its lowest 24 bits were kept."""
    return (pl.col(global_id) & (_THREAD << _THREAD_BITS)) // (1 << _THREAD_BITS)


def pid_of(process_id: int) -> int:
    """`pid` of one process."""
    return (process_id >> _THREAD_BITS) & _THREAD


def tid(global_id: str) -> pl.Expr:
    """Thread number on its machine; only its lowest 24 bits were kept."""
    return pl.col(global_id) & _THREAD


def names(export: Export, ids: Iterable[pl.Series]) -> pl.DataFrame:
    """Names of these ids: ``id, name``. No other string of the report is taken up.

    The string table also holds the environment of the traced processes, as one text with NULs in it: a name
    ends at the first NUL.
    """
    wanted = pl.concat([pl.Series(dtype=pl.Int64), *(series.drop_nulls() for series in ids)]).unique()
    rows = export.table("StringIds", Only("id", wanted.to_list())).drop_nulls().unique("id", keep="first")
    return rows.select("id", name=clean("value").cast(NAMES))


def with_name(frame: pl.DataFrame, column: str, known: pl.DataFrame, *, alias: str) -> pl.DataFrame:
    """``frame`` with the name of the id in ``column``, in order; null where it has none."""
    return frame.join(
        known.rename({"id": column, "name": alias}), on=column, how="left", maintain_order="left"
    )


def clean(column: str) -> pl.Expr:
    """Text up to its first NUL, bounded."""
    return pl.col(column).str.extract(r"^([^\x00]*)").str.slice(0, MAX_NAME)
