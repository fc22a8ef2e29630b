"""Matrix products as their operators recorded them: operations, least memory traffic, precision.

A multiply-add is two operations. Least traffic reads both operands once and writes the result once, in the
operands' own type, or two bytes per element where those are FP8 or FP4; what a kernel really moves is more.

A grouped product (one per expert) records the operands of all groups together: the rows of all groups are
known, how they divide is not. Rows allocated beyond the last group count as well, so that its operations are
an upper bound where the caller pads.

Source: signatures of PyTorch's ATen operators; types as the profiler prints them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import polars as pl

OPERATORS = {
    "aten::mm": 0,
    "aten::addmm": 1,
    "aten::bmm": 0,
    "aten::baddbmm": 1,
    "aten::_scaled_mm": 0,
    "aten::_grouped_mm": 0,
    "aten::_scaled_grouped_mm": 0,
}
"""Operators that multiply matrices, and which input is the left operand; the right one follows it."""

_GROUP_ENDS = {"aten::_grouped_mm": 2, "aten::_scaled_grouped_mm": 4}
"""Which input holds the end of each group, where operands are concatenated."""

_TYPES = {
    "float": (None, 4),  # FP32 or TF32: the type does not tell
    "double": (None, 8),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "c10::Float4_e2m1fn_x2": ("fp4", 1),
}
"""Type as recorded: precision as in `hardware.PRECISIONS`, bytes of an element as stored."""

_PACKED = {"c10::Float4_e2m1fn_x2": 2}  # numbers in one stored element
_LARGEST = 1 << 31  # of one dimension; more is a broken record

SCHEMA = {
    "operator": pl.Categorical(),
    "shape": pl.String(),
    "precision": pl.Categorical(),
    "flops": pl.Float64(),
    "bytes": pl.Int64(),
    "group_count": pl.Int64(),
    "row_count": pl.Int64(),
}


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product: ``groups`` times (m × k) · (k × n), or, of a grouped one, sums over groups.

    Attributes:
        shape: ``m×n×k``, with the number of groups before it: ``8·4096×2048×7168`` where each group has
            that shape, ``8:4096×2048×7168`` where groups share the first (or last) dimension.
        flops: Operations.
        traffic: Least memory traffic in bytes; None where the type is unknown.
        precision: Of the operands; None where the type does not tell.
        groups: Groups of a grouped product; None for any other.
        rows: Rows (tokens) of all groups together; None unless grouped.
    """

    shape: str
    flops: float
    traffic: int | None
    precision: str | None
    groups: int | None = None
    rows: int | None = None


def products(operators: pl.DataFrame) -> pl.DataFrame:
    """What each of ``operators`` (rows of `HOST_OPS`) multiplies: columns of `SCHEMA`, null if unknown."""
    keys = ["name", "shapes", "dtypes"]
    distinct = operators.select(keys).unique(maintain_order=True)
    known = [product(*(str(text or "") for text in row)) for row in distinct.iter_rows()]
    columns: dict[str, list[Any]] = {
        "shape": [p and p.shape for p in known],
        "precision": [p and p.precision for p in known],
        "flops": [p and p.flops for p in known],
        "bytes": [p and p.traffic for p in known],
        "group_count": [p and p.groups for p in known],
        "row_count": [p and p.rows for p in known],
    }
    told = distinct.with_columns(pl.Series(name, values, SCHEMA[name]) for name, values in columns.items())
    joined = operators.select(keys).join(told, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined.select(pl.col("name").cast(SCHEMA["operator"]).alias("operator"), *columns)


def product(name: str, shapes: str, dtypes: str) -> Product | None:
    """The product operator ``name`` computes of inputs with these shapes and types, both as JSON text.

    None where the text is cut, the operator is no product, or the shapes do not fit each other.
    """
    dims, types = _listed(shapes), _listed(dtypes)
    left = OPERATORS.get(name)
    if left is None or len(dims) < left + 2:
        return None
    a, b = (_dimensions(dims[place]) for place in (left, left + 1))
    kind = types[left] if left < len(types) else None
    packed = _PACKED.get(kind, 1) if isinstance(kind, str) else 1
    precision, width = _TYPES.get(kind, (None, None)) if isinstance(kind, str) else (None, None)
    shape = _grouped(name, a, b, dims, packed) if name in _GROUP_ENDS else _plain(a, b, packed)
    if shape is None:
        return None
    text, flops, result, groups, rows = shape
    added = math.prod(_dimensions(dims[0]) or [0]) if left else 0
    out_width = width if width is None or width > 1 else 2
    traffic = None
    if width is not None and out_width is not None:
        traffic = (math.prod(a) + math.prod(b)) * width + (result + added) * out_width
        traffic = traffic if traffic < _LARGEST**2 else None
    return Product(text, flops, traffic, precision, groups, rows)


_Shape = tuple[
    str, float, int, int | None, int | None
]  # text, operations, elements of the result, groups, rows


def _plain(a: list[int], b: list[int], packed: int) -> _Shape | None:
    if len(a) != len(b) or len(a) not in {2, 3} or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    batch, m, n, k = math.prod(a[:-2]), a[-2], b[-1], a[-1] * packed
    text = f"{m}×{n}×{k}" if len(a) == 2 else f"{batch}·{m}×{n}×{k}"
    return text, 2.0 * batch * m * n * k, batch * m * n, None, None


def _grouped(name: str, a: list[int], b: list[int], dims: list[Any], packed: int) -> _Shape | None:
    """A grouped product: of its operands, those without a dimension for the groups are concatenated."""
    place = _GROUP_ENDS[name]
    ends = _dimensions(dims[place]) if place < len(dims) else []
    match len(a), len(b):
        case 2, 3 if a[1] == b[1]:
            groups, m, n, k = b[0], a[0], b[2], a[1] * packed
            return f"{groups}:{m}×{n}×{k}", 2.0 * m * n * k, m * n, groups, m
        case 3, 2 if a[2] == b[0]:
            groups, m, n, k = a[0], a[1], b[1], a[2] * packed
            return f"{groups}:{m}×{n}×{k}", 2.0 * m * n * k, m * n, groups, n
        case 2, 2 if a[1] == b[0] and len(ends) == 1:
            groups, m, n, k = ends[0], a[0], b[1], a[1] * packed
            return f"{groups}:{m}×{n}×{k}", 2.0 * m * n * k, groups * m * n, groups, k
        case 3, 3 if a[0] == b[0] and a[2] == b[1]:
            groups, m, n, k = a[0], a[1], b[2], a[2] * packed
            return f"{groups}·{m}×{n}×{k}", 2.0 * groups * m * n * k, groups * m * n, groups, groups * m
    return None


def _listed(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _dimensions(value: object) -> list[int]:
    """The dimensions of one tensor; empty for anything else."""
    if not isinstance(value, list) or not all(type(size) is int and 0 <= size < _LARGEST for size in value):
        return []
    return value
