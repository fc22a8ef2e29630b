"""Who made whom wait: against the simulated truth, plain Python, and a real run of eight ranks."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview import api
from traceview.analyzers import _pace, stragglers
from traceview.analyzers._arrivals import ARRIVALS, observe
from traceview.analyzers._exchanges import timed
from traceview.analyzers._lateness import CAUSES
from traceview.contracts import Options
from traceview.run import only_ranks
from traceview.synth import Clock, Straggler, Timeline, Workload, simulate, write
from traceview.synth.workload import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from traceview.run import Run

EVEN = Workload(ranks=4, ranks_per_host=4, expert_parallel=4, steps=2, expert_imbalance=0.0)
TWO_HOSTS = replace(EVEN, ranks_per_host=2, clocks=(Clock(), Clock(offset_ns=5_000_000, drift_ppm=3.0)))
LATE = 2
FACTORS = {"slow_kernels": 1.3, "late_launch": 10.0, "more_tokens": 2.0}
NAMES = {"slow_kernels": "slower_kernels"}
"""What the analysis calls a cause of the generator, where it is another name."""
BLAME = ("blamed_ns", "unblamed_ns")


@cache
def _run(workload: Workload) -> Run:
    with TemporaryDirectory() as folder:
        write(workload, folder, compress=False)
        return tv.load(folder)


def _with(cause: Cause, workload: Workload = EVEN) -> Workload:
    return replace(workload, stragglers=(Straggler(LATE, cause, FACTORS[cause]),))


def _ask(run: Run, *by: str, steps: str = "auto") -> pl.DataFrame:
    return api.analyze(run, "stragglers", by=by, steps=steps).frame


def _first(frame: pl.DataFrame) -> dict[str, Any]:
    return frame.row(0, named=True)


def _sum(frame: pl.DataFrame, *columns: str) -> int:
    return sum(sum(frame[column].to_list()) for column in columns)


# --- the straggler and its cause ---------------------------------------------------------------------

each_cause = pytest.mark.parametrize("cause", [cause for cause in get_args(Cause) if cause in FACTORS])


@each_cause
def test_the_straggler_is_named_first_with_its_cause(cause: Cause) -> None:
    found = _first(_ask(_run(_with(cause)), "rank"))
    assert (found["rank"], found["cause"]) == (LATE, NAMES.get(cause, cause))
    assert found["kind"] == "persistent"
    assert found["persistent_ratio"] == 1.0


@each_cause
def test_it_is_named_where_compute_runs_beside_communication_of_untold_size(cause: Cause) -> None:
    interleaved = replace(EVEN, transport="deepep", overlap="1f1b", microbatches=2, layers=1)
    found = _first(_ask(_run(_with(cause, interleaved)), "rank"))
    assert (found["rank"], found["cause"]) == (LATE, NAMES.get(cause, cause))


@each_cause
def test_where_compute_runs_beside_communication_other_causes_are_hardly_ever_named(cause: Cause) -> None:
    interleaved = _with(cause, replace(EVEN, overlap="1f1b", microbatches=2, layers=1))
    found = _first(_ask(_run(interleaved), "rank"))
    assert found[f"{NAMES.get(cause, cause)}_ns"] > 0.99 * found["blamed_ns"]


@each_cause
def test_it_is_named_over_two_hosts_whose_clocks_differ(cause: Cause) -> None:
    found = _first(_ask(_run(_with(cause, TWO_HOSTS)), "rank"))
    assert (found["rank"], found["cause"]) == (LATE, NAMES.get(cause, cause))


@each_cause
def test_even_the_first_exchange_of_all_has_a_cause(cause: Cause) -> None:
    assert _first(_ask(_run(_with(cause)), "rank"))["unknown_cause_ns"] == 0


def test_it_is_named_when_it_is_late_for_all_to_alls_only() -> None:
    rows = _ask(_run(_with("more_tokens")), "rank", "collective")
    costly = rows.filter(pl.col("blamed_ns") > 1_000_000)
    assert set(costly["rank"]) == {LATE}
    assert set(costly["collective"].cast(pl.String)) == {"all_to_all"}


def test_a_rank_that_does_all_fixed_work_slower_casts_suspicion_on_its_gpu() -> None:
    assert _first(_ask(_run(_with("slow_kernels")), "rank"))["suspect"] == "gpu"


def test_a_rank_that_launches_late_casts_suspicion_on_its_host() -> None:
    found = _first(_ask(_run(_with("late_launch")), "rank"))
    assert found["suspect"] == "host"
    assert "late launches" in found["evidence"]


def test_more_tokens_cast_suspicion_on_nothing() -> None:
    assert set(_ask(_run(_with("more_tokens")), "rank")["suspect"]) == {None}


def test_an_earlier_exchange_that_the_rank_delayed_itself_is_no_excuse() -> None:
    groups = replace(EVEN, expert_parallel=2)  # expert gradients of ranks 0 and 2 are reduced in between
    found = _first(_ask(_run(_with("slow_kernels", groups)), "rank"))
    assert found["rank"] == LATE
    assert found["earlier_comm_ns"] < 0.05 * found["blamed_ns"]


# --- cost, against the simulated truth ---------------------------------------------------------------


def _uncovered(start: int, end: int, others: Iterable[tuple[int, int]]) -> int:
    """Length of [start, end) outside of all of ``others``."""
    left, position = 0, start
    for begin, stop in sorted(others):
        left += max(0, min(begin, end) - position)
        position = max(position, min(stop, end))
    return left + max(0, end - position)


def _true_waits(timeline: Timeline) -> Iterator[tuple[int | None, int, int]]:
    """Blamed rank, waiting rank and exposed wait, of every instance and member."""
    starts, ends = timeline.op_start_ns, timeline.op_end_ns
    busy = [op.exchange is not None or op.kernel.category != "memory" for op in timeline.ops]
    for exchange in timeline.exchanges:
        for members in exchange.message.group.members:
            arrivals = starts[exchange.ops[0], members]
            last = arrivals.max()
            late = [int(rank) for rank in members if starts[exchange.ops[0], rank] == last]
            for rank in members:
                others = [
                    (int(starts[op, rank]), int(ends[op, rank]))
                    for op in range(len(busy))
                    if busy[op] and op != exchange.ops[0] and ends[op, rank] > starts[exchange.ops[0], rank]
                ]
                wait = _uncovered(int(starts[exchange.ops[0], rank]), int(last), others)
                yield late[0] if len(late) == 1 else None, int(rank), wait


TRUE_WORKLOADS = {
    "even": EVEN,
    "imbalanced": replace(EVEN, expert_imbalance=0.8),
    "late": _with("slow_kernels"),
    "interleaved": _with("late_launch", replace(EVEN, overlap="1f1b", microbatches=2, layers=1)),
    "two groups": replace(EVEN, expert_parallel=2, ranks_per_host=2),
}


@pytest.mark.parametrize("workload", TRUE_WORKLOADS.values(), ids=TRUE_WORKLOADS.keys())
def test_every_pair_of_ranks_is_charged_what_the_one_truly_waited_for_the_other(workload: Workload) -> None:
    true: defaultdict[tuple[int | None, int], int] = defaultdict(int)
    for late, waiting, wait in _true_waits(simulate(workload)):
        true[late, waiting] += wait
    rows = _ask(_run(workload), "victim").filter(pl.col("blamed_ns") + pl.col("unblamed_ns") > 0)
    found = {
        (rank, victim): blamed + unblamed
        for rank, victim, blamed, unblamed in rows.select("rank", "victim", *BLAME).iter_rows()
    }
    assert found == {pair: wait for pair, wait in true.items() if wait}


def test_without_any_difference_between_ranks_nobody_is_blamed() -> None:
    rows = _ask(_run(replace(EVEN, jitter=0.0, start_skew_ns=0)), "rank")
    assert rows["rank"].to_list() == [None]
    assert _first(rows)["blamed_count"] == 0
    assert _first(rows)["unblamed_count"] == _first(rows)["complete_count"] > 0


def test_clocks_five_milliseconds_apart_never_look_like_lateness() -> None:
    rows = _ask(_run(replace(TWO_HOSTS, jitter=0.0, start_skew_ns=0)), "rank")
    assert _sum(rows, "blamed_ns") == 0


def test_clocks_five_milliseconds_apart_hardly_change_what_is_blamed_on_whom() -> None:
    true, found = (
        _ask(_run(workload), "rank").drop_nulls("rank").sort("rank")
        for workload in (replace(TWO_HOSTS, clocks=(Clock(),)), TWO_HOSTS)
    )
    joined = true.join(found, on="rank", how="full", coalesce=True, suffix="_found").fill_null(0)
    pairs = joined.select("blamed_ns", "blamed_ns_found").rows()
    assert all(abs(without - with_offset) < 20_000 for without, with_offset in pairs)  # of 5,000,000 ns
    assert all(lag < 1_000_000 for lag in found["lag_p95_ns"].to_list())


def test_an_analysis_of_several_hosts_states_the_residual_of_their_clocks() -> None:
    one, several = (_ask(_run(workload), "rank") for workload in (EVEN, TWO_HOSTS))
    partials = pl.concat(observe(trace, Options()) for trace in _run(TWO_HOSTS).traces)
    assert set(one["uncertainty_ns"]) == {0}
    assert set(several["uncertainty_ns"]) == {timed(partials).clock.residual_p95_ns}


# --- adding up ---------------------------------------------------------------------------------------

MIXED = _with("late_launch", replace(TWO_HOSTS, expert_parallel=2, expert_imbalance=0.5))


def _all_waiting(run: Run) -> int:
    found = timed(pl.concat(observe(trace, Options()) for trace in run.traces))
    return sum(found.exchanges["exposed_wait_ns"].drop_nulls().to_list())


@pytest.mark.parametrize(
    "by", [(), *((grain,) for grain in stragglers.GRAINS), ("rank", "step"), ("victim", "axis")]
)
def test_blamed_and_unblamed_waiting_add_up_to_all_exposed_waiting(by: tuple[str, ...]) -> None:
    rows = _ask(_run(MIXED), *by)
    assert _sum(rows, *BLAME) == _all_waiting(_run(MIXED)) > 0
    causes = pl.sum_horizontal(f"{cause}_ns" for cause in (*CAUSES, stragglers.UNKNOWN))
    assert rows.select((causes - pl.col("blamed_ns")).abs().sum()).item() == 0


def test_instances_are_counted_once_however_many_ranks_wait_in_them() -> None:
    by_rank, whole = _ask(_run(MIXED), "rank"), _first(_ask(_run(MIXED)))
    everything = _sum(by_rank, "blamed_count", "unblamed_count")
    assert everything == whole["complete_count"] == whole["blamed_count"] + whole["unblamed_count"]


def test_a_rank_is_measured_against_the_instances_it_took_part_in() -> None:
    truth = simulate(MIXED)
    taken_part = sum(rank == LATE for _, rank, _ in _true_waits(truth))
    found = _ask(_run(MIXED), "rank").filter(pl.col("rank") == LATE)
    assert found["complete_count"].to_list() == [taken_part]
    assert found["last_ratio"].to_list() == [found["blamed_count"][0] / taken_part]


def test_figures_per_step_are_the_sum_over_the_steps_looked_at() -> None:
    found = _first(_ask(_run(_with("slow_kernels")), "rank"))
    assert found["step_count"] == EVEN.steps
    assert found["blamed_per_step_ns"] == found["blamed_ns"] / EVEN.steps


def test_one_step_is_too_few_to_call_a_rank_persistent() -> None:
    run = _run(_with("slow_kernels"))
    found = api.analyze(run, "stragglers", by=("rank",), steps=range(EVEN.first_step, EVEN.first_step + 1))
    assert found.frame["kind"].null_count() == len(found.frame)
    assert found.frame["suspect"].null_count() == len(found.frame)


# --- ranks that are not there ------------------------------------------------------------------------


def test_a_single_rank_gives_no_row() -> None:
    alone = _ask(only_ranks(_run(EVEN), {3}), "rank")
    assert len(alone) == 0
    assert alone.schema == stragglers.RESULT.schema()


def test_instances_that_miss_a_rank_are_not_used() -> None:
    grouped = replace(EVEN, expert_parallel=2, ranks_per_host=2)
    whole, lacking = _run(grouped), only_ranks(_run(grouped), {0, 2, 3})
    rows = _ask(lacking, "victim", "axis").filter(pl.col("victim").is_not_null())
    assert set(rows["axis"].cast(pl.String)) == {"ep", "edp"}  # the groups of all four ranks miss one
    assert set(rows.filter(pl.col("axis") == "edp")["victim"]) == {0, 2}
    untouched, columns = pl.col("axis") == "ep", ("rank", "victim", *BLAME)
    expected = _ask(whole, "victim", "axis").filter(untouched & pl.col("victim").is_in([2, 3]))
    assert rows.filter(untouched).select(columns).equals(expected.select(columns))


# --- ties and leads, on exchanges made by hand -------------------------------------------------------

TRANSFER = 100
ORIGIN = 10**18
"""Stamps count from an epoch: what is exact for small numbers need not be for these."""


def _exchanges(starts: Sequence[Sequence[int]], hosts: Sequence[str] = "hhhh") -> pl.DataFrame:
    """`ARRIVALS` of all-gathers with nothing else on the device: one list of starts per instance."""
    rows = []
    for number, arrivals in enumerate(starts):
        end = max(arrivals) + TRANSFER
        for rank, start in enumerate(arrivals):
            begin, stop = ORIGIN + 10_000 * number + start, ORIGIN + 10_000 * number + end
            rows.append(
                {
                    "op": number,
                    "rank": rank,
                    "device": 0,
                    "step": 1,
                    "axis": "dp",
                    "collective": "all_gather",
                    "group_size": len(arrivals),
                    "group_key": "g",
                    "seq": number,
                    "ts_ns": begin,
                    "dur_ns": stop - begin,
                    "resolved_by": "kernel_args",
                    "confidence": 1.0,
                    "host": hosts[rank],
                    "is_host_known": True,
                    "node": 0,
                    "hidden_ns": 0,
                    "alone_start_ns": [begin],
                    "alone_end_ns": [stop],
                    **dict.fromkeys((name for name in ARRIVALS.columns if "_until_" in name), 0),
                }
            )
    return ARRIVALS.frame(pl.DataFrame(rows, infer_schema_length=None))


arrivals = st.lists(st.integers(0, 50), min_size=3, max_size=3)


@settings(max_examples=20)  # every example matches, aligns and compares a run
@given(st.lists(arrivals, min_size=1, max_size=6))
def test_blame_is_what_plain_python_says(starts: list[list[int]]) -> None:
    expected: defaultdict[tuple[int | None, int], int] = defaultdict(int)
    for instance in starts:
        last = max(instance)
        late = instance.index(last) if instance.count(last) == 1 else None
        for rank, start in enumerate(instance):
            expected[late, rank] += last - start
    rows = stragglers.summarize(_exchanges(starts), Options(by=("victim",)))
    found = {
        (rank, victim): blamed + unblamed
        for rank, victim, blamed, unblamed in rows.select("rank", "victim", *BLAME).iter_rows()
        if blamed + unblamed
    }
    assert found == {pair: wait for pair, wait in expected.items() if wait}


@settings(max_examples=20)  # every example matches, aligns and compares a run
@given(st.lists(arrivals, min_size=1, max_size=6))
def test_lags_are_what_plain_python_says(starts: list[list[int]]) -> None:
    lags, lates = defaultdict(list), defaultdict(list)
    for instance in starts:
        first, second, third = sorted(instance, reverse=True)
        if first > second:
            lags[instance.index(first)].append(first - second)
            lates[instance.index(first)].append(first - sorted([first, second, third])[1])
    rows = stragglers.summarize(_exchanges(starts), Options(by=("rank",))).drop_nulls("rank")
    found = {row["rank"]: row for row in rows.iter_rows(named=True)}
    assert set(found) == set(lags)
    for rank, values in lags.items():
        middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
        assert found[rank]["lag_p50_ns"] == sum(middle) / len(middle)
        assert found[rank]["blamed_count"] == len(values)
        late = sorted(lates[rank])[(len(values) - 1) // 2 : len(values) // 2 + 1]
        assert found[rank]["late_p50_ns"] == sum(late) / len(late)


def test_a_lead_within_the_residual_of_two_hosts_blames_nobody_and_a_longer_one_does() -> None:
    agreeing = [[0, 0, 0, 0]] * 30
    frame = _exchanges([*agreeing, [0, 0, 0, 90], [0, 0, 0, 3_000]], hosts="aabb")
    # the second host seems to leave 200 ns early, on time, or 200 ns late: that much the clocks cannot tell
    wobble = pl.when((pl.col("host") == "b") & (pl.col("seq") < 30)).then(200 * (pl.col("seq") % 3 - 1))
    shifted = frame.with_columns(ts_ns=pl.col("ts_ns") + wobble.otherwise(0))
    rows = stragglers.summarize(shifted, Options(by=("rank",)))
    found = {row["rank"]: row for row in rows.iter_rows(named=True)}
    assert set(found) == {3, None}
    assert found[3]["blamed_count"] == 1
    assert found[3]["blamed_ns"] == pytest.approx(3 * 3_000, abs=3 * 5)
    assert found[3]["uncertainty_ns"] == pytest.approx(
        100, abs=5
    )  # half of the disagreement lies on each side


# --- a real run --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nanogpt(traces: Path) -> Path:
    folder = traces / "pytorch" / "KellerJordan-modded-nanogpt" / "2025-12-11_baseline_8ranks"
    if not folder.is_dir():
        pytest.skip("the eight ranks of modded-nanogpt are not there")
    return folder


def _first_reduce_scatter(path: Path) -> tuple[float, float]:
    """Start and duration in µs of the first one whose launch was recorded, straight from the file."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel" and "ReduceScatter" in e["name"]]
    first = min((e for e in kernels if "In msg nelems" in e["args"]), key=lambda event: event["ts"])
    return float(first["ts"]), float(first["dur"])


def test_the_first_reduce_scatter_of_a_real_run_waits_for_rank_5(nanogpt: Path) -> None:
    recorded = [_first_reduce_scatter(nanogpt / f"rank{rank}-chrome-trace.json.gz") for rank in range(8)]
    durations = [duration for _, duration in recorded]
    assert 15 <= durations[5] <= 16
    assert all(160 <= duration <= 536 for rank, duration in enumerate(durations) if rank != 5)
    found = timed(pl.concat(observe(trace, Options(steps="all")) for trace in tv.load(nanogpt).traces))
    who = stragglers.blame(found, _pace.paces(found.windows))
    begun = found.exchanges.group_by("instance").agg(pl.col("start_ns").min())
    scatters = who.instances.filter(pl.col("collective") == "reduce_scatter").join(begun, on="instance")
    first = _first(scatters.sort("start_ns"))
    assert first["rank"] == 5
    last = max(start for start, _ in recorded)
    waits = who.waits.filter(pl.col("instance") == first["instance"]).sort("member")["wait_ns"]
    # stamps of 6e12 µs are floats here, good to a ns
    assert waits.to_list() == pytest.approx([1e3 * (last - start) for start, _ in recorded], abs=2)
