"""Counters: hand-made samples, a brute force over nanoseconds, synthetic metrics, and public memory events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview import schema
from traceview.analyzers.counters import ANALYSIS, BUCKET, DISTINCT, METHODS, PURE, STATES
from traceview.contracts import Options
from traceview.synth import Capture, Workload, simulate, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BASE = 1_775_000_000_000_000_001  # an epoch stamp that float64 does not hold
Op = tuple[int, int, str]
Sample = tuple[int, float, str | None]


def trace(
    ops: Sequence[Op],
    samples: Sequence[Sample] | None,
    *,
    rank: int = 0,
    steps: Sequence[tuple[int, int]] = (),
) -> Trace:
    """A rank with ops (start, end, class), samples (stamp, value, holds) of one metric, and steps."""
    work = pl.DataFrame(
        {
            "rank": pl.Series([rank] * len(ops), dtype=pl.Int32),
            "device": pl.Series([0] * len(ops), dtype=pl.Int32),
            "ts_ns": pl.Series([BASE + start for start, _, _ in ops], dtype=pl.Int64),
            "dur_ns": pl.Series([end - start for start, end, _ in ops], dtype=pl.Int64),
            "class": pl.Series([kind for _, _, kind in ops], dtype=pl.Enum(schema.CLASSES)),
        }
    )
    windows = pl.DataFrame(
        {
            "rank": pl.Series([rank] * len(steps), dtype=pl.Int32),
            "step": pl.Series(range(len(steps)), dtype=pl.Int64),
            "ts_ns": pl.Series([BASE + start for start, _ in steps], dtype=pl.Int64),
            "dur_ns": pl.Series([end - start for start, end in steps], dtype=pl.Int64),
            "status": pl.Series(["complete"] * len(steps), dtype=pl.Enum(schema.STEP_STATUSES)),
        }
    )
    tables = {"ops": work, "steps": windows}
    if samples is not None:
        rows = [
            {
                "rank": rank,
                "device": 0,
                "ts_ns": BASE + ts,
                "metric": "m",
                "unit": "%",
                "value": value,
                "holds": holds,
            }
            for ts, value, holds in samples
        ]
        tables["counters"] = schema.COUNTERS.frame(rows) if rows else schema.COUNTERS.empty()
    return Trace(Facts("x", "nsys", rank), tables)


def ask(*traces: Trace, by: tuple[str, ...] = ("metric",)) -> pl.DataFrame:
    options = Options(by=by)
    partials = pl.concat([ANALYSIS.partial.conform(ANALYSIS.map(trace, options)) for trace in traces])
    return ANALYSIS.result.conform(ANALYSIS.reduce(partials, options))


def only(frame: pl.DataFrame) -> dict[str, Any]:
    [row] = frame.to_dicts()
    return row


# --- what a sample stands for -------------------------------------------------------------------------


def test_a_mean_stands_for_the_time_since_the_sample_before_it() -> None:
    row = only(ask(trace([(0, 30, "compute")], [(10, 10, "before"), (20, 40, "before"), (30, 70, "before")])))
    assert (row["mean"], row["median"], row["p95"], row["min"], row["max"]) == (40, 40, 70, 10, 70)
    assert (row["sampled_ns"], row["window_ns"], row["sample_count"], row["period_ns"]) == (30, 30, 3, 10)
    assert row["method"] == METHODS[0]


def test_a_mean_does_not_reach_back_over_a_gap() -> None:
    samples: list[Sample] = [
        (10, 1.0, "before"),
        (20, 1.0, "before"),
        (30, 1.0, "before"),
        (90, 5.0, "before"),
    ]
    row = only(ask(trace([(0, 100, "compute")], samples)))
    assert row["sampled_ns"] == 30 + 20  # twice the usual distance, and nothing after the last
    assert row["mean"] == (30 * 1 + 20 * 5) / 50
    assert row["sampled_ratio"] == 0.5


def test_a_level_stands_until_the_next_one_and_is_carried_into_the_window() -> None:
    row = only(ask(trace([(0, 100, "compute")], [(-50, 4, "after"), (60, 8, "after"), (500, 1, "after")])))
    assert (row["mean"], row["median"], row["p95"]) == (0.6 * 4 + 0.4 * 8, 4, 8)
    assert (row["sample_count"], row["sampled_ns"], row["max"]) == (2, 100, 8)
    assert row["method"] == METHODS[1]


def test_samples_that_stand_for_no_time_count_once_each_where_they_are_stamped() -> None:
    ops: list[Op] = [(0, 10, "compute"), (10, 50, "comm")]
    made = trace(ops, [(0, 1, None), (9, 3, None), (10, 8, None), (30, 8, None), (50, 99, None)])
    row = only(ask(made))
    assert (row["mean"], row["median"], row["p95"], row["max"], row["sample_count"]) == (5, 3, 8, 8, 4)
    assert (row["sampled_ns"], row["sampled_ratio"], row["method"]) == (None, None, METHODS[2])
    means = dict(ask(made, by=("state",)).select("state", "mean").iter_rows())
    assert means == {"compute": 2, "exposed_comm": 8, "exposed_copy": None, "idle": None}


def test_nothing_tells_for_how_long_a_lone_mean_speaks() -> None:
    row = only(ask(trace([(0, 10, "compute")], [(5, 3, "before")])))
    figures = ("mean", "median", "p95", "min", "max", "period_ns")
    assert {name: row[name] for name in figures} == dict.fromkeys(figures)
    assert (row["sampled_ns"], row["sampled_ratio"], row["device_count"]) == (0, 0, 1)


# --- states -------------------------------------------------------------------------------------------


def test_a_mean_speaks_for_a_state_only_if_it_lies_in_it() -> None:
    ops: list[Op] = [(0, 100, "compute"), (95, 205, "comm")]
    samples: list[Sample] = [(100, 90, "before"), (200, 30, "before"), (300, 7, "before")]
    rows = {row["state"]: row for row in ask(trace(ops, samples, steps=[(0, 300)]), by=("state",)).to_dicts()}
    assert list(rows) == list(STATES)
    assert (rows["compute"]["mean"], rows["compute"]["sampled_ratio"]) == (90, 1)
    assert (rows["exposed_comm"]["mean"], rows["exposed_comm"]["window_ns"]) == (30, 105)
    assert (
        rows["exposed_comm"]["sampled_ns"] == 100
    )  # the last sample has 5 ns of it: too few to speak for it
    assert (rows["idle"]["mean"], rows["idle"]["sampled_ns"]) == (7, 95)
    assert (rows["exposed_copy"]["mean"], rows["exposed_copy"]["sampled_ratio"]) == (None, None)


def test_a_level_holds_in_every_state_it_meets() -> None:
    ops: list[Op] = [(0, 10, "compute"), (10, 13, "comm"), (13, 20, "copy")]
    frame = ask(trace(ops, [(0, 5, "after"), (12, 9, "after")]), by=("state",))
    means = dict(frame.select("state", "mean").iter_rows())
    assert means == {
        "compute": 5, "exposed_comm": pytest.approx((2 * 5 + 1 * 9) / 3), "exposed_copy": 9, "idle": None,
    }  # fmt: skip
    assert frame["sampled_ns"].sum() == 20


# --- brute force --------------------------------------------------------------------------------------


def brute(ops: Sequence[Op], samples: Sequence[Sample], state: str | None) -> dict[str, float | None]:
    """The figures of one metric from a list of the value at every nanosecond."""
    end = max(stop for _, stop, _ in ops)
    begin = min(start for start, _, _ in ops)
    kind = {}
    for now in range(begin, end):
        running = {op_class for start, stop, op_class in ops if start <= now < stop}
        kind[now] = (
            "compute" if running & {"compute", "fused"}
            else "exposed_comm" if "comm" in running
            else "exposed_copy" if running else "idle"
        )  # fmt: skip
    values = []
    for (ts, value, _), following in zip(samples, [*samples[1:], None], strict=True):
        until = end if following is None else following[0]
        values += [value for now in range(ts, until) if now in kind and state in {None, kind[now]}]
    values.sort()
    if not values:
        return {"mean": None, "median": None, "p95": None}
    return {
        "mean": sum(values) / len(values),
        "median": values[-(-len(values) // 2) - 1],
        "p95": values[-(-19 * len(values) // 20) - 1],
    }


TIMES = st.integers(0, 60)
OPS = st.lists(
    st.tuples(TIMES, st.integers(1, 20), st.sampled_from(["compute", "comm", "copy", "fused"])),
    min_size=1, max_size=6,
)  # fmt: skip
LEVELS = st.dictionaries(st.integers(-20, 90), st.integers(-3, 9), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(ops=OPS, levels=LEVELS)
def test_levels_are_what_a_count_of_nanoseconds_gives(
    ops: list[tuple[int, int, str]], levels: dict[int, int]
) -> None:
    spans = [(start, start + length, kind) for start, length, kind in ops]
    samples: list[Sample] = [(ts, float(value), "after") for ts, value in sorted(levels.items())]
    made = trace(spans, samples)
    whole = only(ask(made))
    expected = brute(spans, samples, None)
    assert {name: whole[name] for name in expected} == pytest.approx(expected)
    for row in ask(made, by=("state",)).to_dicts():
        expected = brute(spans, samples, row["state"])
        assert {name: row[name] for name in expected} == pytest.approx(expected)


# --- many ranks, many values --------------------------------------------------------------------------


def test_quantiles_are_exact_over_ranks() -> None:
    ops: list[Op] = [(0, 100, "compute")]
    first = trace(ops, [(0, 1, "after")], rank=0)
    second = trace(ops, [(0, 2, "after"), (50, 3, "after")], rank=1)
    row = only(ask(first, second))
    # 100 ns of 1, 50 of 2, 50 of 3: the median of the ranks' medians would be 1.5
    assert (row["mean"], row["median"], row["p95"], row["device_count"]) == (1.75, 1, 3, 2)
    assert row["quantile_error_ratio"] == 0
    by_rank = ask(second, first, by=("rank",))
    assert by_rank.select("rank", "mean").rows() == [(0, 1.0), (1, 2.5)]


def test_very_many_values_are_put_in_buckets_and_the_error_is_bounded() -> None:
    rng = np.random.default_rng(7)
    values = rng.uniform(1e6, 9e10, DISTINCT * 8)
    samples: list[Sample] = [(10 * place, float(value), "after") for place, value in enumerate(values)]
    made = trace([(0, 10 * len(values), "compute")], samples)
    partial = ANALYSIS.map(made, Options(by=("metric",)))
    assert len(partial) < len(values) // 2
    row, ordered = only(ask(made)), np.sort(values)
    assert row["quantile_error_ratio"] == BUCKET
    assert row["median"] == pytest.approx(ordered[len(values) // 2 - 1], rel=BUCKET)
    assert row["p95"] == pytest.approx(ordered[-(-19 * len(values) // 20) - 1], rel=BUCKET)
    assert (row["min"], row["max"]) == (values.min(), values.max())
    assert row["mean"] == pytest.approx(values.mean())


# --- edges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [None, []], ids=["absent", "empty"])
def test_a_trace_without_counters_has_no_rows(samples: list[Sample] | None) -> None:
    assert ask(trace([(0, 10, "compute")], samples)).is_empty()
    assert ask(trace([], samples)).is_empty()


def test_counters_of_a_device_that_did_nothing_are_left_out_and_those_of_none_go_with_the_first() -> None:
    made = trace([(0, 10, "compute")], [(0, 5, "after")])
    counters = made.table("counters")
    elsewhere = made.with_tables(counters=counters.with_columns(device=pl.lit(7, pl.Int32)))
    nowhere = made.with_tables(counters=counters.with_columns(device=pl.lit(None, pl.Int32)))
    assert ask(elsewhere).is_empty()
    assert ask(nowhere).equals(ask(made))


def test_ranks_without_counters_change_nothing() -> None:
    ops: list[Op] = [(0, 10, "compute")]
    sampled = trace(ops, [(0, 5, "after")], rank=1)
    assert ask(trace(ops, None, rank=0), sampled).equals(ask(sampled))


def test_each_step_has_its_own_figures_and_they_add_up() -> None:
    made = trace([(0, 40, "compute")], [(0, 1, "after"), (30, 9, "after")], steps=[(0, 20), (20, 40)])
    frame = ask(made, by=("step",))
    assert frame.select("step", "mean", "sample_count").rows() == [(0, 1.0, 1), (1, 5.0, 2)]
    whole = only(ask(made))
    assert (whole["mean"], whole["sample_count"]) == (3.0, 2)


# --- synthetic metrics, whose truth is the timeline ----------------------------------------------------

PLAN = Workload(
    ranks=2, ranks_per_host=2, expert_parallel=2, steps=2, layers=1, experts=8, top_k=2, tokens=8192, hidden=2048,
    expert_hidden=768, vocabulary=1024, jitter=0.0, expert_imbalance=0.0, capture=Capture(gpu_metrics_hz=200_000),
)  # fmt: skip


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tv.Run:
    folder = tmp_path_factory.mktemp("sampled")
    write(PLAN, folder, trace_format="nsys-arrowdir")
    return tv.load(folder, cache=None, workers=1)


def test_the_link_reads_what_the_exchanges_moved(sampled: tv.Run) -> None:
    timeline = simulate(PLAN)
    for rank in range(PLAN.ranks):
        sent = sum(int(e.message.traffic.sent_bytes[rank]) for e in timeline.exchanges)
        samples = sampled.traces[rank].table("counters")
        share = samples.filter(pl.col("metric").cast(pl.String).str.contains("TX"))["value"]
        # every sample is rounded to a whole percent of 450 bytes per ns over 5 µs
        assert share.sum() / 100 * 5_000 * 450 == pytest.approx(sent, rel=0.02)


def test_while_communication_is_exposed_few_sms_work_and_the_link_does(sampled: tv.Run) -> None:
    means = {
        (row["metric"].split()[0], row["state"]): row["mean"]
        for row in tv.counters(sampled, by=("state",)).frame.to_dicts()
        if "RX" not in row["metric"]
    }
    # NCCL's kernels have 24 blocks on 132 SMs; a sample may have a tenth of something else in it
    assert means["SMs", "exposed_comm"] == pytest.approx(100 * 24 / 132, abs=100 * (1 - PURE))
    assert means["SMs", "compute"] > 85 > means["SMs", "exposed_comm"] > means["SMs", "idle"]
    assert means["NVLink", "exposed_comm"] > 30
    assert means["NVLink", "idle"] < 5


def test_samples_cover_every_step(sampled: tv.Run) -> None:
    frame = tv.counters(sampled, by=("rank", "step")).frame
    assert len(frame) == 5 * PLAN.ranks * PLAN.steps
    assert frame["sampled_ratio"].min() == 1


# --- public traces ------------------------------------------------------------------------------------


def test_memory_of_a_public_trace_is_what_a_walk_over_its_events_gives(traces: Path) -> None:
    import gzip  # noqa: PLC0415 - needed by this test alone
    import json  # noqa: PLC0415 - as above

    path = traces / "pytorch/AMD-AGI-TraceLens/h100/gaunernst_bert-small-uncased__1016001.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    totals = [
        event["args"]["Total Allocated"]
        for event in events
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == 1
    ]
    run = tv.load(path, cache=None)
    counters = run.traces[0].table("counters")
    allocated = counters.filter(pl.col("metric").cast(pl.String) == "memory allocated")
    assert sorted(allocated["value"].to_list()) == sorted(map(float, totals))
    row = only(tv.counters(run, steps="all").frame.filter(pl.col("metric") == "memory allocated"))
    assert min(totals) <= row["min"] <= row["median"] <= row["p95"] <= row["max"] <= max(totals)
