"""MPI calls of an Nsight Systems report (``--trace=mpi``), as ranges of a domain of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers import _nsys_ids
from traceview.parsers._nsys_ids import NAMES, Names

if TYPE_CHECKING:
    from traceview.parsers._nsys_export import Export

CALLS = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
"""Tables with a row per call."""

DOMAIN = "MPI"


def calls(export: Export) -> pl.DataFrame:
    """Calls with the columns of `_nsys_ranges.ranges`, in any order."""
    names = Names(export)
    rows = pl.concat([export.table(table) for table in CALLS])
    return names.add(rows, "textId", alias="name").select(
        "start",
        "end",
        process=_nsys_ids.process("globalTid"),
        domain=pl.lit(DOMAIN, NAMES),
        pid=_nsys_ids.pid("globalTid"),
        tid=_nsys_ids.tid("globalTid"),
        name=pl.col("name").fill_null(pl.lit("(unnamed MPI call)", NAMES)),
        shapes=pl.lit(None, pl.String),
        payload=pl.lit(None, pl.Binary),
    )
