"""Kernels under communication against the same kernels alone: oracles in plain Python, synthetic and real runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers.interference import ANALYSIS
from traceview.contracts import Options
from traceview.reports.interference import Total
from traceview.schema import OPS, STEPS
from traceview.synth import PRESETS, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.run import Run

Row = dict[str, Any]
SAME = ("rank", "device", "category", "name", "grid_blocks", "phase", "module")


def _op(
    start: int,
    length: int,
    name: str = "gemm",
    *,
    kind: str = "kernel",
    grid: int | None = 132,
    device: int = 0,
    phase: str | None = "forward",
    module: str | None = None,
) -> Row:
    is_comm = name == "send"
    return {
        "ts_ns": start,
        "dur_ns": length,
        "name": name,
        "kind": kind,
        "category": "all_to_all" if is_comm else "gemm",
        "class": "comm" if is_comm else "compute",
        "grid_blocks": grid,
        "device": device,
        "phase": phase,
        "module": module,
    }


def _trace(rows: list[Row], *, rank: int = 0, steps: list[tuple[int, int, int]] | None = None) -> Trace:
    """A rank with these ops; ``steps`` are (number, start, duration)."""
    numbered = [
        {"op": place, "rank": rank, "rule_id": "test", "stream": 7} | row for place, row in enumerate(rows)
    ]
    marked = [
        {
            "rank": rank,
            "step": step,
            "ts_ns": start,
            "dur_ns": length,
            "op_count": 1,
            "status": "complete",
            "source": "test",
        }
        for step, start, length in steps or []
    ]
    ops = OPS.frame(pl.DataFrame(numbered, schema_overrides={"grid_blocks": pl.Int64, "phase": pl.String}))
    return Trace(
        Facts("made.json", "kineto", rank=rank),
        {"ops": ops, "steps": STEPS.frame(pl.DataFrame(marked)) if marked else STEPS.empty()},
    )


def _answer(traces: list[Trace], *by: str) -> list[Row]:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.map(trace, options) for trace in traces])
    return ANALYSIS.reduce(partials, options).to_dicts()


# --- an oracle in plain Python -----------------------------------------------------------------------


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _shared(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    """Time in both of two lists of disjoint spans."""
    return sum(max(0, min(p[1], q[1]) - max(p[0], q[0])) for p in a for q in b)


def _spans(rows: list[Row]) -> list[tuple[int, int]]:
    return _merged([(row["ts_ns"], row["ts_ns"] + row["dur_ns"]) for row in rows])


def _told(rows: list[Row]) -> Row:
    """What must be found in ops of one rank that are all looked at, over everything."""
    told: Row = defaultdict(int)
    kernels: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for device in {row["device"] for row in rows}:
        own = [row for row in rows if row["device"] == device]
        comm = _spans([row for row in own if row["class"] == "comm"])
        told["hidden_comm_ns"] += _shared(comm, _spans([row for row in own if row["class"] == "compute"]))
        for row in own:
            length, start = row["dur_ns"], row["ts_ns"]
            if row["class"] != "compute" or row["kind"] != "kernel" or not length:
                continue
            under = _shared(comm, [(start, start + length)])
            state = "overlapped" if 2 * under >= length else "alone" if 20 * under < length else "partly"
            told[f"{state}_count"] += 1
            kernels[tuple(row.get(key) for key in SAME)][state].append(length)
    for lengths in kernels.values():
        alone, overlapped = lengths["alone"], lengths["overlapped"]
        told["overlapped_ns"] += sum(overlapped)
        if not alone or not overlapped:
            continue
        if max(alone) > 3 * min(alone) or max(overlapped) > 3 * min(overlapped):
            told["mixed_count"] += len(overlapped)
            continue
        told["compared_count"] += len(overlapped)
        told["compared_ns"] += sum(overlapped)
        told["expected_ns"] += len(overlapped) * int(median(alone))
    return told


_ROWS = st.lists(
    st.builds(
        _op,
        st.integers(0, 60),
        st.integers(0, 25),
        st.sampled_from(["gemm", "other", "send", "send"]),
        kind=st.sampled_from(["kernel", "kernel", "graph"]),
        grid=st.sampled_from([None, 1, 2]),
        device=st.integers(0, 1),
        phase=st.sampled_from([None, "forward"]),
        module=st.sampled_from([None, "mlp"]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(rows=_ROWS)
def test_counts_sums_and_excess_are_those_of_a_walk_over_all_ops(rows: list[Row]) -> None:
    told = _told(rows)
    for by in ((), ("rank",), ("kernel", "phase", "module")):
        found = _answer([_trace(rows)], *by)
        for name in (
            "alone_count",
            "overlapped_count",
            "partly_count",
            "compared_count",
            "mixed_count",
            "overlapped_ns",
            "compared_ns",
        ):
            assert sum(row[name] for row in found) == told[name], (by, name)
        excess = told["compared_ns"] - told["expected_ns"]
        assert sum(row["excess_ns"] or 0 for row in found) == excess
    [total] = _answer([_trace(rows)])
    assert total["hidden_comm_ns"] == told["hidden_comm_ns"]
    if told["compared_count"]:
        assert total["slowdown"] == pytest.approx(told["compared_ns"] / told["expected_ns"])
        assert total["net_hidden_ns"] == told["hidden_comm_ns"] - excess
    else:
        assert [total[name] for name in ("slowdown", "excess_ns", "net_hidden_ns", "method")] == [None] * 4


# --- by hand -----------------------------------------------------------------------------------------

ALONE, SLOWED = 1000, 1500


def _slowed(*, pace: int = 1, at: int = 0) -> list[Row]:
    """Four products alone, and three under an exchange that take exactly half as long again."""
    alone = [_op(at + 2000 * place, pace * ALONE) for place in range(4)]
    busy = [_op(at + 10_000 + 1500 * pace * place, pace * SLOWED) for place in range(3)]
    return [*alone, *busy, _op(at + 10_000, 3 * pace * SLOWED, "send")]


def test_products_that_take_half_as_long_again_under_communication_are_found_to_the_nanosecond() -> None:
    [row] = _answer([_trace(_slowed())], "category")
    assert (row["alone_count"], row["overlapped_count"], row["compared_count"]) == (4, 3, 3)
    assert (row["alone_median_ns"], row["overlapped_median_ns"]) == (ALONE, SLOWED)
    assert row["slowdown"] == SLOWED / ALONE
    assert row["excess_ns"] == 3 * (SLOWED - ALONE)
    [rank] = _answer([_trace(_slowed())], "rank")
    assert rank["hidden_comm_ns"] == 3 * SLOWED
    assert rank["net_hidden_ns"] == 3 * ALONE
    assert rank["compared_ratio"] == 1


def test_every_rank_is_compared_with_itself_and_ranks_add_up() -> None:
    slow = [_trace(_slowed(), rank=0), _trace(_slowed(pace=2), rank=1)]
    [row] = _answer(slow)
    assert row["slowdown"] == SLOWED / ALONE
    assert row["excess_ns"] == 3 * (SLOWED - ALONE) + 3 * 2 * (SLOWED - ALONE)
    assert row["alone_median_ns"] == (ALONE + 2 * ALONE) / 2


def test_a_grid_a_phase_or_a_module_of_its_own_makes_another_kernel() -> None:
    for other in ({"grid": 64}, {"phase": "backward"}, {"module": "mlp"}, {"name": "gemm2"}, {"device": 1}):
        alone = _op(0, 100, **({"phase": "forward"} | other))
        under = [_op(200, 400), _op(200, 400, "send")]
        [row] = _answer([_trace([alone, *under])])
        assert (row["alone_count"], row["overlapped_count"], row["compared_count"]) == (1, 1, 0), other
        assert row["excess_ns"] is None


def test_a_kernel_that_varies_by_itself_is_counted_and_not_compared() -> None:
    rows = [_op(0, 100), _op(200, 301), _op(600, 400), _op(600, 400, "send")]
    [row] = _answer([_trace(rows)])
    assert (row["mixed_count"], row["compared_count"], row["excess_ns"]) == (1, 0, None)
    rows[1]["dur_ns"] = 300
    [row] = _answer([_trace(rows)])
    assert (row["mixed_count"], row["compared_count"], row["excess_ns"]) == (0, 1, 200)


def test_the_method_says_whether_phase_or_module_were_known() -> None:
    def rows(phase: str | None) -> list[Row]:
        return [_op(0, 10, phase=phase), _op(20, 10, phase=phase), _op(20, 10, "send")]

    assert _answer([_trace(rows("forward"))])[0]["method"] == "name_grid_context"
    assert _answer([_trace(rows(None))])[0]["method"] == "name_grid"


def test_steps_share_the_median_and_their_excess_adds_up() -> None:
    rows = [_op(0, 100), _op(300, 140), _op(300, 140, "send"), _op(440, 160), _op(440, 160, "send")]
    by_step = _answer([_trace(rows, steps=[(5, 0, 440), (6, 440, 200)])], "step")
    assert [(row["step"], row["excess_ns"], row["hidden_comm_ns"]) for row in by_step] == [
        (5, 40, 140),
        (6, 60, 160),
    ]


def test_an_op_that_a_step_cuts_counts_once_where_it_starts_with_its_whole_length() -> None:
    rows = [_op(0, 100), _op(150, 100), _op(150, 100, "send")]
    by_step = _answer([_trace(rows, steps=[(1, 0, 200), (2, 200, 100)])], "step")
    assert [row["overlapped_count"] for row in by_step] == [1, 0]
    assert by_step[0]["overlapped_ns"] == 100
    assert by_step[1]["window_ns"] == 100


def test_hidden_time_is_no_figure_of_a_single_kind_of_kernel() -> None:
    [row] = _answer([_trace(_slowed())], "category")
    assert (row["hidden_comm_ns"], row["net_hidden_ns"]) == (None, None)
    assert row["window_count"] == 1


# --- synthetic runs: nothing interferes there --------------------------------------------------------

JITTERED = ("ep8-nccl-overlap", "ep8-deepep-overlap")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    exact = replace(PRESETS["ep8-nccl-overlap"], jitter=0.0, ranks=4, expert_parallel=4)
    for name in JITTERED:
        write(PRESETS[name], folder / name)
    write(exact, folder / "exact")
    return {path.name: tv.load(path) for path in folder.iterdir()}


@pytest.mark.parametrize("preset", JITTERED)
def test_without_interference_the_slowdown_is_one_within_the_jitter(
    preset: str, runs: dict[str, Run]
) -> None:
    jitter = PRESETS[preset].jitter
    total = tv.analyze(runs[preset], "interference", by=()).frame.row(0, named=True)
    # hundreds of durations, each of relative spread `jitter`, average to far less than one spread
    assert total["compared_count"] > 300
    assert total["slowdown"] == pytest.approx(1, abs=jitter / 2)
    assert abs(total["excess_ns"]) < jitter / 2 * total["overlapped_ns"]
    assert total["net_hidden_ns"] == pytest.approx(total["hidden_comm_ns"], rel=jitter)
    families = tv.analyze(runs[preset], "interference", by=("category",)).frame.drop_nulls("slowdown")
    assert len(families) >= 5
    assert max(abs(slowdown - 1) for slowdown in families["slowdown"]) < jitter


def test_without_jitter_kernels_of_fixed_size_have_no_excess_at_all(runs: dict[str, Run]) -> None:
    rows = tv.analyze(runs["exact"], "interference", by=("category",)).frame
    # the work of the others depends on how many tokens arrive
    fixed = rows.filter(
        pl.col("category").cast(pl.String).is_in(["gemm", "attention", "norm", "elementwise"])
    )
    assert all(fixed["compared_count"])
    assert fixed["excess_ns"].to_list() == [0] * 4
    assert fixed["slowdown"].to_list() == [1.0] * 4


def test_name_and_grid_alone_would_have_mixed_forward_and_backward(runs: dict[str, Run]) -> None:
    ops = runs["exact"].table("ops").filter(pl.col("category") == "gemm").collect()
    lengths = ops.group_by("name", "grid_blocks").agg(pl.col("dur_ns").n_unique())
    assert max(lengths["dur_ns"]) > 1


# --- a public trace ----------------------------------------------------------------------------------


def test_deepseek_overlap_has_a_price_and_still_pays(traces: Path) -> None:
    run = tv.load(traces / "pytorch" / "deepseek-ai-profile-data" / "train.json.gz")
    ops = run.traces[0].table("ops")
    told = _told(ops.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).to_dicts())
    [total] = tv.analyze(run, "interference").frame.to_dicts()
    for name in ("alone_count", "overlapped_count", "partly_count", "compared_count", "mixed_count"):
        assert total[name] == told[name], name
    assert total["excess_ns"] == told["compared_ns"] - told["expected_ns"]
    assert total["slowdown"] == pytest.approx(told["compared_ns"] / told["expected_ns"])
    assert total["hidden_comm_ns"] == 108_868_000
    assert 0 < total["net_hidden_ns"] < total["hidden_comm_ns"]
    assert total["compared_ratio"] < 1
    families = tv.analyze(run, "interference", by=("category",)).frame
    gemm = families.filter(pl.col("category") == "gemm").row(0, named=True)
    assert 1 < gemm["slowdown"] < 3
    assert gemm["compared_count"] > 0
    attention = families.filter(pl.col("category") == "attention").row(0, named=True)
    assert attention["alone_count"] == 0
    assert attention["slowdown"] is None


# --- the page ----------------------------------------------------------------------------------------


def _sentence(*traces: Trace) -> str:
    return Total.of(pl.DataFrame(_answer(list(traces), "step"), infer_schema_length=None)).sentence()


def test_the_page_ends_in_what_overlap_wins() -> None:
    assert "take 1.50 times as long as alone: of 4.50 µs hidden, 3.00 µs is won." in _sentence(
        _trace(_slowed())
    )
    uncompared = [*_slowed(), _op(10_000, 4500, "other")]
    assert "(50.0 % of overlapped kernel time could be compared): of 4.50 µs hidden, at most" in _sentence(
        _trace(uncompared)
    )


def test_the_page_does_not_claim_a_price_that_was_not_measured() -> None:
    assert "its cost is unknown" in _sentence(_trace([_op(0, 10), _op(0, 10, "send")]))
    assert "slows nothing down" in _sentence(_trace([_op(0, 10), _op(20, 10, "send")]))
