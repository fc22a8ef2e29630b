"""How long collectives of every kind take: waiting for the last rank, or moving bytes, and how fast.

Definitions are those of `traceview.analyzers._latency`. A broadcast, reduce or send does not end everywhere
at once; it too is split only where all members were recorded, and its end is the median one.
"""

from __future__ import annotations

from functools import partial

from traceview.analyzers._latency import PARTIAL, collect, summarize
from traceview.analyzers._latency_table import GRAINS, result
from traceview.contracts import Analysis

RESULT = result(
    "collectives",
    "Collectives and transfers of every axis: latency, waiting, transfer, bytes and bandwidth.",
)
DEFAULT_GRAIN = ("axis", "kind")

ANALYSIS = Analysis(
    name="collectives",
    question="What do collectives cost, and is it waiting or moving bytes?",
    needs=("ops", "collectives", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=collect,
    reduce=partial(summarize, table=RESULT),
    grains=GRAINS,
    maps_by=(),
)
