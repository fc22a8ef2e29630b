from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from traceview.schema import RANGES
from traceview.vocabulary import KINDS, parse, range_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    Told = Mapping[str, Mapping[str, object]]

# raw name → kind and what else it tells, by hand from each framework's sources or traces
STEPS: Told = {
    "ProfilerStep#12": {"name": "ProfilerStep", "step": 12},
    "iteration 5": {"name": "iteration", "step": 5},
    "Iteration 7": {"name": "Iteration", "step": 7},
    "step 4": {"name": "step", "step": 4},
    "train_step 3": {"name": "train_step", "step": 3},
    "global_step=8": {"name": "global_step", "step": 8},
    "train#step_num=9,_r=1#": {"name": "train", "step": 9},
    "tv:step|s=4": {"name": "step", "step": 4},
}
LAYERS: Told = {
    "layer_3f": {"name": "layer", "layer": 3, "phase": "forward"},
    "layer_12b": {"name": "layer", "layer": 12, "phase": "backward"},
    "model.layers.12": {"name": "model.layers", "layer": 12},
    "nn.Module: Qwen2DecoderLayer_11": {"name": "nn.Module: Qwen2DecoderLayer", "layer": 11},
    "tv:layer|mb=2|l=5|phase=fwd": {"name": "layer", "layer": 5, "microbatch": 2, "phase": "forward"},
}
PHASES: Told = {
    "Optimizer.step#Adam.step": {"phase": "optimizer"},
    "Optimizer.zero_grad#Adam.zero_grad": {"phase": "optimizer"},
    "## optimizer ##": {"phase": "optimizer"},
    "## forward ##": {"phase": "forward"},
    "## backward ##": {"phase": "backward"},
    "forward_step": {"phase": "forward"},
    "backward-compute": {"phase": "backward"},
    "DistributedDataParallel.forward": {"phase": "forward"},
    "autograd::engine::evaluate_function: AddmmBackward0": {"phase": "backward"},
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad": {"phase": "backward"},
    "_GroupedLinearBackward": {"phase": "backward"},
    "AddmmBackward0, seq = 12, op_id = 9": {"name": "AddmmBackward0", "phase": "backward"},
    "autograd::engine::evaluate_function: CheckpointFunctionBackward": {"phase": "recompute"},
    "recompute mlp": {"phase": "recompute"},
    "FSDP::pre_forward (layers.3)": {"name": "FSDP::pre_forward", "layer": 3, "phase": "forward"},
    "FullyShardedDataParallel._pre_backward_prefetch": {"phase": "backward"},
    "FSDP::pre_backward (root)": {"name": "FSDP::pre_backward", "phase": "backward"},
    "transformer_engine._Linear.forward.gemm": {"phase": "forward"},
    "jit(step)/transpose(jvp(Model))/decoder/add": {"phase": "backward"},
    "jit(step)/jvp(Model)/decoder/add": {"phase": "forward"},
    "tv:backward|mb=1": {"name": "backward", "microbatch": 1, "phase": "backward"},
}
PARTS: Told = {
    "moe_dispatch forward": {"name": "moe_dispatch", "part": "dispatch", "phase": "forward"},
    "moe_combine backward": {"name": "moe_combine", "part": "combine", "phase": "backward"},
    "mlp wgrad": {"name": "mlp", "part": "mlp", "phase": "backward"},
    "pre_dispatch_computation forward": {
        "name": "pre_dispatch_computation",
        "part": "pre_dispatch",
        "phase": "forward",
    },
    "post_process backward": {"name": "post_process", "part": "loss", "phase": "backward"},
    "post_attn backward": {"name": "post_attn", "part": "attention", "phase": "backward"},
    "shared_expert forward": {"name": "shared_expert", "part": "shared_expert", "phase": "forward"},
    "post_combine forward": {"name": "post_combine", "part": "post_combine", "phase": "forward"},
    "mtp_post_process forward": {"name": "mtp_post_process", "part": "mtp", "phase": "forward"},
    "pre_process forward": {"name": "pre_process", "part": "embedding", "phase": "forward"},
    "delayed_expert_wgrad": {"part": "expert", "phase": "backward"},
    "TransformerLayer._forward_attention.self_attention": {"part": "attention"},
    "TransformerLayer._forward_mlp.mlp": {"part": "mlp"},
    "MLP.forward.linear_fc1": {"part": "mlp"},
    "transformer_engine._GroupedLinear.forward.gemm": {"part": "expert", "phase": "forward"},
    "_GroupedLinear_wgrad": {"part": "expert", "phase": "backward"},
    "layers.12.mlp": {"name": "layers.mlp", "layer": 12, "part": "mlp"},
    "model.layers.4.mlp.experts.0": {"name": "model.layers.mlp.experts.0", "layer": 4, "part": "expert"},
    "layers.4.mlp.shared_experts": {"name": "layers.mlp.shared_experts", "layer": 4, "part": "shared_expert"},
    "layers.4.mlp.gate": {"name": "layers.mlp.gate", "layer": 4, "part": "router"},
    "transformer.h.3.attn": {"name": "transformer.h.attn", "layer": 3, "part": "attention"},
    "nn.Module: MoELayer_3": {"name": "nn.Module: MoELayer", "part": "moe"},
    "nn.Module: TopKRouter_0": {"name": "nn.Module: TopKRouter", "part": "router"},
    "nn.Module: SelfAttention_2": {"name": "nn.Module: SelfAttention", "part": "attention"},
    "nn.Module: SharedExpertMLP_1": {"name": "nn.Module: SharedExpertMLP", "part": "shared_expert"},
    "nn.Module: TEGroupedMLP_1": {"name": "nn.Module: TEGroupedMLP", "part": "expert"},
    "nn.Module: VocabParallelEmbedding_0": {"name": "nn.Module: VocabParallelEmbedding", "part": "embedding"},
    "nn.Module: CrossEntropyLoss_0": {"name": "nn.Module: CrossEntropyLoss", "part": "loss"},
    "nn.Module: Qwen2MLP_8": {"name": "nn.Module: Qwen2MLP", "part": "mlp"},
    "nn.Module: LayerNorm_3": {"name": "nn.Module: LayerNorm", "part": "norm"},
    "attn(F)": {"name": "attn", "part": "attention", "phase": "forward"},
    "mlp(W)": {"name": "mlp", "part": "mlp", "phase": "backward"},
    "dispatch(B)": {"name": "dispatch", "part": "dispatch", "phase": "backward"},
    "combine(F)": {"name": "combine", "part": "combine", "phase": "forward"},
    "layer07.stage2_f": {"name": "layer.stage2", "layer": 7, "part": "dispatch", "phase": "forward"},
    "layer07.stage1_f": {"name": "layer.stage1", "layer": 7, "part": "pre_dispatch", "phase": "forward"},
    "layer07.stage4_b": {"name": "layer.stage4", "layer": 7, "part": "combine", "phase": "backward"},
    "layer07.stage5_f": {"name": "layer.stage5", "layer": 7, "part": "post_combine", "phase": "forward"},
    "layer11.stage3_w": {"name": "layer.stage3", "layer": 11, "part": "expert", "phase": "backward"},
    "deepep::dispatch": {"part": "dispatch"},
    "hybridep::combine_bwd": {"part": "combine", "phase": "backward"},
    "hybrid-ep dispatch with permute phase": {"part": "dispatch"},
    "combine_core in hybrid-ep": {"part": "combine"},
    "allgather_routing_map in hybrid-ep": {"part": "router"},
    "token_dispatch": {"part": "dispatch"},
    "jit(s)/jvp(M)/decoder/combine/add": {"part": "combine", "phase": "forward"},
    "sort_activations": {"part": "permute"},
    "wi_0": {"part": "expert"},
    "weight_sum": {"part": "post_combine"},
    "jit(s)/transpose(jvp(M))/decoder/layers_3/Moe_0/wo/dot_general": {
        "layer": 3,
        "part": "expert",
        "phase": "backward",
    },
    "jit(s)/transpose(jvp(M))/checkpoint/rematted_computation/layers_1/dispatch": {
        "layer": 1,
        "part": "dispatch",
        "phase": "recompute",
    },
    "layers.7.moe": {"name": "layers.moe", "layer": 7, "part": "moe"},
    "Self-Attention": {"part": "attention"},
    "MLP": {"part": "mlp"},
    "router": {"part": "router"},
    "moe permute": {"part": "permute"},
    "experts": {"part": "expert"},
    "shared_expert": {"part": "shared_expert"},
    "MoE[experts=64, tokens=16, topk=2]": {"part": "moe"},
    "loss_fn": {"part": "loss"},
    "tv:moe.dispatch|l=3|mb=0": {"name": "moe.dispatch", "layer": 3, "microbatch": 0, "part": "dispatch"},
    "tv:moe.combine|phase=bwd|pp=1|s=7|l=2|mb=4": {
        "name": "moe.combine",
        "step": 7,
        "layer": 2,
        "microbatch": 4,
        "stage": 1,
        "part": "combine",
        "phase": "backward",
    },
    "tv:attention": {"name": "attention", "part": "attention"},
    "tv:moe.expert|l=1|tok=4096|ex=8": {
        "name": "moe.expert",
        "layer": 1,
        "tokens": 4096,
        "experts": 8,
        "part": "expert",
    },
}
SCHEDULES: Told = {
    "layer_3f-layer_5b": {"name": "layer_f-layer_b"},
    "1F1B": {},
    "forward_backward.steady": {},
    "PP:1F3": {"name": "PP:F", "stage": 1, "microbatch": 3, "phase": "forward"},
    "PP:0B12": {"name": "PP:B", "stage": 0, "microbatch": 12, "phase": "backward"},
    "PP:0I2": {"name": "PP:I", "stage": 0, "microbatch": 2, "phase": "backward"},
    "PP:2W5": {"name": "PP:W", "stage": 2, "microbatch": 5, "phase": "backward"},
    "PP:1SEND_F3": {
        "name": "PP:SEND_F",
        "stage": 1,
        "microbatch": 3,
        "part": "pp_send",
        "phase": "forward",
    },
    "PP:1RECV_B3": {
        "name": "PP:RECV_B",
        "stage": 1,
        "microbatch": 3,
        "part": "pp_recv",
        "phase": "backward",
    },
    "PP:3UNSHARD": {"name": "PP:UNSHARD", "stage": 3, "part": "param_gather"},
    "PP:3REDUCE_GRAD": {"name": "PP:REDUCE_GRAD", "stage": 3, "part": "grad_reduce", "phase": "backward"},
    "PP:(0F7;1B3)OVERLAP_F_B": {},
    "tv:pp.send|pp=1|mb=3": {"name": "pp.send", "stage": 1, "microbatch": 3, "part": "pp_send"},
    "tv:pp.recv|pp=2": {"name": "pp.recv", "stage": 2, "part": "pp_recv"},
    "Backward 3": {"name": "Backward", "microbatch": 3, "phase": "backward"},
}
COMMUNICATION: Told = {
    "nccl:all_to_all": {"part": "all_to_all"},
    "nccl:_all_gather_base": {"part": "_all_gather_base"},
    "nccl:send 0->1": {"name": "nccl:send", "part": "send"},
    "gloo:barrier": {"part": "barrier"},
    "ncclAlltoAll": {"part": "AlltoAll"},
    "ncclAllToAllv": {"part": "AllToAllv"},
    "ncclReduceScatter": {"part": "ReduceScatter"},
    "## all2all_data:kjt splits ##": {"part": "all_to_all"},
    "all-grads-sync": {"part": "grad_reduce"},
    "params-all-gather": {"part": "param_gather"},
    "## alltoall_bwd_single ##": {"part": "alltoall", "phase": "backward"},
    "FSDP::all_gather (layers.3.moe)": {"name": "FSDP::all_gather", "layer": 3, "part": "param_gather"},
    "FSDP::post_backward_reduce": {"part": "grad_reduce", "phase": "backward"},
    "tv:grad_reduce|l=3": {"name": "grad_reduce", "layer": 3, "part": "grad_reduce", "phase": "backward"},
}
OTHERS: Told = {
    "": {},
    "my range": {},
    "step[DECODE bs=8]": {},
    "ncclGroupStart": {},
    "save checkpoint": {},
    "aten::mm, op_id = 8": {"name": "aten::mm"},
    "nn.Module: Linear_7": {"name": "nn.Module: Linear"},
    "## Call CompiledFxGraph fz4gih4pgugpot6phta55no7ibvw ##": {"name": "## Call CompiledFxGraph"},
    "activation offloading layer": {"part": "offload"},
    "blocks.2.ls1": {"name": "blocks.ls1", "layer": 2},
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": {"part": "data_loading"},
    "tv:my thing|foo=1|l=x": {"name": "my thing"},
    "dispatch\nforward": {},
}
FAMILIES = {
    "step": STEPS,
    "layer": LAYERS,
    "phase": PHASES,
    "moe_part": PARTS,
    "schedule": SCHEDULES,
    "comm": COMMUNICATION,
    "other": OTHERS,
}
EXPECTED = {raw: {"kind": kind, **told} for kind, family in FAMILIES.items() for raw, told in family.items()}


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, object]]:
    return {row["raw_name"]: row for row in parse(pl.Series(list(EXPECTED))).iter_rows(named=True)}


@pytest.mark.parametrize("raw_name", EXPECTED)
def test_a_name_tells_what_its_framework_means(told: dict[str, dict[str, object]], raw_name: str) -> None:
    nothing = dict.fromkeys(("step", "layer", "microbatch", "stage", "tokens", "experts", "phase", "part"))
    expected = {"raw_name": raw_name, "name": raw_name, **nothing, **EXPECTED[raw_name]}
    assert told[raw_name] == expected


def test_numbers_too_large_for_their_column_are_unknown() -> None:
    huge = parse(pl.Series([f"ProfilerStep#{10**30}", f"layer_{2**31}f", f"layer_{2**31 - 1}f"]))
    assert huge["step"].to_list() == [None, None, None]
    assert huge["layer"].to_list() == [None, None, 2**31 - 1]


def test_each_distinct_name_has_one_row_and_columns_typed_as_in_ranges() -> None:
    parsed = parse(pl.Series(["step 1", "x", "step 1", None]))
    assert parsed["raw_name"].to_list() == ["step 1", "x"]
    for column in parsed.columns[1:]:
        assert parsed.schema[column] == RANGES.columns[column].dtype


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical()])
def test_raw_names_keep_their_dtype_so_that_they_join_with_the_names_they_came_from(
    dtype: pl.DataType,
) -> None:
    assert parse(pl.Series(["step 1"], dtype=dtype)).schema["raw_name"] == dtype
    assert parse(pl.Series([], dtype=dtype)).shape == (0, 11)


def test_kinds_are_those_of_the_ranges_table() -> None:
    assert RANGES.columns["kind"].dtype == pl.Enum(list(KINDS))


def test_every_rule_is_the_one_that_reads_some_name_here() -> None:
    in_use = set(range_rules().match(pl.Series(list(EXPECTED)))["rule_id"])
    assert {rule.id for rule in range_rules().rules} - in_use == set()
