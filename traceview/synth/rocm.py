"""How the same program looks on ROCm: names of kernels, calls and devices.

Source: PyTorch profiler traces of MI300X (public sets of TraceLens), Composable Kernel, AITER and RCCL; an
RCCL kernel is the same for nearly every collective (rccl#505).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.synth.kernels import Kernel
    from traceview.synth.workload import Platform

_CALLS = {
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaLaunchKernelExC": "hipExtLaunchKernel",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cuLaunchKernelEx": "hipExtModuleLaunchKernel",
    "cudaMemcpyAsync": "hipMemcpyAsync",
    "cudaMemsetAsync": "hipMemsetAsync",
    "cudaEventRecord": "hipEventRecord",
    "cudaStreamWaitEvent": "hipStreamWaitEvent",
    "cudaStreamSynchronize": "hipStreamSynchronize",
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
    "cudaGraphLaunch": "hipGraphLaunch",
}
_RCCL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
_BY_CATEGORY = {
    "gemm": "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_ISA942_WG32_8_1",
    "grouped_gemm": (
        "void ck_tile::kentry<256, 2, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner"
        "<ck_tile::TileGemmShape<ck_tile::sequence<256, 256, 64> >, 8, 4> > >(void const*, int)"
    ),
    "attention": "aiter::fmha_fwd_hd128_bf16_causal_rtne",
}
_TYPES = {"__nv_bfloat16": "__hip_bfloat16", "__nv_fp8_e4m3": "__hip_fp8_e4m3_fnuz"}


def ported_call(name: str, platform: Platform) -> str:
    """What the runtime call ``name`` of CUDA is called on ``platform``."""
    return _CALLS[name] if platform == "rocm" else name


@cache
def ported(kernel: Kernel, platform: Platform) -> Kernel:
    """``kernel`` as ``platform`` names and launches it."""
    if platform == "cuda":
        return kernel
    name = _RCCL if kernel.name.startswith("nccl") else _BY_CATEGORY.get(kernel.category, kernel.name)
    if kernel.category == "attention" and "Bwd" in kernel.name:
        name = name.replace("fwd", "bwd")
    for ours, theirs in _TYPES.items():
        name = name.replace(ours, theirs)
    return replace(kernel, name=name, call=_CALLS[kernel.call])
