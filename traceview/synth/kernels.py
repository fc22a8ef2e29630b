"""The device work of a synthetic step: names, launch shapes and categories as real traces show them.

Source: names as printed by CUPTI for PyTorch 2.x, Transformer Engine, CUTLASS, FlashAttention 3 and NCCL 2.2x
on Hopper; template arguments are shortened where they add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kind of device work.

    Attributes:
        name: Name as CUPTI prints it.
        category: Its meaning, in traceview's taxonomy.
        host_op: Operator that launches it.
        call: Runtime or driver call that launches it.
        grid: Thread blocks along x, y and z.
        block: Threads per block along x.
        registers: Registers per thread.
        shared_memory: Bytes of shared memory per block.
    """

    name: str
    category: str
    host_op: str
    call: str = "cudaLaunchKernel"
    grid: tuple[int, int, int] = (4096, 1, 1)
    block: int = 256
    registers: int = 32
    shared_memory: int = 0

    @property
    def kind(self) -> str:
        """What the device does: ``kernel``, ``memcpy`` or ``memset``."""
        return "memcpy" if "Memcpy" in self.call else "memset" if "Memset" in self.call else "kernel"


def _gemm(tile: str, grid: tuple[int, int, int], host_op: str) -> Kernel:
    return Kernel(
        f"nvjet_tst_{tile}_2x1_v_bz_coopA_TNN", "gemm", host_op, "cuLaunchKernelEx", grid, 384, 168, 214016
    )


def _triton(name: str, category: str = "elementwise") -> Kernel:
    return Kernel(name, category, name, "cuLaunchKernel", (16384, 1, 1), 128, 40)


def _grouped(stages: int, host_op: str) -> Kernel:
    name = (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<"
        "cute::tuple<int, int, int> >, cutlass::gemm::collective::CollectiveMma<"
        f"cutlass::gemm::MainloopSm90ArrayTmaGmmaWarpSpecialized<{stages}> > > >(Params)"
    )
    return Kernel(name, "grouped_gemm", host_op, "cudaLaunchKernelExC", (132, 1, 1), 384, 168, 221184)


def _adam(functor: str, host_op: str) -> Kernel:
    space = "at::native::(anonymous namespace)"
    arguments = f"{space}::TensorListMetadata<4>, {space}::{functor}, float"
    name = f"void {space}::multi_tensor_apply_kernel<{arguments}>({arguments})"
    return Kernel(name, "optimizer", host_op, "cudaLaunchKernel", (320, 1, 1), 512, 64)


def _nccl(collective: str, category: str) -> Kernel:
    name = f"ncclDevKernel_{collective}(ncclDevKernelArgsStorage<4096ul>)"
    return Kernel(name, category, "record_param_comms", "cuLaunchKernelEx", (24, 1, 1), 640, 96, 119040)


EMBEDDING = _triton("triton_poi_fused_embedding_0")
EMBEDDING_BACKWARD = _triton("triton_poi_fused_embedding_dense_backward_3")
LOSS = _triton("triton_red_fused__log_softmax_nll_loss_forward_1")
LOSS_BACKWARD = _triton("triton_red_fused__log_softmax_backward_data_nll_loss_backward_2")
LOGITS = _gemm("256x128_64x4", (16, 132, 1), "aten::mm")
NORM = Kernel(
    "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16, 2048u>>"
    "(transformer_engine::normalization::ForwardKernelParams)",
    "norm",
    "_RMSNorm",
    grid=(528, 1, 1),
    block=128,
)
NORM_BACKWARD = Kernel(
    "void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<Kernel_traits<__nv_bfloat16, 2048u>>"
    "(transformer_engine::normalization::BackwardKernelParams)",
    "norm",
    "_RMSNormBackward",
    grid=(528, 1, 1),
    block=128,
    registers=96,
)
QKV = _gemm("128x256_64x4", (2, 66, 1), "_Linear")
PROJECTION = _gemm("192x128_64x5", (2, 66, 1), "_Linear")
ATTENTION = Kernel(
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<128>, cute::C<128>, cute::C<128> >, 128, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(flash::FlashAttnFwdSm90::Params)",
    "attention",
    "FlashAttnFunc",
    "cudaLaunchKernelExC",
    (132, 1, 1),
    384,
    168,
    213088,
)
ATTENTION_BACKWARD = Kernel(
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<"
    "flash::CollectiveMainloopBwdSm90<2, 2, 2, cute::tuple<cute::C<64>, cute::C<128>, cute::C<128> >, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(flash::FlashAttnBwdSm90::Params)",
    "attention",
    "FlashAttnFuncBackward",
    "cudaLaunchKernelExC",
    (32, 32, 1),
    384,
    168,
    221184,
)
ADD = Kernel(
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "elementwise",
    "aten::add",
    grid=(16384, 1, 1),
    block=128,
)
ROUTER = _gemm("64x64_64x8", (32, 1, 1), "RouterGatingLinearFunction")
TOP_K = Kernel(
    "void transformer_engine::fused_router::fused_topk_with_score_function_forward_kernel<float>"
    "(float const*, int, int, int, bool, int, int, float, int, float const*, float*, bool*, float*)",
    "route_permute",
    "FusedTopkScoreFunction",
    grid=(1024, 1, 1),
    block=128,
    shared_memory=4096,
)
TOP_K_BACKWARD = Kernel(
    "void transformer_engine::fused_router::fused_topk_with_score_function_backward_kernel<float>"
    "(bool const*, float const*, float const*, int, int, int, bool, float, int, float*)",
    "route_permute",
    "FusedTopkScoreFunctionBackward",
    grid=(1024, 1, 1),
    block=128,
)
PERMUTE = _triton("_permute_kernel", "route_permute")
UNPERMUTE = _triton("_unpermute_kernel", "route_permute")
UNPERMUTE_BACKWARD = _triton("_unpermute_bwd_with_merging_probs_kernel", "route_permute")
SORT_CHUNKS = _triton("_sort_chunks_by_map_kernel", "route_permute")
EXPERT_UP = _grouped(4, "_GroupedLinear")
EXPERT_DOWN = _grouped(3, "_GroupedLinear")
EXPERT_UP_BACKWARD = _grouped(4, "_GroupedLinearBackward")
EXPERT_DOWN_BACKWARD = _grouped(3, "_GroupedLinearBackward")
SWIGLU = _triton("triton_poi_fused_mul_silu_split_4")
SWIGLU_BACKWARD = _triton("triton_poi_fused_cat_mul_sigmoid_silu_backward_5")
SHARED_UP = _gemm("128x128_64x6", (12, 32, 1), "_Linear")
SHARED_DOWN = _gemm("128x192_64x5", (11, 32, 1), "_Linear")
CAST_FP8 = Kernel(
    "void transformer_engine::detail::block_scaled_1d_cast_transpose_kernel<float, __nv_bfloat16>"
    "(__nv_bfloat16 const*, __nv_fp8_e4m3*, float*, unsigned long, unsigned long, float, bool)",
    "quantize",
    "aten::empty_like",
)
GRADIENT_NORM = _adam("LpNormFunctor<float, 2>", "aten::_foreach_norm")
ADAM = _adam("FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>", "aten::_fused_adamw_")

TO_HOST = Kernel("Memcpy DtoH (Device -> Pinned)", "memory", "aten::copy_", "cudaMemcpyAsync")
TO_DEVICE = Kernel("Memcpy HtoD (Pinned -> Device)", "memory", "aten::copy_", "cudaMemcpyAsync")
ZERO = Kernel("Memset (Device)", "memory", "aten::zero_", "cudaMemsetAsync")
TO_PEER = Kernel("Memcpy PtoP (Device -> Device)", "all_to_all", "record_param_comms", "cudaMemcpyAsync")
"""A copy to another device; part of an all-to-all whenever one of these programs makes it."""

NCCL = {
    "all_to_all": _nccl("SendRecv", "all_to_all"),
    "all_gather": _nccl("AllGather_RING_LL", "all_gather"),
    "reduce_scatter": _nccl("ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
    "all_reduce": _nccl("AllReduce_Sum_f32_RING_LL", "all_reduce"),
    "send_recv": _nccl("SendRecv", "send_recv"),
}
"""NCCL's kernels by exchange; an all-to-all is a group of sends and receives."""
