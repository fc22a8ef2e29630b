"""Shapes of Mixture-of-Experts transformers, as far as they decide how much arithmetic a token costs.

Known models are ``data/models.toml``, each with its source; a file of the same form, or the ``config.json``
of a Hugging Face checkpoint, stands for a model of one's own.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from traceview import documents, huggingface
from traceview.documents import LETTERS, Fields, unusable
from traceview.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQuery:
    """Grouped-query attention: ``heads`` queries share ``kv_heads`` keys and values."""

    heads: int
    kv_heads: int
    head_dim: int

    def linear_parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer: query, key, value and output."""
        query, shared = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return hidden * (query + 2 * shared) + query * hidden

    @property
    def core_width(self) -> int:
        """Multiply-adds of a token per token it looks at: scores, then values."""
        return 2 * self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: queries, keys and values come from low-rank projections.

    Attributes:
        heads: Attention heads.
        q_lora: Rank of the query's projection; 0 where queries are projected directly.
        kv_lora: Rank of the shared projection of keys and values.
        nope_dim: Width of a head's query and key without position.
        rope_dim: Width of their part with position; all heads share its key.
        v_dim: Width of a head's value.
    """

    heads: int
    q_lora: int
    kv_lora: int
    nope_dim: int
    rope_dim: int
    v_dim: int

    def linear_parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer, and the scales of the norms between them."""
        query = self.heads * (self.nope_dim + self.rope_dim)
        queries = self.q_lora * (hidden + query + 1) if self.q_lora else hidden * query
        latent = self.kv_lora * (hidden + self.heads * (self.nope_dim + self.v_dim) + 1)
        return queries + latent + hidden * self.rope_dim + self.heads * self.v_dim * hidden

    @property
    def core_width(self) -> int:
        """Multiply-adds of a token per token it looks at: scores, then values."""
        return self.heads * (self.nope_dim + self.rope_dim + self.v_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model.

    Attributes:
        name: Short name, such as "deepseek-v3".
        source: Where its shape was published.
        layers: Transformer layers, without those of multi-token prediction.
        hidden: Width of the model.
        vocabulary: Rows of the output projection.
        attention: The attention of every layer.
        experts: Routed experts per MoE layer.
        top_k: Experts per token.
        expert_ffn: Width inside a routed expert.
        shared_ffn: Width inside the shared experts of a layer together; 0 without.
        dense_layers: Layers with one dense MLP instead of experts.
        dense_ffn: Width inside that MLP.
        is_gated: MLPs have three matrices (SwiGLU and the like) instead of two.
        mtp_layers: Layers of multi-token prediction it is trained with.
        window: Tokens that a layer with sliding-window attention looks at.
        window_layers: Layers with sliding-window attention.
    """

    name: str
    source: str
    layers: int
    hidden: int
    vocabulary: int
    attention: GroupedQuery | Latent
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    is_gated: bool = True
    mtp_layers: int = 0
    window: int = 0
    window_layers: int = 0

    @classmethod
    def of(cls, table: Fields, *, name: str, source: str) -> Self:
        """The model a table of our own form describes.

        Args:
            table: Fields of `Model`; instead of ``attention`` a table ``grouped_query`` or ``latent``.
            name: Its name, where the table gives none.
            source: Its source, where the table gives none.

        Raises:
            UsageError: A field is missing, unknown, or has no value such a field can have.
        """
        model = cls(
            name=table.text("name", default=name),
            source=table.text("source", default=source),
            layers=table.count("layers"),
            hidden=table.count("hidden"),
            vocabulary=table.count("vocabulary"),
            attention=_attention(table),
            experts=table.count("experts"),
            top_k=table.count("top_k"),
            expert_ffn=table.count("expert_ffn"),
            shared_ffn=table.count("shared_ffn", least=0, default=0),
            dense_layers=table.count("dense_layers", least=0, default=0),
            dense_ffn=table.count("dense_ffn", least=0, default=0),
            is_gated=table.flag("is_gated", default=True),
            mtp_layers=table.count("mtp_layers", least=0, default=0),
            window=table.count("window", least=0, default=0),
            window_layers=table.count("window_layers", least=0, default=0),
        )
        table.refuse_unknown()
        model._check(table.where)
        return model

    def _check(self, where: str) -> None:
        attention = self.attention
        claims = {
            f"no model has more than {_MOST_LAYERS:,} layers": self.layers + self.mtp_layers <= _MOST_LAYERS,
            "top_k cannot exceed experts": self.top_k <= self.experts,
            "dense_layers cannot exceed layers": self.dense_layers <= self.layers,
            "window_layers cannot exceed layers": self.window_layers <= self.layers,
            "layers with a window need its length": self.window > 0 or not self.window_layers,
            "dense layers need their width": self.dense_ffn > 0 or not self.dense_layers,
            "kv_heads must divide heads": isinstance(attention, Latent)
            or attention.heads % attention.kv_heads == 0,
        }
        for claim, holds in claims.items():
            if not holds:
                raise unusable(where, claim)


def _attention(table: Fields) -> GroupedQuery | Latent:
    grouped, latent = table.part("grouped_query"), table.part("latent")
    if grouped and not latent:
        sizes = {name: grouped.count(name) for name in ("heads", "kv_heads", "head_dim")}
        grouped.refuse_unknown()
        return GroupedQuery(**sizes)
    if latent and not grouped:
        sizes = {name: latent.count(name) for name in ("heads", "kv_lora", "nope_dim", "v_dim")}
        ranks = {name: latent.count(name, least=0, default=0) for name in ("q_lora", "rope_dim")}
        latent.refuse_unknown()
        return Latent(**sizes, **ranks)
    raise unusable(table.where, "give one of the tables 'grouped_query' and 'latent'")


@cache
def known() -> Mapping[str, Model]:
    """The models that come with traceview, by name."""
    text = (files("traceview.data") / "models.toml").read_text(encoding="utf-8")
    tables = [Fields(table, "models.toml") for table in tomllib.loads(text)["model"]]
    models = [Model.of(table, name="", source="") for table in tables]
    return {model.name: model for model in models}


def named(text: str, *, beside: Path | None = None) -> Model:
    """The model somebody means: a known name, or a file that describes one.

    Args:
        text: A name, or a path that ends in ``.toml`` or ``.json``.
        beside: If given, the folder a file is looked for in; nothing outside it is opened.

    Raises:
        UsageError: Nothing is known by that name, or the file does not describe a model.
    """
    plain = text.strip().casefold().replace("_", "-")
    if plain in known():
        return known()[plain]
    if (path := Path(text)).suffix.lower() in {".toml", ".json"}:
        return read(path if beside is None else _within(beside, path))
    near = documents.nearest(plain, tuple(known()))
    guess = f" Did you mean {near}?" if near else ""
    message = (
        f"no model '{text[:LETTERS]}'.{guess}\nKnown: {', '.join(known())}.\n"
        "Hint: a model of your own is a TOML file, or the config.json of its checkpoint."
    )
    raise UsageError(message)


def read(path: Path) -> Model:
    """The model that a TOML file of our own form, or the ``config.json`` of a checkpoint, describes.

    Raises:
        UsageError: The file cannot be read, or does not describe one model.
    """
    document, where = documents.read(path), str(path)
    if path.suffix.lower() == ".json":
        table = huggingface.model_fields(document, where)
        return Model.of(Fields(table, where), name=path.parent.name or path.stem, source=path.name)
    listed = document.get("model", [document])
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], dict):
        raise unusable(where, "it must describe one model, as one [[model]] table or as fields alone")
    return Model.of(Fields(listed[0], where), name=path.stem, source=path.name)


def _within(folder: Path, path: Path) -> Path:
    if path.is_absolute() or ".." in path.parts:
        raise unusable(str(path)[:LETTERS], "a file named beside traces must lie in their folder")
    return folder / path
