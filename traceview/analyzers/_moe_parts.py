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


def part() -> pl.Expr:
    """`PART` of a device op, as column ``moe_part``."""
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
    return pl.coalesce(found).cast(PART.dtype).alias("moe_part")


def is_moe() -> pl.Expr:
    """`IS_MOE` of a device op with its ``moe_part``, as column ``is_moe``."""
    placed = pl.col("module").cast(pl.String).is_in(_MODULES).fill_null(value=False)
    part_is_moe = pl.col("moe_part").is_not_null() & (pl.col("moe_part") != "quantize")
    return (placed | part_is_moe.fill_null(value=False)).alias("is_moe")
