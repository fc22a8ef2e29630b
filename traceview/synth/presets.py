"""Named workloads: most of them 8 ranks and a few steps, about half a megabyte together."""

from __future__ import annotations

from dataclasses import replace

from traceview.synth.workload import Capture, Clock, LateStart, Straggler, Workload

_EP8 = Workload()
_TWO_CLOCKS = (Clock(), Clock(offset_ns=750_000, drift_ppm=2.0))
_FOUR_CLOCKS = (
    Clock(offset_ns=-50_000_000, drift_ppm=20.0),
    Clock(offset_ns=50_000_000, drift_ppm=-20.0),
    Clock(offset_ns=-13_700_000, drift_ppm=-7.5),
    Clock(offset_ns=31_400_000, drift_ppm=12.0),
)
_INTERLEAVED = replace(_EP8, steps=3, microbatches=2, layers=1, overlap="1f1b")
_EP64 = replace(
    _EP8,
    ranks=64,
    expert_parallel=64,
    experts=256,
    steps=3,
    clocks=tuple(
        Clock(offset_ns=offset, drift_ppm=drift)
        for offset, drift in zip(
            (0, 42_000_000, -7_300_000, 650_000, -50_000_000, 18_000_000, 50_000_000, -310_000),
            (0.0, 4.5, -20.0, 11.0, 0.8, -3.2, 20.0, -12.5),
            strict=True,
        )
    ),
)

_SCALED = replace(
    _EP8,
    steps=6,
    experts=16,
    gather_parameters=False,
    ring_hop_ns=100,
    compact=True,
    capture=Capture(recorded_ranks=tuple(range(8))),
)
"""One host of a large job; rings and the waiting for the slowest rank grow with the job."""


def _slow(*stragglers: Straggler) -> Workload:
    """The plain workload with stragglers, and its experts balanced so that nothing else makes ranks late."""
    return replace(_EP8, expert_imbalance=0.0, stragglers=stragglers)


PRESETS: dict[str, Workload] = {
    "ep8-nccl": _EP8,
    "ep8-nccl-shared": replace(_EP8, overlap="shared"),
    "ep8-nccl-overlap": _INTERLEAVED,
    "ep8-deepep": replace(_EP8, transport="deepep", dispatch_dtype="Float8_e4m3fn"),
    "ep8-deepep-overlap": replace(_INTERLEAVED, transport="deepep", dispatch_dtype="Float8_e4m3fn"),
    "ep8-deepep-low-latency": replace(
        _EP8, transport="deepep_low_latency", dispatch_dtype="Float8_e4m3fn", tokens=512
    ),
    "ep8-hybridep": replace(_EP8, transport="hybridep"),
    "ep8-rccl": replace(_EP8, platform="rocm"),
    "ep8-copy-engine": replace(_EP8, steps=3, transport="copy_engine"),
    "ep8-graphs": replace(_EP8, graphs=True),
    "ep8-graphs-opaque": replace(_EP8, graphs=True, capture=Capture(graph_trace="graph")),
    "ep8-gpu-metrics": replace(_EP8, capture=Capture(gpu_metrics_hz=10_000)),
    "ep8-launch-starved": replace(_EP8, transport="hybridep", hidden=1024, tokens=512, host_slowdown=4.0),
    "ep8-item-sync": replace(_EP8, transport="hybridep", router_item=True),
    "ep8-traps": replace(_EP8, traps=True),
    "ep8-imbalanced": replace(_EP8, expert_imbalance=0.8),
    "ep8-balanced": replace(_EP8, expert_imbalance=0.0),
    "ep8-straggler": replace(
        _EP8,
        ranks_per_host=4,
        stragglers=(Straggler(rank=5, cause="slow_kernels", factor=1.3),),
        clocks=_TWO_CLOCKS,
    ),
    "ep8-straggler-tokens": _slow(Straggler(rank=2, cause="more_tokens", factor=2.0)),
    "ep8-straggler-launch": _slow(Straggler(rank=6, cause="late_launch", extra_ns=200_000)),
    # two sets of expert-parallel ranks, since a set whose exchanges are all slow has nothing to compare with
    "ep8-straggler-link": replace(_slow(Straggler(rank=1, cause="slow_link", factor=4.0)), ranks=16, steps=3),
    "ep8-straggler-wandering": _slow(
        Straggler(rank=3, cause="slow_kernels", factor=1.4, steps=(11,)),
        Straggler(rank=7, cause="slow_kernels", factor=1.4, steps=(12,)),
    ),
    "ep8-late-start": replace(
        _EP8, capture=Capture(late_starts=(LateStart(rank=3, steps=1), LateStart(rank=6, steps=1.5)))
    ),
    "ep8-missing-rank": replace(_EP8, capture=Capture(missing_ranks=(5,))),
    "ep8-dropped-rows": replace(_EP8, capture=Capture(dropped_share=0.01, sequence_numbers=False)),
    "ep8-no-sequence": replace(_EP8, capture=Capture(sequence_numbers=False)),
    "ep8-no-metadata": replace(_EP8, capture=Capture(metadata=False)),
    "ep4-two-hosts": replace(_EP8, steps=3, ranks_per_host=4, expert_parallel=4, clocks=_TWO_CLOCKS),
    "tp2-ep4": replace(_EP8, steps=3, tensor_parallel=2, expert_parallel=4, group_names="per_set"),
    "tp2-cp2-ep8": replace(_EP8, steps=2, tensor_parallel=2, context_parallel=2),
    "pp2-ep4": replace(_EP8, steps=2, microbatches=4, pipeline_parallel=2, expert_parallel=4),
    "ep16-four-hosts": replace(
        _EP8, ranks=16, ranks_per_host=4, expert_parallel=16, steps=3, clocks=_FOUR_CLOCKS
    ),
    "ep64": _EP64,
    "ep64-1024": replace(
        _EP64,
        ranks=1024,
        steps=5,
        microbatches=4,
        layers=24,
        experts=64,
        compact=True,
        clocks=tuple(_EP64.clocks[host % 8] for host in range(128)),
    ),
    # a larger job routes a little less evenly, so that its ranks wait longer for each other
    "scaling-256": replace(_SCALED, ranks=256),
    "scaling-512": replace(_SCALED, ranks=512, expert_imbalance=0.302),
    "scaling-1024": replace(_SCALED, ranks=1024, expert_imbalance=0.305),
}
"""Presets by name."""
