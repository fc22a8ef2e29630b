"""Operations per token against published figures, and against a count by brute force."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview import hardware
from traceview.errors import UsageError
from traceview.flops import CONVENTIONS, PARTS, per_token
from traceview.models import GroupedQuery, Latent, Model, known, named
from traceview.references import PublishedRun, best_run, references

DEEPSEEK = named("deepseek-v3")
GIGA = 1e9


# --- published figures -------------------------------------------------------------------------------


def run_id(run: PublishedRun) -> str:
    return f"{run.model}-{run.gpu}-{run.release}-{run.tflops_per_gpu:g}"


@pytest.mark.parametrize("run", references().runs, ids=run_id)
def test_published_tokens_and_tflops_agree_within_half_a_percent(run: PublishedRun) -> None:
    flops = per_token(named(run.model), run.seq_len, mtp_layers=run.mtp_layers)
    assert flops.tflops_per_gpu(run.tokens_per_s_per_gpu) == pytest.approx(run.tflops_per_gpu, rel=0.005)
    assert flops.tokens_per_s_per_gpu(run.tflops_per_gpu) == pytest.approx(
        run.tokens_per_s_per_gpu, rel=0.005
    )


def test_every_row_of_the_published_table_is_there() -> None:
    assert len(references().runs) == 33
    assert {(run.tokens_per_s_per_gpu, run.tflops_per_gpu) for run in references().runs} >= {
        (6338, 1648), (6422, 1670), (1297, 338), (9015, 1335), (45275, 1041), (5372, 1099), (33166, 1081), (1543, 385),
    }  # fmt: skip


def test_the_record_is_exact_to_what_was_printed() -> None:
    flops = per_token(DEEPSEEK, 4096)
    assert flops.per_token / GIGA == pytest.approx(259.993, abs=5e-4)
    assert round(flops.tflops_per_gpu(6338)) == 1648
    assert int(flops.tokens_per_s_per_gpu(1648)) == 6338
    assert round(flops.tokens_per_s_per_gpu(606)) == 2331
    assert flops.counted == ("megatron: causal half, MTP 1, no router, no recompute, no optimizer")


def test_the_conventions_differ_as_their_projects_do() -> None:
    totals = {name: per_token(DEEPSEEK, 4096, convention=name).per_token / GIGA for name in CONVENTIONS}
    assert totals["megatron"] == pytest.approx(259.993, abs=5e-4)
    assert totals["torchtitan"] == pytest.approx(281.15, abs=0.005)
    assert totals["maxtext"] == pytest.approx(250.45, abs=0.005)
    assert totals["torchtitan"] / totals["megatron"] - 1 == pytest.approx(0.081, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "mtp_layers", "gflop"),
    [
        ("deepseek-v3", 1, 259.993),
        ("deepseek-v3", 0, 249.812),
        ("kimi-k2", None, 204.477),
        ("qwen3-235b-a22b", None, 148.035),
        ("qwen3-30b-a3b", None, 23.006),
        ("mixtral-8x7b", None, 79.706),
        ("mixtral-8x22b", None, 242.196),
        ("glm-4.5", 0, 224.47),
        ("glm-4.5", 1, 231.83),
        ("glm-4.5-air", 0, 90.56),
        ("gpt-oss-120b", None, 32.63),
    ],
)
def test_a_token_of_4096_costs_what_is_known(name: str, mtp_layers: int | None, gflop: float) -> None:
    found = per_token(named(name), 4096, mtp_layers=mtp_layers).per_token / GIGA
    assert found == pytest.approx(gflop, abs=0.005)


@pytest.mark.parametrize(("name", "gflop"), [("gpt-oss-120b", 34.33), ("gpt-oss-20b", 24.05)])
def test_without_its_windows_gpt_oss_costs_more(name: str, gflop: float) -> None:
    full = replace(named(name), window=0, window_layers=0)
    assert per_token(full, 4096).per_token / GIGA == pytest.approx(gflop, abs=0.005)


@pytest.mark.parametrize(
    ("seq_len", "gflop"),
    [
        (8192, 291.2),
        (16384, 353.6),
        (32768, 478.4),
        (65536, 728.1),
        (131072, 1227),
        (262144, 2226),
    ],
)
def test_longer_sequences_cost_more_attention(seq_len: int, gflop: float) -> None:
    assert per_token(DEEPSEEK, seq_len).per_token / GIGA == pytest.approx(gflop, rel=5e-4)


def test_attention_dominates_long_sequences_as_published() -> None:
    flops = per_token(DEEPSEEK, 65536)
    assert flops.parts["core_attention"] / flops.per_token == pytest.approx(0.686, abs=5e-4)
    qwen = per_token(named("qwen3-235b-a22b"), 131072).per_token / GIGA
    assert qwen == pytest.approx(734.7, abs=0.05)


def test_the_split_by_part_is_the_known_one() -> None:
    parts = per_token(DEEPSEEK, 4096).parts
    assert {part: round(flops / GIGA, 1) for part, flops in parts.items()} == {
        "experts": 124.7,
        "shared_experts": 15.6,
        "dense_mlp": 7.1,
        "attention_linears": 69.6,
        "core_attention": 31.2,
        "logits": 11.1,
        "mtp_projection": 0.6,
        "router": 0,
    }


def test_the_mfu_of_the_record_is_the_published_share_of_both_peaks() -> None:
    gpu, reached = hardware.named("GB300"), per_token(DEEPSEEK, 4096).tflops_per_gpu(6338)
    shares = [
        reached / peak.tflops
        for peak in (gpu.peak("bf16"), gpu.peak("fp8"), gpu.peak("fp8", name="ml-eng"))
        if peak
    ]
    assert shares == pytest.approx([0.673, 0.336, 0.330], abs=5e-4)


def test_references_are_about_known_models_and_gpus_and_name_their_source() -> None:
    gpus = {device.name for device in hardware.devices()}
    for run in references().runs:
        assert run.model in known()
        assert run.gpu in gpus
        assert run.source
        assert run.precision in {None, *hardware.PRECISIONS}
    kept = {(kept.framework, kept.ratio) for kept in references().retentions if kept.to_gpus == 1024}
    assert kept == {("megatron", 0.985), ("torchtitan", 0.97), ("maxtext", 0.97)}
    assert all(kept.source and kept.model in known() for kept in references().retentions)


def test_the_best_published_run_is_the_fastest_of_that_model_on_that_gpu() -> None:
    best = best_run("deepseek-v3", "GB300")
    assert best
    assert best.tokens_per_s_per_gpu == 6422
    assert best_run("mixtral-8x7b", "GB300") is None


# --- a count by brute force --------------------------------------------------------------------------


def attended(documents: list[int], window: int, *, causal: bool) -> float:
    """Token pairs as projects count them: half the square, or what the window lets through."""
    pairs = 0.0
    for length in documents:
        if window and window < length:
            pairs += sum(min(place + 1, window) if causal else window for place in range(length))
        else:
            pairs += length * length / (2 if causal else 1)
    return pairs / sum(documents)


def matmul(rows: int, columns: int) -> int:
    """Multiply-adds of one token through one weight matrix."""
    return rows * columns


def by_layer(model: Model, documents: list[int], convention: str, *, causal: bool, mtp: int) -> float:
    """Operations per token, layer by layer and matrix by matrix."""
    counted = CONVENTIONS[convention]
    mtp = mtp if counted.counts_mtp else 0
    h, total = model.hidden, 0.0
    for layer in range(model.layers + mtp):
        attention = model.attention
        if isinstance(attention, GroupedQuery):
            q, kv = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
            total += matmul(h, q) + 2 * matmul(h, kv) + matmul(q, h)
            per_pair = 2 * q
        else:
            q = attention.heads * (attention.nope_dim + attention.rope_dim)
            if attention.q_lora:
                total += matmul(h, attention.q_lora) + attention.q_lora + matmul(attention.q_lora, q)
            else:
                total += matmul(h, q)
            total += matmul(h, attention.kv_lora) + attention.kv_lora + matmul(h, attention.rope_dim)
            total += matmul(attention.kv_lora, attention.heads * (attention.nope_dim + attention.v_dim))
            total += matmul(attention.heads * attention.v_dim, h)
            per_pair = q + attention.heads * attention.v_dim
        window = model.window if layer < model.window_layers and counted.counts_window else 0
        total += per_pair * attended(documents, window, causal=causal)
        gates = range(3 if model.is_gated else 2)
        if layer < model.dense_layers:
            total += sum(matmul(h, model.dense_ffn) for _ in gates)
        else:
            total += sum(matmul(h, model.expert_ffn) for _ in gates for _ in range(model.top_k))
            total += sum(matmul(h, model.shared_ffn) for _ in gates)
            total += matmul(h, model.experts) if counted.counts_router else 0
        if layer >= model.layers:
            total += matmul(2 * h, h) + 3 * h + matmul(h, model.vocabulary)
    return 6 * (total + matmul(h, model.vocabulary))


SMALL = st.integers(1, 9)


@st.composite
def models(draw: st.DrawFn) -> Model:
    layers, heads = draw(SMALL), draw(SMALL)
    latent = Latent(
        heads=heads, q_lora=draw(st.integers(0, 9)), kv_lora=draw(SMALL), nope_dim=draw(SMALL),
        rope_dim=draw(st.integers(0, 9)), v_dim=draw(SMALL),
    )  # fmt: skip
    grouped = GroupedQuery(heads=heads, kv_heads=1, head_dim=draw(SMALL))
    return Model(
        name="m", source="s", layers=layers, hidden=draw(SMALL), vocabulary=draw(SMALL),
        attention=latent if draw(st.booleans()) else grouped, experts=9, top_k=draw(SMALL), expert_ffn=draw(SMALL),
        shared_ffn=draw(st.integers(0, 9)), dense_layers=draw(st.integers(0, layers)), dense_ffn=draw(SMALL),
        is_gated=draw(st.booleans()), window=draw(SMALL), window_layers=draw(st.integers(0, layers)),
    )  # fmt: skip


@given(
    models(),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.sampled_from(list(CONVENTIONS)),
    st.sampled_from([True, False]),
    st.integers(0, 2),
)
def test_parts_add_up_to_a_count_layer_by_layer(
    model: Model,
    documents: list[int],
    convention: str,
    causal: bool,  # noqa: FBT001 - drawn by hypothesis
    mtp: int,
) -> None:
    flops = per_token(model, documents, convention=convention, causal=causal, mtp_layers=mtp)
    assert set(flops.parts) == set(PARTS)
    assert flops.per_token == pytest.approx(by_layer(model, documents, convention, causal=causal, mtp=mtp))


def test_packed_documents_cost_the_mean_of_their_squares() -> None:
    lengths = [1024, 3072]
    packed = per_token(DEEPSEEK, lengths).parts["core_attention"]
    mean = sum(length**2 for length in lengths) / sum(lengths)
    assert packed == pytest.approx(per_token(DEEPSEEK, 4096).parts["core_attention"] * mean / 4096)
    assert per_token(DEEPSEEK, [4096, 4096]).per_token == per_token(DEEPSEEK, 4096).per_token


def test_a_causal_mask_is_half_of_all_attention_and_can_be_left_out_of_the_count() -> None:
    half, full = (per_token(DEEPSEEK, 4096, causal=causal) for causal in (True, False))
    assert full.parts["core_attention"] == 2 * half.parts["core_attention"]
    assert "full attention" in full.counted
    titan = per_token(DEEPSEEK, 4096, convention="torchtitan")
    assert not titan.is_causal
    assert titan.parts["core_attention"] == pytest.approx(full.parts["core_attention"] * 61 / 62)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="megatron, torchtitan, maxtext"):
        per_token(DEEPSEEK, 4096, convention="palm")
    for lengths in (0, -1, [], [4096, 0]):
        with pytest.raises(UsageError, match="positive"):
            per_token(DEEPSEEK, lengths)
