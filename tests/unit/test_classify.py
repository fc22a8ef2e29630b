from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.classify import UNMATCHED_RULE, VERDICT, Classifier, unmatched
from traceview.errors import RuleError
from traceview.schema import CLASS_OF_CATEGORY, OPS

if TYPE_CHECKING:
    from pathlib import Path

# Names as real traces and library sources show them (shortened inside template arguments), labelled by hand.
EXPERT_PARALLEL = {
    "dispatch": [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, long*, float*, int*, int*, int)",
        "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*, deep_ep::internode::SourceMeta*)",
        "void dpsk::ep::internode::dispatch<false, 8, false, 8>(int4*, float*, long*, float*)",
        "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*, int*, long*)",
        "void uccl::internode_ll::dispatch<true, 7168>(void*, void*)",
        "primus_turbo::deep_ep::intranode::dispatch<8, 512, 8192>(int4*)",
        "nccl_ep::internode_ll::dispatch<7168>(void*)",
        "void deep_ep::elastic::dispatch_impl<8, 64>(int4*)",
        "void deep_ep::elastic::hybrid_dispatch_impl<8, 64>(int4*)",
        "void deep_ep::elastic::dispatch_copy_epilogue_impl<8>(int4*)",
        "_ZN7deep_ep9internode8dispatchILb0ELi8ELb1ELi8EEEvP4int4Pf",
        "_ZN7deep_ep12internode_ll8dispatchILb1ELi7168EEEvPvS1_",
        "void hybrid_ep::dispatch_kernel<__nv_bfloat16, 8, 4>(hybrid_ep::dispatch_kernel_param_t)",
        "nccl_ep_jit_ht_dispatch_kernel",
        "void mori::moe::EpDispatchIntraNodeKernel<float>(mori::moe::EpDispatchCombineArgs<float>)",
        "_mxfp8_all_to_all_expert_major_kernel",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int)",
    ],
    "combine": [
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*)",
        "void deep_ep::internode_ll::combine<false, 7168, 9>(void*, void*)",
        "void deep_ep::elastic::hybrid_combine_impl<8>(int4*)",
        "void deep_ep::elastic::combine_reduce_epilogue_impl<8>(int4*)",
        "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768EEEvPT_",
        "void hybrid_ep::combine_kernel<8, 4>(hybrid_ep::combine_kernel_param_t)",
        "nccl_ep_jit_ht_combine_kernel",
        "void mori::moe::EpCombineIntraNodeKernel<float>(mori::moe::EpDispatchCombineArgs<float>)",
        "_combine_all_to_all_kernel",
        "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<8>(int)",
    ],
    "ep_sync": [
        "void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int)",
        "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*, int)",
        "void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*)",
        "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int)",
        "void deep_ep::intranode::barrier<8>(int**, int)",
        "void deep_ep::internode_ll::clean_low_latency_buffer<384>(long*, int)",
        "void deep_ep::elastic::barrier_impl<8>(int**)",
        "_ZN7deep_ep9internode15notify_dispatchILb0ELi8EEEvPKiPl",
        "void hybrid_ep::device_sync_kernel<4>(unsigned int*)",
        "rdma_sync_kernel",
        "update_expected_value_kernel",
        "void mori::moe::EpCombineSyncBarrierKernel<float>(int)",
        "cleanLowLatencyBuffer",
    ],
    "send_recv": [
        "void deep_ep::elastic::pp_send_impl<4>(int4*)",
        "hcom_receive__1_2",
        "collective-permute-start.3",
        "ppermute.2",
    ],
    "route_permute": [
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "nccl_ep_jit_ht_scan_kernel",
        "void hybrid_ep::scan<128>(bool const*, int*)",
        "void hybrid_ep::permute_kernel<float>(float*)",
        "convert_topk_to_routing_map_kernel",
        "void transformer_engine::fused_router::fused_topk_with_score_function_forward_kernel<float>(int)",
        "fused_score_for_moe_aux_loss_backward_kernel",
        "void moe_permute_kernel<__nv_bfloat16, float, 128, false>(__nv_bfloat16 const*)",
        "_row_id_map_pass_2_kernel",
        "_unpermute_bwd_with_merging_probs_kernel",
        "_sort_chunks_by_map_kernel",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::Policy800>(int*)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::TensorAssign>(int)",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
    ],
}
COLLECTIVES = {
    "all_gather": [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_AllGatherV_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllGather_RailRing_LsaSTMC(ncclSymkDevWorkArgs4K)",
        "ncclKernelAllGatherCtranDirect(unsigned char*, unsigned long)",
        "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char const*, unsigned long)",
        "void hybrid_ep::ag_nvl_kernel<4>(bool const*)",
        "userbuffers_fp16_sum_inplace_gpu_rr_ag",
        "hcom_allGather__338_0_1",
        "all-gather-start.12",
        "custom_allgather_push_kernel",
    ],
    "reduce_scatter": [
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLDMC_sum_bf16(ncclSymkDevWorkArgs4K)",
        "userbuffers_fp16_sum_inplace_gpu_mc_rs",
        "hcom_reduceScatter__338_1_1",
        "reduce-scatter.4",
        "custom_reduce_scatter_pull_kernel",
    ],
    "all_reduce": [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void two_shot_all_reduce_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "void mscclpp::allreduceNvls<half>(void*)",
        "oneccl_allreduce_large_f32",
        "all-reduce.1",
        "psum_invariant.29",
        "custom_allreduce_lamport_kernel",
    ],
    "broadcast": [
        "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "hcom_broadcast__1_0",
        "collective-broadcast.1",
    ],
    "reduce": ["ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
    "all_to_all": [
        "void allToAllV_2d<1, 4>(void**, void**, long*, long*)",
        "exchangeSplitAndOffset_2d",
        "void xla::gpu::RaggedAllToAllKernelImpl<4>(void*)",
        "ncclKernelAllToAllvDynamic(unsigned long)",
        "hcom_alltoallv__441_0",
        "all-to-all.5",
        "ragged-all-to-all-done.2",
        "custom_all_to_all_put_kernel",
    ],
    "p2p_or_a2a": [
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "kuserbuffers_pushsend",
        "kuserbuffers_pullrecv",
    ],
    "comm_unknown": [
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)",
        "void mscclpp::executionKernel<float>(int)",
        "nvshmemi_transfer_amo_kernel",
        "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int)",
        "void nvshmem_barrier_all_kernel(int)",
        "void deep_ep::elastic::engram_fetch_wait_impl<8>(int)",
        "reduce_bf16_cuda",
    ],
    "p2p_copy": ["Memcpy PtoP (Device -> Device)", "[CUDA memcpy Peer-to-Peer]"],
    "fused_comm_compute": [
        "deep_gemm::sm100_fp8_fp4_mega_moe_impl<7168, 2048>",
        "void deep_gemm::sm100_bf16_mega_moe_impl<4096>(int)",
        "kernel_gemm_rs_producer_persistent",
        "ep_all2all_fused_kernel",
    ],
}
# operators and exchanges of the host, where no accelerator was used
HOST = {
    "comm_unknown": ["gloo:all_to_all", "mpi:all_reduce"],
    "grouped_gemm": ["aten::_grouped_mm"],
    "gemm": ["aten::mm", "aten::addmm", "aten::baddbmm", "aten::convolution_overrideable"],
    "attention": ["aten::_scaled_dot_product_flash_attention_for_cpu"],
    "norm": ["aten::native_layer_norm", "aten::_fused_rms_norm"],
    "route_permute": ["aten::topk", "aten::index_put_", "aten::index_copy", "aten::scatter_add_"],
    "optimizer": ["aten::_fused_adamw_", "aten::_foreach_add_"],
    "memory": ["aten::copy_"],
    "elementwise": ["aten::gelu", "aten::_softmax", "torch::autograd::AccumulateGrad", "AddBackward0"],
}
COMPUTE = {
    "gemm": [
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "nvjet_sm100_tst_128x256_64x5_2x1_2cta_v_bz_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(int)",
        "void cutlass::Kernel2<cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>>(int)",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "void gemv2T_kernel_val<int, int, float, 128, 16, 2>(cublasGemvParams)",
        "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(int)",
        "void deep_gemm::fp8_gemm_kernel<7168u, 2048u, 128u, (deep_gemm::GemmType)0>(int)",
        "gemm_fusion_dot_12",
        "dot.3",
        "triton_tem_fused_mm_7",
        "cudnn_volta_scudnn_128x64_relu_xregs_large_nn_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
        "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws2x1_wr2x2",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34Gridwise",
        "void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*)",
    ],
    "grouped_gemm": [
        "void cutlass::device_kernel<cutlass::gemm::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>",
        "_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernel_for_sm10INS_4gemm17GroupProblemShapeI",
        "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::m_grouped_fp8_ptp128c::GemmKernel>(int)",
        "void deep_gemm::fp8_gemm_kernel<7168u, 2048u, 128u, (deep_gemm::GemmType)1>(int)",
        "void deep_gemm::fp8_gemm_kernel<7168u, 2048u, 128u, (deep_gemm::GemmType)2>(int)",
        "void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t>(int)",
        "setup_grouped_gemm_kernel",
        "fused_moe_kernel",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3",
        "ck_moe_stage1_kernel<BF16, 128, 128>",
        "tgmm",
        "triton_tem_fused__grouped_mm_2",
        "triton__moe_fused_kernel_0d1d2d",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(int)",
        "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<192, 64>>(Flash_fwd_params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>(int)",
        "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128>>(int)",
        "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>(int)",
        "kernel_cutlass_kernel_flash_attn_flash::FlashAttentionForwardSm100",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_f16_knob_3i_128x64x128",
        "cudnn_generated_oss_sdpa_sm100_flash_fprop",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelI",
        "triton_tem_fused_flex_attention_3",
        "kernel_unified_attention_2d",
        "_chunk_scan_fwd_kernel",
    ],
    "norm": [
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Kernel_traits<float>>(int)",
        "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>(int)",
        "kernel_cutlass_kernel_flashinfernormRMSNormKernel_object_at__tensor",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel_32x32<float, float>(long)",
        "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(int)",
        "MIOpenBatchNormBwdSpatial",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>(int)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        "XXT_kernel",
        "ba_plus_cAA_kernel",
    ],
    "quantize": [
        "void transformer_engine::dispatch::mxfp8::quantize_kernel::quantize_mxfp8_kernel<false>(int)",
        "void transformer_engine::dispatch::group_quantize_mxfp8_kernel<true>(int)",
        "void transformer_engine::detail::block_scaled_1d_cast_transpose_kernel<float>(int)",
        "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128>(int)",
        "void cuda::per_channel_cast_and_transpose<256, 128, true>(int)",
        "quantize_transpose_nvfp4_kernel",
        "void transformer_engine::swizzle_row_scaling_kernel<int>(int)",
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16>(int)",
        "sage_quant_kernel",
        "pack_mxfp8_rows",
    ],
    "elementwise": [
        "triton_poi_fused_mul_silu_split_4",
        "triton_red_fused_native_layer_norm_native_layer_norm_backward_2",
        "triton_per_fused__flash_attn_backward_mul_sigmoid_10",
        "triton__0d1d2d3d4d",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps>>(int)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(int)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(int)",
        "void cuda::swiglu_forward_backward_with_weight_impl<__nv_bfloat16>(int)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(int)",
        "rotary_kernel",
        "batched_transpose_32x32_half",
        "loop_add_fusion_3",
        "wrapped_reduce.2",
        "void cudnn::ops::nchwToNhwcKernel<float>(int)",
        "void dpsk::grouped_gemm::cuda::utils::transpose<512, 128, 4, 4>(int)",
        "<unnamed>::nvfuser_none_f0_c0_r0_g0(<unnamed>::Tensor<<unnamed>::__half, 3, 3>)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::ForEachAgent>(int)",
        "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1",
    ],
    "memory": ["Memcpy DtoD (Device -> Device)", "[CUDA memset]", "__amd_rocclr_fillBufferAligned.kd"],
    "other": ["", "my_secret_kernel", "at::cuda::(anonymous namespace)::spin_kernel(long)"],
}
LABELLED = [
    (name, category)
    for family in (HOST, EXPERT_PARALLEL, COLLECTIVES, COMPUTE)
    for category, names in family.items()
    for name in names
]
USER_RULE = """
[[rule]]
id = "secret"
category = "grouped_gemm"
pattern = "my_secret_kernel|^nvjet_"
source = "us"
"""


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier.default()


@pytest.fixture(scope="module")
def verdicts(classifier: Classifier) -> dict[str, dict[str, str | None]]:
    classified = classifier.classify(pl.Series([name for name, _ in LABELLED]))
    return {row["name"]: row for row in classified.iter_rows(named=True)}


def _kernels(*names: str) -> pl.DataFrame:
    schema = {"name": pl.String, "kind": pl.String, "copy_kind": pl.String, "dur_ns": pl.Int64}
    return pl.DataFrame([(name, "kernel", None, 1) for name in names], schema=schema, orient="row")


@pytest.mark.parametrize(("name", "category"), LABELLED)
def test_a_kernel_has_the_category_a_reader_would_give_it(
    verdicts: dict[str, dict[str, str | None]], name: str, category: str
) -> None:
    assert verdicts[name]["category"] == category, verdicts[name]["rule_id"]


@pytest.mark.parametrize("role", ["dispatch", "combine"])
def test_an_expert_exchange_is_an_all_to_all_with_its_role(
    verdicts: dict[str, dict[str, str | None]], role: str
) -> None:
    for name in EXPERT_PARALLEL[role]:
        assert (verdicts[name]["collective"], verdicts[name]["role"]) == ("all_to_all", role)
        expected = "local_epilogue" if "epilogue" in name else "payload"
        assert verdicts[name]["subrole"] == expected


def test_only_expert_exchanges_have_a_role(verdicts: dict[str, dict[str, str | None]]) -> None:
    with_role = {verdict["category"] for verdict in verdicts.values() if verdict["role"]}
    assert with_role == {"dispatch", "combine"}


def test_a_send_receive_kernel_leaves_its_collective_open(
    verdicts: dict[str, dict[str, str | None]],
) -> None:
    for name in COLLECTIVES["p2p_or_a2a"]:
        assert (verdicts[name]["collective"], verdicts[name]["subrole"]) == (None, "ambiguous")


def test_an_unknown_collective_says_so(verdicts: dict[str, dict[str, str | None]]) -> None:
    for name in COLLECTIVES["comm_unknown"]:
        assert verdicts[name]["collective"] == "unknown"


@pytest.mark.parametrize(
    "category", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"]
)
def test_a_collective_kernel_carries_the_collective_of_its_category(
    verdicts: dict[str, dict[str, str | None]], category: str
) -> None:
    assert {verdicts[name]["collective"] for name in COLLECTIVES[category]} == {category}


def test_waiting_kernels_are_barriers(verdicts: dict[str, dict[str, str | None]]) -> None:
    found = {(verdicts[name]["collective"], verdicts[name]["subrole"]) for name in EXPERT_PARALLEL["ep_sync"]}
    assert found == {("barrier", "barrier")}


def test_a_verdict_has_the_types_of_device_ops(classifier: Classifier) -> None:
    annotated = classifier.annotate(_kernels("nvjet_tst", ""))
    for column in VERDICT:
        assert annotated.schema[column] == OPS.columns[column].dtype


@pytest.mark.parametrize(
    ("kind", "copy_kind", "category"),
    [
        ("memcpy", "HtoD", "memory"),
        ("memcpy", "DtoD", "memory"),
        ("memcpy", None, "memory"),
        ("memcpy", "PtoP", "p2p_copy"),
        ("memset", None, "memory"),
        ("graph", None, "graph"),
    ],
)
def test_what_is_no_kernel_is_named_by_its_kind(
    classifier: Classifier, kind: str, copy_kind: str | None, category: str
) -> None:
    # the name would say all-reduce
    ops = _kernels("ncclDevKernel_AllReduce").with_columns(
        kind=pl.lit(kind), copy_kind=pl.lit(copy_kind, pl.String)
    )
    row = classifier.annotate(ops).row(0, named=True)
    assert (row["category"], row["class"]) == (category, CLASS_OF_CATEGORY[category])
    assert (row["collective"], row["role"], row["subrole"]) == (None, None, None)
    assert row["rule_id"].startswith("kind-")


def test_annotating_keeps_rows_in_order_and_treats_lazy_frames_alike(classifier: Classifier) -> None:
    ops = _kernels("nvjet_a", "unheard of", "nvjet_a", "ncclDevKernel_SendRecv")
    annotated = classifier.annotate(ops)
    assert annotated.select(ops.columns).equals(ops)
    assert annotated["category"].to_list() == ["gemm", "other", "gemm", "p2p_or_a2a"]
    assert annotated["class"].to_list() == ["compute", "compute", "compute", "comm"]
    assert classifier.annotate(ops.lazy()).collect().equals(annotated)


def test_annotating_again_replaces_the_verdict(classifier: Classifier) -> None:
    once = classifier.annotate(_kernels("nvjet_a"))
    stale = once.with_columns(category=pl.lit("norm"), rule_id=pl.lit("old"))
    assert classifier.annotate(stale).equals(once)


def test_annotating_works_on_categorical_names_and_on_nothing(classifier: Classifier) -> None:
    ops = _kernels("nvjet_a", "x").with_columns(pl.col("name", "copy_kind").cast(pl.Categorical))
    assert classifier.annotate(ops)["category"].to_list() == ["gemm", "other"]
    assert classifier.annotate(ops.clear()).columns == [*ops.columns, *VERDICT]


def test_every_rule_is_the_one_that_names_some_kernel_here(
    classifier: Classifier, verdicts: dict[str, dict[str, str | None]]
) -> None:
    in_use = {verdict["rule_id"] for verdict in verdicts.values()}
    assert {rule.id for rule in classifier.rules.rules} - in_use == set()


def test_user_rules_come_first_and_change_the_digest(tmp_path: Path, classifier: Classifier) -> None:
    path = tmp_path / "my.toml"
    path.write_text(USER_RULE)
    mine = Classifier.with_user_rules(path)
    names = pl.Series(["my_secret_kernel", "nvjet_a", "XXT_kernel"])
    assert mine.classify(names)["category"].to_list() == ["grouped_gemm", "grouped_gemm", "optimizer"]
    assert mine.classify(names)["rule_id"].to_list()[0] == "secret"
    assert mine.digest != classifier.digest
    path.write_text(USER_RULE.replace("grouped_gemm", "gemm"))
    assert Classifier.with_user_rules(path).digest != mine.digest


def test_the_digest_is_the_same_each_time(classifier: Classifier) -> None:
    assert Classifier.default().digest == classifier.digest


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("grouped_gemm", "matmul", "unknown category 'matmul'"),
        ("my_secret_kernel", "(", "no regular expression"),
        ('source = "us"', 'source = "us"\nrole = "both"', "unknown role 'both'"),
        ('category = "grouped_gemm"', "", "'category' is missing"),
    ],
)
def test_a_bad_user_file_is_refused_with_path_and_rule(
    tmp_path: Path, before: str, after: str, why: str
) -> None:
    path = tmp_path / "my.toml"
    path.write_text(USER_RULE.replace(before, after))
    with pytest.raises(RuleError, match=rf"my\.toml', rule secret: .*{why}"):
        Classifier.with_user_rules(path)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("ncclDevKernel_AllReduce_" + "x" * 10_000, "all_reduce"),
        ("x" * 10_000 + "ncclDevKernel_AllReduce", "other"),
        ("\u202ellec lenrek\u202c", "other"),
        ("\u202encclDevKernel_AllReduce\u202c", "all_reduce"),
        ("line\nncclMystery", "other"),
        ("\x00\n\t", "other"),
    ],
)
def test_hostile_names_are_matched_as_far_as_the_bound(
    classifier: Classifier, name: str, category: str
) -> None:
    row = classifier.classify(pl.Series([name])).row(0, named=True)
    assert (row["name"], row["category"]) == (name, category)


@settings(max_examples=25, deadline=None)
@given(names=st.lists(st.text(max_size=30), min_size=5))
def test_every_name_gets_one_verdict_with_a_rule(classifier: Classifier, names: list[str]) -> None:
    classified = classifier.classify(pl.Series(names, dtype=pl.String))
    assert classified["name"].to_list() == list(dict.fromkeys(names))
    assert classified["category"].null_count() == classified["rule_id"].null_count() == 0
    other = classified.filter(pl.col("category") == "other")
    assert set(other["rule_id"].cast(pl.String)) <= {UNMATCHED_RULE}


def test_unmatched_is_the_share_of_kernel_time_and_its_longest_names(classifier: Classifier) -> None:
    ops = _kernels("alpha", "beta", "alpha", "nvjet_a", "copy").with_columns(
        pl.Series("dur_ns", [10, 25, 20, 45, 1000]),
        kind=pl.Series(["kernel", "kernel", "kernel", "kernel", "memcpy"]),
    )
    share, names = unmatched(classifier.annotate(ops))
    assert share == pytest.approx(0.55)
    assert names == ["alpha", "beta"]


def test_unmatched_is_nothing_without_kernel_time(classifier: Classifier) -> None:
    assert unmatched(classifier.annotate(_kernels())) == (0.0, [])
