"""Which part of a mixture-of-experts layer a kernel serves: exchange, expert, or one of the taxes on both.

Told by role and category, by the annotation around the launch, and by names of libraries where those say more
than the category. A cast to FP8 or FP4 is a tax wherever it runs, but belongs to the MoE layer only where an
annotation says so: attention casts its operands too.

Source: kernels of TransformerEngine (fused router, permutation, padding), DeepEP, HybridEP, PyTorch.
"""

from __future__ import annotations

import polars as pl

from traceview.schema import Column

PARTS = ("router", "permute", "padding", "quantize", "expert", "exchange")
TAXES = ("router", "permute", "padding", "quantize")
"""Parts that neither compute experts nor move tokens between ranks."""

PART = Column(pl.Enum(PARTS), "part of a mixture-of-experts layer; null: none known", nullable=True)
IS_MOE = Column(
    pl.Boolean(), "whether it is known to serve a MoE layer; casts only by their module", nullable=True
)

_TOLD_BY = ["name", "category", "role", "module"]
_EXCHANGES = ("dispatch", "combine", "ep_sync")
_MODULES = (
    "router",
    "permute",
    "pre_dispatch",
    "dispatch",
    "expert",
    "shared_expert",
    "combine",
    "post_combine",
    "moe",
)
_PADDING = r"(?i)multi_(?:row_)?(?:un)?padding|(?:un)?pad_tokens"
_ROUTER = (
    r"(?i)fused_topk|moe_aux_loss|gatherTopK|radix_?topk|bitonicSort"
    r"|routing_?(?:map|indices)|_combined_routing"
)


def with_moe(ops: pl.DataFrame) -> pl.DataFrame:
    """Device ``ops`` plus ``moe_part`` and ``is_moe``; each distinct kind of op is judged once."""
    kinds = ops.select(_TOLD_BY).unique(maintain_order=True)
    judged = kinds.with_columns(moe_part=_part()).with_columns(is_moe=_is_moe())
    return ops.join(judged, on=_TOLD_BY, how="left", nulls_equal=True, maintain_order="left")


def _part() -> pl.Expr:
    name, module = pl.col("name").cast(pl.String), pl.col("module").cast(pl.String)
    category = pl.col("category")
    routing = category == "route_permute"
    cases = {
        "exchange": pl.col("role").is_not_null() | category.is_in(_EXCHANGES),
        "padding": name.str.contains(_PADDING),
        "router": (module == "router") | (routing & name.str.contains(_ROUTER)),
        "permute": routing,
        "quantize": category == "quantize",
        "expert": (category == "grouped_gemm") | (module == "expert"),
    }
    found = [pl.when(case.fill_null(value=False)).then(pl.lit(label)) for label, case in cases.items()]
    return pl.coalesce(found).cast(PART.dtype)


def _is_moe() -> pl.Expr:
    placed = pl.col("module").cast(pl.String).is_in(_MODULES).fill_null(value=False)
    part_is_moe = pl.col("moe_part").is_not_null() & (pl.col("moe_part") != "quantize")
    return placed | part_is_moe.fill_null(value=False)
