"""What a trace could have told and does not, and how to record it the next time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceview.trace import Trace

MOSTLY = 0.5
"""Device work without a launch is normal at both ends of a window; more than this share is not."""

_RECORDED = ("kernel_args", "host_op")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One kind of evidence.

    Attributes:
        code: Stable identifier.
        consequence: What is missing and what cannot be told without it.
        remedy: How to record it.
        is_missing: Whether a trace lacks it.
    """

    code: str
    consequence: str
    remedy: str
    is_missing: Callable[[Trace], bool]


def _lacks_rank(trace: Trace) -> bool:
    return trace.facts.rank_source in {"none", "assumed"}


def _lacks_steps(trace: Trace) -> bool:
    return not len(trace.table("steps"))


def _lacks_launches(trace: Trace) -> bool:
    launch = trace.table("ops")["launch_ts_ns"]
    return len(launch) > 0 and launch.null_count() > MOSTLY * len(launch)


def _lacks_layers(trace: Trace) -> bool:
    layer = trace.table("ops")["layer"]
    return layer.null_count() == len(layer)


def _lacks_shapes(trace: Trace) -> bool:
    shapes = trace.table("host_ops")["shapes"]
    return shapes.null_count() == len(shapes)


def _lacks_collective_metadata(trace: Trace) -> bool:
    resolved_by = trace.table("collectives")["resolved_by"].cast(pl.String)
    return len(resolved_by) > 0 and not resolved_by.is_in(list(_RECORDED)).any()


def _lacks_groups(trace: Trace) -> bool:
    return len(trace.table("collectives")) > 0 and not len(trace.table("groups"))


def _lacks_whole_splits(trace: Trace) -> bool:
    return bool(trace.table("collectives")["splits_complete"].eq(other=False).any())


EVIDENCE = (
    Evidence(
        "rank",
        "no rank: files are numbered by name, so rank numbers may be wrong",
        "initialise torch.distributed before profiling, or put rank<N> into the file name",
        _lacks_rank,
    ),
    Evidence(
        "steps",
        "no step markers: the whole window is one window, with warm-up inside",
        "use torch.profiler.schedule(...) and call prof.step() after every training step",
        _lacks_steps,
    ),
    Evidence(
        "launches",
        "most device work has no recorded launch: it belongs to no step, layer or phase",
        "record ProfilerActivity.CPU beside ProfilerActivity.CUDA",
        _lacks_launches,
    ),
    Evidence(
        "layers",
        "no layer annotations: nothing can be shown by layer",
        "wrap layers in torch.profiler.record_function or NVTX ranges that carry the layer number",
        _lacks_layers,
    ),
    Evidence(
        "shapes",
        "no operator shapes: no FLOP counts",
        "profile with record_shapes=True",
        _lacks_shapes,
    ),
    Evidence(
        "collective_metadata",
        "no collective metadata: groups, bytes and splits are unknown",
        "record NCCL collectives with PyTorch 2.3 or newer and ProfilerActivity.CPU",
        _lacks_collective_metadata,
    ),
    Evidence(
        "process_groups",
        "no process groups: a collective's axis rests on names and sizes",
        "create the process groups before the profiler starts, on a PyTorch that writes distributedInfo",
        _lacks_groups,
    ),
    Evidence(
        "whole_splits",
        "split lists were cut at 30 entries: bytes per peer are unknown in larger groups",
        "the profiler keeps no more; use smaller groups when bytes per peer matter",
        _lacks_whole_splits,
    ),
)
"""Every kind of evidence `info` asks for, in the order it is shown."""


def missing(trace: Trace) -> list[str]:
    """Codes of the evidence ``trace`` lacks, in the order of `EVIDENCE`."""
    return [evidence.code for evidence in EVIDENCE if evidence.is_missing(trace)]
