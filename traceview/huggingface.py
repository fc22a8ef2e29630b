"""The ``config.json`` of a Hugging Face checkpoint as the fields of a model.

Keys as transformers writes them for deepseek_v3 (also kimi_k2), qwen3_moe, mixtral, gpt_oss and glm4_moe.
What they say beyond the shape (rope, norms, quantisation) costs no arithmetic that is counted, and is passed
over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceview.documents import LETTERS, Fields, nearest, unusable

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_TYPES = ("deepseek_v3", "kimi_k2", "qwen3_moe", "mixtral", "gpt_oss", "glm4_moe")


def model_fields(document: dict[str, Any], where: str) -> dict[str, Any]:
    """Fields of a model of our own form, from a ``config.json``.

    Raises:
        UsageError: Another kind of model, or a key that is missing or has no value it can have.
    """
    config = Fields(document, where)
    kind = config.text("model_type")
    if kind not in _READERS:
        near = nearest(kind, MODEL_TYPES) if kind else None
        hint = f" (nearest: {near})" if near else ""
        known = ", ".join(MODEL_TYPES)
        why = (
            f"its model_type '{kind[:LETTERS]}'{hint} is none of {known}; describe it in a TOML file instead"
        )
        raise unusable(where, why)
    return _shared(config) | _READERS[kind](config)


def _shared(config: Fields) -> dict[str, Any]:
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": config.count("hidden_size"),
        "vocabulary": config.count("vocab_size"),
        "top_k": config.count("num_experts_per_tok"),
    }


def _grouped_query(config: Fields) -> dict[str, Any]:
    heads = config.count("num_attention_heads")
    fitting = config.count("hidden_size") // heads
    return {
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": config.count("head_dim", default=fitting),
    }


def _shared_experts(config: Fields) -> dict[str, Any]:
    """Fine-grained experts beside shared ones, after some dense layers: DeepSeek's form."""
    width = config.count("moe_intermediate_size")
    if config.count("moe_layer_freq", default=1) != 1:
        raise unusable(config.where, "a 'moe_layer_freq' other than 1 is not understood")
    return {
        "experts": config.count("n_routed_experts"),
        "expert_ffn": width,
        "shared_ffn": width * config.count("n_shared_experts", least=0, default=0),
        "dense_layers": config.count("first_k_dense_replace", least=0, default=0),
        "dense_ffn": config.count("intermediate_size"),
        "mtp_layers": config.count("num_nextn_predict_layers", least=0, default=0),
    }


def _deepseek(config: Fields) -> dict[str, Any]:
    latent = {
        "heads": config.count("num_attention_heads"),
        "q_lora": config.count("q_lora_rank", least=0, default=0),
        "kv_lora": config.count("kv_lora_rank"),
        "nope_dim": config.count("qk_nope_head_dim"),
        "rope_dim": config.count("qk_rope_head_dim", least=0),
        "v_dim": config.count("v_head_dim"),
    }
    return _shared_experts(config) | {"latent": latent}


def _glm(config: Fields) -> dict[str, Any]:
    return _shared_experts(config) | {"grouped_query": _grouped_query(config)}


def _qwen(config: Fields) -> dict[str, Any]:
    layers = config.count("num_hidden_layers")
    every = config.count("decoder_sparse_step", default=1)
    named = _numbers(config, "mlp_only_layers")
    dense = sum(layer in named or (layer + 1) % every != 0 for layer in range(min(layers, _MOST_LAYERS)))
    return {
        "grouped_query": _grouped_query(config),
        "experts": config.count("num_experts"),
        "expert_ffn": config.count("moe_intermediate_size"),
        "dense_layers": dense,
        "dense_ffn": config.count("intermediate_size", default=0) if dense else 0,
        **_window(config, layers if config.flag("use_sliding_window", default=False) else 0),
    }


def _mixtral(config: Fields) -> dict[str, Any]:
    return {
        "grouped_query": _grouped_query(config),
        "experts": config.count("num_local_experts"),
        "expert_ffn": config.count("intermediate_size"),
        **_window(config, config.count("num_hidden_layers")),
    }


def _gpt_oss(config: Fields) -> dict[str, Any]:
    kinds = config.table.get("layer_types")
    if not isinstance(kinds, list):
        raise unusable(config.where, "'layer_types' must list the attention of each layer")
    return {
        "grouped_query": _grouped_query(config),
        "experts": config.count("num_local_experts"),
        "expert_ffn": config.count("intermediate_size"),
        **_window(config, sum(kind == "sliding_attention" for kind in kinds)),
    }


_READERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "qwen3_moe": _qwen,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm,
}

_MOST_LAYERS = 10_000  # a larger number is refused by the model, and must not be counted through here


def _window(config: Fields, layers: int) -> dict[str, int]:
    """Window and how many layers have it; none where the config gives no length."""
    length = config.count("sliding_window", least=0, default=0)
    return {"window": length, "window_layers": layers} if length and layers else {}


def _numbers(config: Fields, name: str) -> set[int]:
    value = config.table.get(name) or []
    if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
        raise unusable(config.where, f"'{name}' must list layer numbers")
    return set(value)
