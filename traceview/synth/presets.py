"""Small named workloads, each 8 ranks and a few steps, that differ in one thing at a time."""

from __future__ import annotations

from dataclasses import replace

from traceview.synth.workload import Clock, Straggler, Workload

_EP8 = Workload()

PRESETS: dict[str, Workload] = {
    "ep8-nccl": _EP8,
    "ep8-nccl-shared": replace(_EP8, overlap="shared"),
    "ep8-nccl-overlap": replace(_EP8, overlap="1f1b"),
    "ep8-deepep": replace(_EP8, transport="deepep", dispatch_dtype="Float8_e4m3fn"),
    "ep8-deepep-overlap": replace(
        _EP8, transport="deepep", dispatch_dtype="Float8_e4m3fn", overlap="1f1b", traps=True
    ),
    "ep8-imbalanced": replace(_EP8, expert_imbalance=0.8),
    "ep8-balanced": replace(_EP8, expert_imbalance=0.0),
    "ep8-straggler": replace(
        _EP8,
        ranks_per_host=4,
        stragglers=(Straggler(rank=5, cause="slow_kernels", factor=1.3),),
        clocks=(Clock(), Clock(offset_ns=750_000, drift_ppm=2.0)),
    ),
}
"""Presets by name."""
