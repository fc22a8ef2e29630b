"""The recipe's pairwise overlap beside the union: a double loop over kernels as the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers.nsys_overlap import ANALYSIS
from traceview.cli import main
from traceview.contracts import Options
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.trace import Trace

Row = dict[str, Any]
NCCL, DEEPEP = "ncclDevKernel_SendRecv", "deep_ep::internode::dispatch"


def _kernel(start: int, length: int, name: str = "gemm", **more: Any) -> Row:
    return {"ts_ns": start, "dur_ns": length, "name": name, "device": 0, "kind": "kernel"} | more


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(one, options) for one in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


def _kind(row: Row) -> str:
    return "nccl" if row["name"].startswith("nccl") else "compute"


def _shared(a: Row, b: Row) -> int:
    end = min(a["ts_ns"] + a["dur_ns"], b["ts_ns"] + b["dur_ns"])
    return max(0, int(end - max(a["ts_ns"], b["ts_ns"])))


def _instants(rows: list[Row]) -> set[tuple[int, int]]:
    return {(row["device"], at) for row in rows for at in range(row["ts_ns"], row["ts_ns"] + row["dur_ns"])}


_ROWS = st.lists(
    st.builds(
        _kernel,
        st.integers(0, 50),
        st.integers(0, 20),
        st.sampled_from([NCCL, "gemm", DEEPEP]),
        device=st.integers(0, 1),
        kind=st.sampled_from(["kernel", "kernel", "memcpy"]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=80)
@given(rows=_ROWS)
def test_pairs_and_unions_are_those_of_a_loop_over_all_pairs(
    made: Callable[..., Trace], rows: list[Row]
) -> None:
    kernels = [row for row in rows if row["kind"] == "kernel"]
    found = _answer([made(rows)])
    assert {row["kind"] for row in found} == {_kind(row) for row in kernels}
    for row in found:
        own = [one for one in kernels if _kind(one) == row["kind"]]
        others = [one for one in kernels if _kind(one) == row["other_kind"]]
        pairs = sum(_shared(a, b) for a in own for b in others if a is not b and a["device"] == b["device"])
        total = sum(one["dur_ns"] for one in own)
        assert (row["kernel_count"], row["total_ns"], row["pair_ns"]) == (len(own), total, pairs)
        assert row["pair_share"] == (pytest.approx(pairs / total) if total else None)
        assert row["union_ns"] == len(_instants(own))
        together = len(_instants(own) & _instants(others)) if row["kind"] != row["other_kind"] else None
        assert row["union_overlap_ns"] == together


def test_two_partners_at_once_count_twice_for_the_recipe_and_once_for_the_union(
    made: Callable[..., Trace],
) -> None:
    rows = [_kernel(0, 100, NCCL), _kernel(0, 100), _kernel(0, 100), _kernel(300, 10, DEEPEP)]
    by_kind = {(row["kind"], row["other_kind"]): row for row in _answer([made(rows)])}
    nccl = by_kind["nccl", "compute"]
    assert (nccl["pair_ns"], nccl["pair_share"], nccl["union_overlap_ns"], nccl["union_ratio"]) == (
        200,
        2.0,
        100,
        1.0,
    )
    assert by_kind["compute", "nccl"]["kernel_count"] == 3  # the recipe takes other transports for compute


def test_times_since_the_epoch_do_not_overflow(made: Callable[..., Trace]) -> None:
    epoch = 1_780_000_000 * 10**9
    rows = [_kernel(epoch + 10 * place, 10, NCCL if place % 2 else "gemm") for place in range(100)]
    rows += [_kernel(epoch, 1000)]
    found = {(row["kind"], row["other_kind"]): row["pair_ns"] for row in _answer([made(rows)])}
    assert found["nccl", "compute"] == 500


def test_the_option_adds_the_recipes_table_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    place = _sample(tmp_path)
    plain = CliRunner().invoke(main, ["overlap", place]).stdout
    both = CliRunner().invoke(main, ["overlap", place, "--compat", "nsys"]).stdout
    assert "nccl_gpu_overlap_trace" not in plain
    assert "nccl_gpu_overlap_trace" in both
    assert set(plain.splitlines()) <= set(both.splitlines())
    assert (
        '"nsys_overlap"'
        in CliRunner().invoke(main, ["overlap", place, "--compat", "nsys", "-f", "json"]).stdout
    )


def _sample(folder: Path) -> str:
    workload = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1)
    write(workload, folder)
    return str(folder)


def test_where_kernels_of_a_kind_never_meet_pairs_and_union_agree_on_a_public_set(traces: Path) -> None:
    run = tv.load(traces / "pytorch/KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks")
    rows = {
        (r["kind"], r["other_kind"]): r
        for r in tv.analyze(run, "nsys_overlap", by=(), steps="all").frame.to_dicts()
    }
    whole = tv.breakdown(run, steps="all").frame
    assert rows["nccl", "compute"]["union_overlap_ns"] == whole["hidden_comm_ns"].sum()
    assert rows["nccl", "compute"]["pair_ns"] >= rows["nccl", "compute"]["union_overlap_ns"]
