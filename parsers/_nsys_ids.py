"""Ids of Nsight Systems exports: processes and threads packed into one number, and names by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers._nsys_export import Only

if TYPE_CHECKING:
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


class Names:
    """Names by id, looked up in the string table as they are asked for. No other string of it is taken up.

    That table also holds the environment of the traced processes, as one text with NULs in it: a name ends at
    the first NUL.
    """

    def __init__(self, export: Export) -> None:
        self._export = export
        self._known = pl.DataFrame(schema={"id": pl.Int64(), "name": NAMES})
        self._asked = pl.Series("id", dtype=pl.Int64())

    def add(self, frame: pl.DataFrame, column: str, *, alias: str) -> pl.DataFrame:
        """``frame`` with the name of the id in ``column``, in order; null where it has none."""
        self._look_up(frame[column].unique().drop_nulls())
        return frame.join(
            self._known.rename({"id": column, "name": alias}), on=column, how="left", maintain_order="left"
        )

    def _look_up(self, ids: pl.Series) -> None:
        fresh = ids.filter(~ids.is_in(self._asked.implode()))
        if not len(fresh):
            return
        rows = self._export.table("StringIds", Only("id", fresh.to_list())).drop_nulls()
        found = rows.unique("id", keep="first").select("id", name=clean("value").cast(NAMES))
        self._known, self._asked = (
            pl.concat([self._known, found]),
            pl.concat([self._asked, fresh.alias("id")]),
        )


def matches(names: pl.Series, pattern: str) -> pl.Expr:
    """Whether the name in the column of ``names`` matches; each different name is looked at once."""
    different = names.unique().drop_nulls()
    found = different.filter(different.cast(pl.String).str.contains(pattern))
    return pl.col(names.name).is_in(found.implode()).fill_null(value=False)


def clean(column: str) -> pl.Expr:
    """Text up to its first NUL, bounded."""
    return pl.col(column).str.extract(r"^([^\x00]*)").str.slice(0, MAX_NAME)
