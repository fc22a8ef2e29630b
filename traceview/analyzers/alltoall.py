"""How long dispatch and combine take: waiting for the last rank, or moving bytes, and at which speed.

Definitions are those of `traceview.analyzers._latency`. Barriers and notifications of expert-parallel
transports are counted apart, as waiting. The bytes of a transport that records no sizes stay unknown.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from traceview.analyzers._latency import PARTIAL, collect, summarize
from traceview.analyzers._latency_table import GRAINS, result
from traceview.contracts import Analysis

RESULT = result(
    "alltoall",
    "All-to-alls, dispatch and combine kernels: latency, waiting, transfer, bytes and bandwidth.",
)
DEFAULT_GRAIN = ("role", "phase")

_CHOSEN = (pl.col("collective") == "all_to_all") | (pl.col("subrole") == "barrier")

ANALYSIS = Analysis(
    name="alltoall",
    question="What do all-to-alls cost, and is it waiting or moving bytes?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=collect,
    reduce=partial(summarize, table=RESULT, chosen=_CHOSEN),
    grains=GRAINS,
    maps_by=(),
)
