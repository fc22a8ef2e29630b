"""Model shapes: the shipped ones, files of one's own, and configs of Hugging Face, hostile ones included."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview import documents, huggingface
from traceview.documents import Fields
from traceview.errors import UsageError
from traceview.models import GroupedQuery, Latent, Model, known, named, read

if TYPE_CHECKING:
    from pathlib import Path

# the keys that decide, as the checkpoints on Hugging Face have them
CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek-v3": {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 129280,
        "num_experts_per_tok": 8, "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        "intermediate_size": 18432, "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
        "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_scaling": {"type": "yarn"},
    },
    "kimi-k2": {
        "model_type": "kimi_k2", "num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840,
        "num_experts_per_tok": 8, "n_routed_experts": 384, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        "intermediate_size": 18432, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 0,
        "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "vocab_size": 151936,
        "num_experts_per_tok": 8, "num_experts": 128, "moe_intermediate_size": 1536, "intermediate_size": 12288,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "num_attention_heads": 64, "num_key_value_heads": 4,
        "head_dim": 128, "sliding_window": None, "use_sliding_window": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 32000,
        "num_experts_per_tok": 2, "num_local_experts": 8, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "sliding_window": None,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "vocab_size": 201088,
        "num_experts_per_tok": 4, "num_local_experts": 32, "intermediate_size": 2880, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
    "glm-4.5": {
        "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120, "vocab_size": 151552,
        "num_experts_per_tok": 8, "n_routed_experts": 160, "n_shared_experts": 1, "moe_intermediate_size": 1536,
        "intermediate_size": 12288, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
    },
}  # fmt: skip

OWN = """
layers = 2
hidden = 64
vocabulary = 100
experts = 8
top_k = 2
expert_ffn = 32
grouped_query = { heads = 4, kv_heads = 2, head_dim = 16 }
"""


def saved(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def shape(model: Model) -> Model:
    return replace(model, name="", source="")


# --- what ships --------------------------------------------------------------------------------------


def test_the_promised_models_ship_with_their_sources() -> None:
    assert list(known()) == [
        "deepseek-v3", "kimi-k2", "qwen3-235b-a22b", "qwen3-30b-a3b", "mixtral-8x7b", "mixtral-8x22b",
        "gpt-oss-120b", "gpt-oss-20b", "glm-4.5", "glm-4.5-air",
    ]  # fmt: skip
    assert all(model.source for model in known().values())


@pytest.mark.parametrize(
    ("name", "billions"),
    [  # total parameters as published, embedding counted once per end
        ("deepseek-v3", 671),
        ("kimi-k2", 1026),
        ("qwen3-235b-a22b", 235),
        ("qwen3-30b-a3b", 30.5),
        ("mixtral-8x7b", 46.7),
        ("mixtral-8x22b", 141),
        ("gpt-oss-120b", 116.8),
        ("gpt-oss-20b", 20.9),
        ("glm-4.5", 353),
        ("glm-4.5-air", 107),
    ],
)
def test_a_shape_has_the_published_number_of_parameters(name: str, billions: float) -> None:
    model = named(name)
    moe_layers = model.layers - model.dense_layers
    expert = 3 * model.hidden * model.expert_ffn
    total = model.layers * model.attention.linear_parameters(model.hidden)
    total += moe_layers * (
        model.experts * expert + 3 * model.hidden * model.shared_ffn + model.hidden * model.experts
    )
    total += model.dense_layers * 3 * model.hidden * model.dense_ffn
    total += 2 * model.vocabulary * model.hidden
    assert total / 1e9 == pytest.approx(billions, rel=0.01)


def test_names_are_forgiving_and_a_wrong_one_is_told_the_nearest() -> None:
    assert named(" DeepSeek_V3 ") is known()["deepseek-v3"]
    with pytest.raises(UsageError, match="Did you mean deepseek-v3"):
        named("deepsek-v3")
    with pytest.raises(UsageError, match="Known: deepseek-v3"):
        named("no such thing at all")


# --- configs of checkpoints --------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_of_a_checkpoint_gives_the_shape_that_ships(name: str, tmp_path: Path) -> None:
    model = read(saved(tmp_path / name / "config.json", CONFIGS[name]))
    assert shape(model) == shape(known()[name])
    assert (model.name, model.source) == (name, "config.json")


def test_a_missing_query_rank_means_a_plain_projection(tmp_path: Path) -> None:
    config = CONFIGS["deepseek-v3"] | {"q_lora_rank": None}
    attention = read(saved(tmp_path / "config.json", config)).attention
    assert isinstance(attention, Latent)
    query = 128 * (128 + 64)
    latent = 512 * (7168 + 128 * (128 + 128) + 1)
    assert attention.linear_parameters(7168) == 7168 * query + latent + 7168 * 64 + 128 * 128 * 7168


def test_dense_layers_of_qwen_are_those_between_and_those_named(tmp_path: Path) -> None:
    config = CONFIGS["qwen3-235b-a22b"] | {"decoder_sparse_step": 2, "mlp_only_layers": [1, 0]}
    model = read(saved(tmp_path / "config.json", config))
    assert (model.dense_layers, model.dense_ffn) == (47 + 1, 12288)  # even layers, and layer 1


def test_windows_count_only_where_the_config_switches_them_on(tmp_path: Path) -> None:
    mixtral = read(saved(tmp_path / "a.json", CONFIGS["mixtral-8x7b"] | {"sliding_window": 4096}))
    assert (mixtral.window, mixtral.window_layers) == (4096, 32)
    switched_off = CONFIGS["qwen3-235b-a22b"] | {"sliding_window": 4096}
    assert read(saved(tmp_path / "b.json", switched_off)).window_layers == 0
    switched_on = switched_off | {"use_sliding_window": True}
    assert read(saved(tmp_path / "c.json", switched_on)).window_layers == 94


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": None}, "model_type"),
        ({"model_type": "deepseek_v2"}, "nearest: deepseek_v3"),
        ({"model_type": ["deepseek_v3"]}, "must be a text"),
        ({"num_hidden_layers": None}, "'num_hidden_layers' is missing"),
        ({"num_hidden_layers": 10**9}, "layers"),
        ({"num_hidden_layers": True}, "whole number"),
        ({"hidden_size": "7168"}, "whole number"),
        ({"hidden_size": -7168}, "whole number"),
        ({"hidden_size": 7168.5}, "whole number"),
        ({"hidden_size": 10**400}, "whole number"),
        ({"hidden_size": float("inf")}, "whole number"),
        ({"num_attention_heads": 0}, "whole number"),
        ({"n_shared_experts": 10**12}, "shared_ffn"),
        ({"num_experts_per_tok": 300}, "top_k cannot exceed experts"),
        ({"first_k_dense_replace": 62}, "dense_layers cannot exceed layers"),
        ({"moe_layer_freq": 2}, "moe_layer_freq"),
    ],
)
def test_a_config_with_an_impossible_value_is_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "config.json", CONFIGS["deepseek-v3"] | change)
    with pytest.raises(UsageError, match=complaint):
        read(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layer_types": None}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 25}, "window_layers cannot exceed layers"),
        ({"num_key_value_heads": 7}, "kv_heads must divide heads"),
    ],
)
def test_impossible_attention_is_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(saved(tmp_path / "config.json", CONFIGS["gpt-oss-20b"] | change))


def test_layer_numbers_of_qwen_must_be_numbers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mlp_only_layers"):
        read(saved(tmp_path / "config.json", CONFIGS["qwen3-235b-a22b"] | {"mlp_only_layers": ["all"]}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(CONFIGS)), st.data())
def test_whatever_a_config_says_it_is_a_model_or_a_plain_refusal(name: str, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from(list(CONFIGS[name])), max_size=3))
    config = CONFIGS[name] | {key: data.draw(JSON) for key in keys}
    try:
        fields = huggingface.model_fields(config, "config.json")
        model = Model.of(Fields(fields, "config.json"), name="m", source="s")
    except UsageError:
        return
    assert model.layers > 0


# --- files of one's own ------------------------------------------------------------------------------


def test_a_model_of_ones_own_is_a_toml_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "tiny.toml", OWN)
    model = named(str(path))
    assert model.attention == GroupedQuery(heads=4, kv_heads=2, head_dim=16)
    assert (model.name, model.source, model.is_gated) == ("tiny", "tiny.toml", True)
    listed = saved(tmp_path / "listed.toml", "[[model]]\nname = 'mine'" + OWN)
    assert shape(read(listed)) == shape(model)
    assert read(listed).name == "mine"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("layers = ", "not TOML"),
        ("\x00", "not TOML"),
        (OWN + "hiden = 3", "did you mean 'hidden'"),
        (OWN.replace("layers = 2", ""), "'layers' is missing"),
        (OWN.replace("grouped_query", "#"), "grouped_query"),
        (OWN + "latent = { heads = 1, kv_lora = 1, nope_dim = 1, v_dim = 1 }", "grouped_query"),
        (OWN.replace("{ heads = 4, kv_heads = 2, head_dim = 16 }", "16"), "must be a table"),
        (OWN.replace("kv_heads = 2", "kv_heads = 2, sinks = 1"), "unknown field 'sinks'"),
        (OWN + "is_gated = 1", "true or false"),
        (OWN + "name = 3", "must be a text"),
        (OWN + "window_layers = 1", "need its length"),
        (OWN + "dense_layers = 1", "need their width"),
        ("[[model]]" + OWN + "[[model]]" + OWN, "one model"),
        ("model = 3", "one model"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_what_is_wrong(
    text: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(saved(tmp_path / "own.toml", text))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", "{", "not JSON"),
        ("config.json", "[]", "no table"),
        ("config.json", "[" * 100_000, "not JSON"),
        ("config.json", '{"hidden_size": ' + "9" * 5000 + "}", "not JSON"),
        ("big.toml", "#" * (documents.LARGEST_FILE + 1), "larger than"),
    ],
)
def test_what_is_no_document_is_refused(name: str, content: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(saved(tmp_path / name, content))


def test_what_is_no_text_no_file_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, complaint in {
        "binary.toml": "UTF-8",
        "gone.toml": "no such file",
        "a\0b.json": "cannot be read|no such",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            read(tmp_path / name)
    with pytest.raises(UsageError, match="no such file"):
        named(str(tmp_path / "folder.toml" / "x.toml"))


def test_a_file_named_beside_traces_stays_in_their_folder(tmp_path: Path) -> None:
    saved(tmp_path / "traces" / "own.toml", OWN)
    outside = saved(tmp_path / "outside.toml", OWN)
    assert named("own.toml", beside=tmp_path / "traces").name == "own"
    for path in ("../outside.toml", str(outside)):
        with pytest.raises(UsageError, match="in their folder"):
            named(path, beside=tmp_path / "traces")
