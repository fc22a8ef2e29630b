"""traceview: trace analysis for Mixture-of-Experts training.

>>> import traceview as tv
>>> run = tv.load("traces/ep64/")                        # doctest: +SKIP
>>> tv.breakdown(run, by=("rank", "step")).frame         # doctest: +SKIP

Public names load on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from traceview.version import VERSION

if TYPE_CHECKING:
    from traceview.annotation import annotate, annotate_model
    from traceview.api import (
        all_to_all,
        analyze,
        analyze_all,
        breakdown,
        clock_fit,
        collective_latency,
        compare,
        counters,
        efficiency,
        expert_load,
        explain,
        export_perfetto,
        findings,
        hideability,
        idle,
        interference,
        kernels,
        latencies,
        ledger,
        load,
        load_runs,
        mfu,
        overlap,
        ranges,
        report,
        roofline,
        scaling,
        stragglers,
        summary,
        timeline,
        traffic,
    )
    from traceview.errors import TraceViewError
    from traceview.recording import profile_steps
    from traceview.result import Result
    from traceview.run import Run

__version__ = VERSION

__all__ = [
    "Result",
    "Run",
    "TraceViewError",
    "all_to_all",
    "analyze",
    "analyze_all",
    "annotate",
    "annotate_model",
    "breakdown",
    "clock_fit",
    "collective_latency",
    "compare",
    "counters",
    "efficiency",
    "expert_load",
    "explain",
    "export_perfetto",
    "findings",
    "hideability",
    "idle",
    "interference",
    "kernels",
    "latencies",
    "ledger",
    "load",
    "load_runs",
    "mfu",
    "overlap",
    "profile_steps",
    "ranges",
    "report",
    "roofline",
    "scaling",
    "stragglers",
    "summary",
    "timeline",
    "traffic",
]

_HOME = dict.fromkeys(__all__, "traceview.api") | {
    "Result": "traceview.result",
    "Run": "traceview.run",
    "annotate": "traceview.annotation",
    "annotate_model": "traceview.annotation",
    "profile_steps": "traceview.recording",
    "TraceViewError": "traceview.errors",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _HOME:
        message = f"module 'traceview' has no attribute '{name}'"
        raise AttributeError(message)
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
