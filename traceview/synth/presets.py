"""Small named workloads: 8 ranks, a few steps, well under half a megabyte each."""

from __future__ import annotations

from dataclasses import replace

from traceview.synth.workload import Clock, Straggler, Workload

_EP8 = Workload()
_TWO_CLOCKS = (Clock(), Clock(offset_ns=750_000, drift_ppm=2.0))
_INTERLEAVED = replace(_EP8, steps=3, microbatches=2, layers=1, overlap="1f1b")

PRESETS: dict[str, Workload] = {
    "ep8-nccl": _EP8,
    "ep8-nccl-shared": replace(_EP8, overlap="shared"),
    "ep8-nccl-overlap": _INTERLEAVED,
    "ep8-deepep": replace(_EP8, transport="deepep", dispatch_dtype="Float8_e4m3fn"),
    "ep8-deepep-overlap": replace(_INTERLEAVED, transport="deepep", dispatch_dtype="Float8_e4m3fn"),
    "ep8-traps": replace(_EP8, traps=True),
    "ep8-imbalanced": replace(_EP8, expert_imbalance=0.8),
    "ep8-balanced": replace(_EP8, expert_imbalance=0.0),
    "ep8-straggler": replace(
        _EP8,
        ranks_per_host=4,
        stragglers=(Straggler(rank=5, cause="slow_kernels", factor=1.3),),
        clocks=_TWO_CLOCKS,
    ),
    "ep4-two-hosts": replace(_EP8, steps=3, ranks_per_host=4, expert_parallel=4, clocks=_TWO_CLOCKS),
}
"""Presets by name."""
