"""The kernels of expert-parallel transports, which move rows without NCCL.

Source: names as printed by CUPTI for DeepEP V1 and for the hybrid-ep branch of DeepEP on Hopper; template
arguments are shortened where they add nothing.
"""

from __future__ import annotations

from traceview.synth.kernels import Kernel


def _transport(space: str, name: str, category: str, blocks: int, threads: int) -> Kernel:
    return Kernel(
        f"void {space}::{name}",
        category,
        "fused_a2a",
        "cudaLaunchKernelExC",
        (blocks, 1, 1),
        threads,
        72,
        1320,
    )


DEEP_EP_LAYOUT = _transport(
    "deep_ep",
    "layout::get_dispatch_layout<256, 32, 256, 8>(long const*, int*, int*, int*, bool*, int, int, int, int)",
    "route_permute",
    66,
    256,
)
DEEP_EP_INTRANODE = {
    "notify_dispatch": _transport(
        "deep_ep",
        "intranode::notify_dispatch<8>(int const*, int*, int const*, int*, int, int const*, int*, int, int, "
        "bool const*, int*, int*, int, void**, int**, int)",
        "ep_sync",
        9,
        128,
    ),
    "cached_notify_dispatch": _transport(
        "deep_ep",
        "intranode::cached_notify_dispatch<8>(int const*, int, void**, int**, int)",
        "ep_sync",
        1,
        128,
    ),
    "cached_notify_combine": _transport(
        "deep_ep",
        "intranode::cached_notify_combine<8>(void**, int*, int, int, int, int**, int)",
        "ep_sync",
        13,
        256,
    ),
    "dispatch": _transport(
        "deep_ep",
        "intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*, float*, int*, int*, int4 const*, "
        "float const*, long const*, float const*, bool const*, int const*, int, int, int, int, int, int, "
        "int, void**, int, int, int)",
        "dispatch",
        24,
        768,
    ),
    "combine": _transport(
        "deep_ep",
        "intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*, __nv_bfloat16 const*, "
        "float const*, __nv_bfloat16 const*, __nv_bfloat16 const*, int const*, int const*, int const*, int*, "
        "int, int, int, int, void**, int, int, int)",
        "combine",
        24,
        768,
    ),
}
"""DeepEP's kernels within one NVLink domain, by part."""

DEEP_EP_INTERNODE = {
    "notify_dispatch": _transport(
        "deep_ep",
        "internode::notify_dispatch<false, 2>(int const*, int*, int, int const*, int*, int, int const*, "
        "int*, int, bool const*, int, int, int, int, int, int, int, int*, int*, int*, int*, void*, void**, "
        "int**, int, int)",
        "ep_sync",
        9,
        512,
    ),
    "cached_notify_dispatch": _transport(
        "deep_ep",
        "internode::cached_notify<false>(int, int, int, int, int*, int, int, int const*, int const*, int*, "
        "void*, void**, int**, int, int, int, bool, int)",
        "ep_sync",
        20,
        320,
    ),
    "cached_notify_combine": _transport(
        "deep_ep",
        "internode::cached_notify<false>(int, int, int, int, int*, int, int, int const*, int const*, int*, "
        "void*, void**, int**, int, int, int, bool, int)",
        "ep_sync",
        20,
        320,
    ),
    "dispatch": _transport(
        "deep_ep",
        "internode::dispatch<false, 2, false, 8>(int4*, float*, long*, float*, "
        "deep_ep::internode::SourceMeta*, int4 const*, float const*, long const*, float const*, int*, int*, "
        "int*, int*, int const*, int const*, int, int, int, int, int, bool const*, void*, int, int, void**, "
        "int, int, int, int)",
        "dispatch",
        20,
        512,
    ),
    "combine": _transport(
        "deep_ep",
        "internode::combine<false, 2, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, bool const*, int4 const*, "
        "float const*, int4 const*, int4 const*, int const*, int const*, "
        "deep_ep::internode::SourceMeta const*, int const*, int const*, int const*, int, int, int, int, "
        "void*, int, int, void**, int, int, int, int)",
        "combine",
        20,
        800,
    ),
}
"""DeepEP's kernels across hosts, by part."""

DEEP_EP_LOW_LATENCY = {
    "dispatch": _transport(
        "deep_ep",
        "internode_ll::dispatch<true, false, 2048>(void*, float*, int*, long*, int*, int*, int*, "
        "void*, int*, void*, void const*, long const*, int*, int*, int*, int, int, int, int, int, int, int, "
        "int, bool, int)",
        "dispatch",
        132,
        1024,
    ),
    "combine": _transport(
        "deep_ep",
        "internode_ll::combine<false, 2048, 9, 3>(void*, void*, int*, void*, void const*, "
        "long const*, float const*, int const*, long const*, int*, long*, int*, int, int, int, int, int, "
        "int, int, int, bool)",
        "combine",
        132,
        1024,
    ),
}
"""DeepEP's low-latency kernels, which send and wait in one, by part."""

HYBRID_EP_SCAN = _transport(
    "hybrid_ep",
    "scan<512, 16, 8, 1, 8>(bool const*, hybrid_ep::tmp_state_t*, int*, bool*, int*, int*, int, "
    "int, int, int)",
    "route_permute",
    16,
    512,
)
HYBRID_EP = {
    "sync": _transport(
        "hybrid_ep", "device_sync_kernel<8>(unsigned int*, unsigned int const*)", "ep_sync", 1, 32
    ),
    "dispatch": _transport(
        "hybrid_ep",
        "dispatch_kernel<hybrid_ep::warp_group<1, 0>, hybrid_ep::warp_group<2, 1>, 10, 2, 128, "
        "4096, 2048, 8, 1, 16, true>(hybrid_ep::dispatch_kernel_param_t<unsigned short>)",
        "dispatch",
        16,
        128,
    ),
    "combine": _transport(
        "hybrid_ep",
        "combine_kernel<hybrid_ep::warp_group<4, 0>, hybrid_ep::warp_group<4, 4>, 10, 2, 128, "
        "4096, 2048, 8, 1, 16, true>(hybrid_ep::combine_kernel_param_t)",
        "combine",
        16,
        320,
    ),
}
"""HybridEP's kernels by part; permutation is fused into them."""
