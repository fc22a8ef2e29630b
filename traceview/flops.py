"""Arithmetic that training costs per token, by part of the model, as different projects count it.

Forward and backward, without recompute and without the optimizer: 6 operations per weight and token, since a
multiply-add is two and the backward pass costs twice the forward; as many per multiply-add of attention.

- ``megatron`` (Megatron-LM, Megatron Bridge): causal attention counts half, multi-token prediction counts,
  routers do not, and windows shorten the context.
- ``torchtitan``: attention counts in full, whatever its mask; routers count, multi-token prediction does not.
- ``maxtext``: causal attention counts half; routers count, multi-token prediction does not.

Source: training/training.py of Megatron-LM, models/utils.py of torchtitan and maxtext_utils.py of MaxText, as
of 2026-08.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceview.documents import LETTERS
from traceview.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.models import Model

PER_MULTIPLY_ADD = 6
"""Operations of forward and backward per multiply-add of the forward pass."""

PARTS = (
    "experts",
    "shared_experts",
    "dense_mlp",
    "attention_linears",
    "core_attention",
    "logits",
    "mtp_projection",
    "router",
)
_TERA = 1e12


@dataclass(frozen=True, slots=True)
class Convention:
    """What a project counts.

    Attributes:
        name: Key of `CONVENTIONS`.
        is_causal: Attention counts only the tokens a causal mask lets through, else all of them.
        counts_mtp: Layers of multi-token prediction count.
        counts_router: Router projections count.
        counts_window: A sliding window shortens the context that counts.
    """

    name: str
    is_causal: bool
    counts_mtp: bool
    counts_router: bool
    counts_window: bool


CONVENTIONS: Mapping[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention("megatron", is_causal=True, counts_mtp=True, counts_router=False, counts_window=True),
        Convention("torchtitan", is_causal=False, counts_mtp=False, counts_router=True, counts_window=False),
        Convention("maxtext", is_causal=True, counts_mtp=False, counts_router=True, counts_window=True),
    )
}


@dataclass(frozen=True, slots=True)
class Flops:
    """Operations per token, forward and backward, and how they were counted.

    Attributes:
        parts: Operations by part, every one of `PARTS`.
        convention: Key of `CONVENTIONS`.
        is_causal: Whether attention counted only the tokens a causal mask lets through.
        mtp_layers: Layers of multi-token prediction that were counted.
    """

    parts: Mapping[str, float]
    convention: str
    is_causal: bool
    mtp_layers: int

    @property
    def per_token(self) -> float:
        """Operations per token."""
        return sum(self.parts.values())

    def tflops_per_gpu(self, tokens_per_s_per_gpu: float) -> float:
        """TFLOP/s of a GPU that trains this many tokens a second."""
        return tokens_per_s_per_gpu * self.per_token / _TERA

    def tokens_per_s_per_gpu(self, tflops_per_gpu: float) -> float:
        """Tokens a second that a GPU trains at this many TFLOP/s."""
        return tflops_per_gpu * _TERA / self.per_token

    @property
    def basis(self) -> str:
        """How it was counted, in words: what has to stand beside every figure made from it."""
        attention = "causal half" if self.is_causal else "full attention"
        mtp = f"MTP {self.mtp_layers}" if self.mtp_layers else "no MTP"
        return f"{self.convention}: {attention}, {mtp}"

    @property
    def counted(self) -> str:
        """The same with what never counts."""
        router = "router" if CONVENTIONS[self.convention].counts_router else "no router"
        return f"{self.basis}, {router}, no recompute, no optimizer"


def per_token(
    model: Model,
    lengths: float | Sequence[float],
    *,
    convention: str = "megatron",
    causal: bool | None = None,
    mtp_layers: int | None = None,
) -> Flops:
    """Operations per token of training ``model`` on sequences of these lengths.

    Args:
        model: Its shape.
        lengths: Length of every sequence. Of packed documents, whose tokens see only their own, the length
            of each, or the one length that costs the same without windows, Σ len² / Σ len.
        convention: Key of `CONVENTIONS`.
        causal: Whether a causal mask halves attention; None leaves that to the convention.
        mtp_layers: Layers of multi-token prediction; None takes those of the model. A convention that does
            not count them counts none.

    Raises:
        UsageError: There is no such convention, or a length is not positive.
    """
    chosen = counting(convention)
    is_causal = chosen.is_causal if causal is None else causal
    mtp = (model.mtp_layers if mtp_layers is None else mtp_layers) if chosen.counts_mtp else 0
    documents = [lengths] if isinstance(lengths, int | float) else list(lengths)
    if not documents or min(documents) <= 0:
        message = "sequence lengths must be positive."
        raise UsageError(message)
    moe_layers, layers = model.layers - model.dense_layers + mtp, model.layers + mtp
    matrices = 3 if model.is_gated else 2
    hidden = model.hidden
    windowed = model.window_layers if chosen.counts_window else 0
    context = (layers - windowed) * _context(documents, is_causal=is_causal)
    if windowed:
        context += windowed * _context(documents, is_causal=is_causal, window=model.window)
    multiply_adds: dict[str, float] = {
        "experts": moe_layers * model.top_k * matrices * hidden * model.expert_ffn,
        "shared_experts": moe_layers * matrices * hidden * model.shared_ffn,
        "dense_mlp": model.dense_layers * matrices * hidden * model.dense_ffn,
        "attention_linears": layers * model.attention.linear_parameters(hidden),
        "core_attention": context * model.attention.core_width,
        "logits": hidden * model.vocabulary * (1 + mtp),
        # a projection of two concatenated rows to one, and the scales of three norms
        "mtp_projection": mtp * (2 * hidden**2 + 3 * hidden),
        "router": moe_layers * hidden * model.experts if chosen.counts_router else 0,
    }
    parts = {part: PER_MULTIPLY_ADD * count for part, count in multiply_adds.items()}
    return Flops(parts, convention, is_causal, mtp)


def counting(name: str) -> Convention:
    """The convention called ``name``.

    Raises:
        UsageError: There is none.
    """
    if name not in CONVENTIONS:
        message = f"no convention '{name[:LETTERS]}'; choose from: {', '.join(CONVENTIONS)}."
        raise UsageError(message)
    return CONVENTIONS[name]


def _context(documents: Sequence[float], *, is_causal: bool, window: int = 0) -> float:
    """Tokens that a token looks at, on average over all tokens of ``documents``.

    A causal mask counts as exactly half of the square, as projects count it, not as half and the diagonal.
    """
    pairs = sum(_pairs(length, is_causal=is_causal, window=window) for length in documents)
    return pairs / sum(documents)


def _pairs(length: float, *, is_causal: bool, window: int) -> float:
    if not 0 < window < length:
        return length**2 / 2 if is_causal else length**2
    if not is_causal:
        return length * window
    return window * (window + 1) / 2 + (length - window) * window
