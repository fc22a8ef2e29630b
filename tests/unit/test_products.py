"""What operators multiply, from their recorded shapes: operations and least traffic by the definition."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analyzers._products import OPERATORS, product, products
from traceview.schema import HOST_OPS

BF16, FP8, FP4, FLOAT = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2", "float"


def _of(name: str, dims: list[list[int]], kind: str = BF16) -> tuple[str, float, int | None, str | None]:
    found = product(name, json.dumps(dims), json.dumps([kind] * len(dims)))
    assert found is not None
    return found.shape, found.flops, found.traffic, found.precision


def test_a_plain_product_reads_both_operands_once_and_writes_the_result_once() -> None:
    assert _of("aten::mm", [[16, 32], [32, 8]]) == (
        "16×8×32",
        2 * 16 * 8 * 32,
        2 * (16 * 32 + 32 * 8 + 16 * 8),
        "bf16",
    )


def test_an_added_matrix_is_read_as_well() -> None:
    flops, least = 2 * 16 * 8 * 32, 16 * 32 + 32 * 8 + 16 * 8
    assert _of("aten::addmm", [[8], [16, 32], [32, 8], [], []], FLOAT) == (
        "16×8×32",
        flops,
        4 * (least + 8),
        None,
    )
    dims = [[2, 3, 5], [2, 3, 7], [2, 7, 5]]
    assert _of("aten::baddbmm", dims)[1:3] == (2 * 2 * 3 * 5 * 7, 2 * 2 * (3 * 7 + 7 * 5 + 3 * 5 + 3 * 5))


def test_a_batch_multiplies_every_pair() -> None:
    assert _of("aten::bmm", [[4, 3, 7], [4, 7, 5]])[:2] == ("4·3×5×7", 2.0 * 4 * 3 * 5 * 7)


def test_low_precision_operands_are_taken_to_give_two_byte_results() -> None:
    dims = [[16, 64], [64, 8], [], []]
    assert _of("aten::_scaled_mm", dims, FP8) == (
        "16×8×64",
        2 * 16 * 8 * 64,
        16 * 64 + 64 * 8 + 2 * 16 * 8,
        "fp8",
    )
    packed = [[16, 32], [32, 8], [], []]  # two numbers in a byte
    assert _of("aten::_scaled_mm", packed, FP4) == (
        "16×8×64",
        2 * 16 * 8 * 64,
        16 * 32 + 32 * 8 + 2 * 16 * 8,
        "fp4",
    )


@pytest.mark.parametrize(
    ("dims", "shape", "flops", "elements", "rows"),
    [
        # tokens of all experts, concatenated, times one matrix per expert
        ([[100, 8], [4, 8, 6], [4]], "4:100×6×8", 2 * 100 * 6 * 8, 100 * 8 + 4 * 8 * 6 + 100 * 6, 100),
        # the gradient of the weights: the tokens are what is summed over
        ([[6, 100], [100, 8], [4]], "4:6×8×100", 2 * 6 * 8 * 100, 6 * 100 + 100 * 8 + 4 * 6 * 8, 100),
        ([[4, 6, 8], [8, 100], [4]], "4:6×100×8", 2 * 6 * 100 * 8, 4 * 6 * 8 + 8 * 100 + 6 * 100, 100),
        ([[4, 10, 8], [4, 8, 6]], "4·10×6×8", 2 * 4 * 10 * 6 * 8, 4 * (10 * 8 + 8 * 6 + 10 * 6), 40),
    ],
)
def test_a_grouped_product_computes_every_row_once_and_knows_its_groups(
    dims: list[list[int]], shape: str, flops: int, elements: int, rows: int
) -> None:
    found = product("aten::_grouped_mm", json.dumps(dims), json.dumps([BF16] * len(dims)))
    assert found is not None
    assert (found.shape, found.flops, found.traffic) == (shape, flops, 2 * elements)
    assert (found.groups, found.rows) == (4, rows)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", ""),
        ("aten::mm", "[[16, 32], [32"),  # cut short
        ("aten::mm", "[[16, 32], [31, 8]]"),
        ("aten::mm", "[[16, 32]]"),
        ("aten::mm", '[[16, "32"], [32, 8]]'),
        ("aten::mm", "[[-16, 32], [32, 8]]"),
        ("aten::mm", "[[1e3, 32], [32, 8]]"),
        ("aten::mm", "[[true, 32], [32, 8]]"),
        ("aten::bmm", "[[4, 3, 7], [5, 7, 5]]"),
        ("aten::_grouped_mm", "[[6, 100], [100, 8]]"),  # no group ends: how many groups?
        ("aten::_grouped_mm", "[[100, 9], [4, 8, 6], [4]]"),
        ("aten::mm", "[" * 4000),
        ("aten::conv2d", "[[16, 32], [32, 8]]"),
    ],
)
def test_shapes_that_do_not_fit_are_unknown(name: str, shapes: str) -> None:
    assert product(name, shapes, json.dumps([BF16] * 4)) is None


def test_an_unknown_type_leaves_operations_and_withholds_traffic() -> None:
    assert _of("aten::mm", [[16, 32], [32, 8]], "c10::Posit8") == ("16×8×32", 2 * 16 * 8 * 32, None, None)
    found = product("aten::mm", "[[16, 32], [32, 8]]", "")
    assert found is not None
    assert (found.traffic, found.precision) == (None, None)


def test_dimensions_beyond_any_memory_give_no_traffic_that_would_overflow() -> None:
    large = (1 << 31) - 1
    assert product("aten::mm", f"[[{large + 1}, 2], [2, 2]]", "[]") is None
    shape, flops, traffic, _ = _of("aten::mm", [[large, large], [large, large]])
    assert flops == pytest.approx(2.0 * large**3)
    assert traffic is None
    assert shape == f"{large}×{large}×{large}"


@given(st.sampled_from(sorted(OPERATORS)), st.text(max_size=60), st.text(max_size=20))
def test_no_text_at_all_can_break_it(name: str, shapes: str, dtypes: str) -> None:
    found = product(name, shapes, dtypes)
    assert found is None or (found.flops >= 0 and (found.traffic is None or found.traffic >= 0))


def test_operators_keep_their_order_and_repeat() -> None:
    rows = [{"name": "aten::mm", "shapes": f"[[{m}, 2], [2, 2]]", "dtypes": None} for m in (3, 1, 3)]
    common = {"rank": 0, "pid": 1, "tid": 1, "ts_ns": 0, "dur_ns": 1}
    found = products(
        HOST_OPS.frame(pl.DataFrame([common | row for row in rows], schema_overrides={"dtypes": pl.String}))
    )
    assert found["shape"].to_list() == ["3×2×2", "1×2×2", "3×2×2"]
    assert found["flops"].to_list() == [24.0, 8.0, 24.0]
