"""Whether communication can be hidden: oracles in plain Python, cases by hand, synthetic and real runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview.analyzers.hideability import ANALYSIS, LAYER_AXES
from traceview.contracts import Options
from traceview.reports.hideability import sentence
from traceview.schema import COLLECTIVE_OPS, DEVICES, OPS, STEPS
from traceview.synth import PRESETS, Timeline, Workload, simulate, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.run import Run

Row = dict[str, Any]


def _op(
    start: int,
    length: int,
    category: str = "gemm",
    *,
    axis: str = "ep",
    launch: int | None = 0,
    device: int = 0,
    layer: int | None = 0,
    phase: str | None = "forward",
    microbatch: int | None = 0,
) -> Row:
    return {
        "ts_ns": start,
        "dur_ns": length,
        "category": category,
        "class": {"gemm": "compute", "memory": "copy"}.get(category, "comm"),
        "axis": axis,
        "launch_ts_ns": launch,
        "device": device,
        "layer": layer,
        "phase": phase,
        "microbatch": microbatch,
    }


def _trace(rows: list[Row], *, rank: int = 0, ranks: int = 1, device_name: str | None = None) -> Trace:
    """A rank with these ops; its exchanges are those of a group of ``ranks`` that agree on 4,000 bytes."""
    constant = {"rank": rank, "rule_id": "test", "name": "kernel", "kind": "kernel", "stream": 7}
    sized = {"resolved_by": "kernel_args", "confidence": 1.0, "group_name": "group"}
    sized |= {"group_ranks": list(range(ranks)), "group_size": ranks, "in_bytes": 4000, "out_bytes": 4000}
    ops = [{"op": place} | constant | row for place, row in enumerate(rows)]
    comm = [
        row | sized | {"collective": row["category"], "seq": row["op"]}
        for row in ops
        if row["class"] == "comm"
    ]
    types = {"launch_ts_ns": pl.Int64, "layer": pl.Int64, "microbatch": pl.Int64, "phase": pl.String}
    tables = {
        "ops": OPS.frame(pl.DataFrame(ops, schema_overrides=types)),
        "collectives": COLLECTIVE_OPS.frame(pl.DataFrame(comm, schema_overrides=types))
        if comm
        else COLLECTIVE_OPS.empty(),
        "steps": STEPS.empty(),
        "devices": DEVICES.frame([{"rank": rank, "device": place} for place in range(8)]),
    }
    return Trace(Facts("made.json", "kineto", rank=rank, host="a", device_name=device_name), tables)


def _answer(rows: list[Row], *by: str, ranks: int = 2) -> list[Row]:
    """The answer for ``ranks`` ranks that all do the same, at the same time: nobody waits for anybody."""
    options = Options(by=by)
    partials = [ANALYSIS.map(_trace(rows, rank=rank, ranks=ranks), options) for rank in range(ranks)]
    return ANALYSIS.reduce(pl.concat(partials), options).to_dicts()


# --- slack: an oracle that looks at every nanosecond -------------------------------------------------


def _told_slack(op: Row, rows: list[Row]) -> tuple[int, bool, int]:
    """``slack_ns, has_consumer, slack_compute_ns`` of one exchange."""
    own = [row for row in rows if row["device"] == op["device"]]
    start, end = op["ts_ns"], op["ts_ns"] + op["dur_ns"]

    def running(at: int, kind: str) -> bool:
        return any(r["class"] == kind and r["ts_ns"] <= at < r["ts_ns"] + r["dur_ns"] for r in own)

    def next_start(kind: str) -> float:
        later = [r["ts_ns"] for r in own if r["class"] == kind and r["ts_ns"] >= end]
        return min(later, default=float("inf"))

    ready = start
    if op["launch_ts_ns"] is not None:
        ends = [r["ts_ns"] + r["dur_ns"] for r in own if r["ts_ns"] + r["dur_ns"] <= start]
        ready = min(start, max([op["launch_ts_ns"], *ends]))
    goes_on = running(end - 1, "compute") and running(end, "compute")
    waits = not goes_on and not running(end, "comm") and next_start("compute") < next_start("comm")
    due = int(next_start("compute")) if waits else end
    return due - ready, waits, sum(running(at, "compute") for at in range(ready, due))


_ROWS = st.lists(
    st.builds(
        _op,
        st.integers(0, 40),
        st.integers(0, 12),
        st.sampled_from(["gemm", "gemm", "memory", "all_to_all", "all_gather"]),
        launch=st.sampled_from([None, -5, 0, 7]),
        device=st.integers(0, 1),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60)
@given(rows=_ROWS)
def test_slack_and_the_compute_in_it_are_those_found_nanosecond_by_nanosecond(rows: list[Row]) -> None:
    found = ANALYSIS.map(_trace(rows), Options()).drop_nulls("op").sort("op")
    told = [_told_slack(row, rows) for row in rows if row["class"] == "comm"]
    assert found.select("slack_ns", "has_consumer", "slack_compute_ns").rows() == told


def test_the_slack_runs_from_the_last_end_before_it_to_the_kernel_that_waits() -> None:
    rows = [_op(0, 10), _op(12, 20, "all_to_all"), _op(35, 5)]
    [row] = _answer(rows)
    assert (row["slack_ns"], row["open_count"]) == (2 * (35 - 10), 0)


def test_a_kernel_behind_a_second_exchange_does_not_wait_for_the_first() -> None:
    rows = [_op(0, 10), _op(12, 20, "all_gather"), _op(33, 20, "all_to_all"), _op(60, 5)]
    first, second = sorted(_answer(rows, "collective"), key=lambda row: row["slack_ns"])
    assert (first["collective"], first["open_count"], first["slack_ns"]) == ("all_gather", 2, 2 * (32 - 10))
    assert (second["collective"], second["open_count"], second["slack_ns"]) == (
        "all_to_all",
        0,
        2 * (60 - 32),
    )


def test_an_exchange_that_ends_under_compute_has_a_lower_bound_of_slack() -> None:
    [row] = _answer([_op(0, 10), _op(10, 20, "all_to_all"), _op(10, 50), _op(70, 5)])
    assert (row["open_count"], row["slack_ns"], row["slack_compute_ns"]) == (2, 2 * 20, 2 * 20)


# --- scopes ------------------------------------------------------------------------------------------


def _told_scope(op: Row, rows: list[Row]) -> int | None:
    """Compute the exchange may hide under, as a set of nanoseconds."""
    own = [row for row in rows if row["device"] == op["device"] and row["class"] == "compute"]
    if op["axis"] in LAYER_AXES:
        if op["layer"] is None:
            return None
        own = [row for row in own if row["layer"] == op["layer"]]
        microbatches = {row["microbatch"] for row in rows if row["layer"] is not None}
        if len(microbatches) == 1 and None not in microbatches:
            if op["phase"] is None:
                return None
            own = [row for row in own if row["phase"] == op["phase"]]
    return len({at for row in own for at in range(row["ts_ns"], row["ts_ns"] + row["dur_ns"])})


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.builds(
            _op,
            st.integers(0, 40),
            st.integers(0, 12),
            st.sampled_from(["gemm", "gemm", "all_to_all"]),
            axis=st.sampled_from(["ep", "dp"]),
            device=st.integers(0, 1),
            layer=st.sampled_from([None, 0, 1]),
            phase=st.sampled_from([None, "forward", "backward"]),
            microbatch=st.sampled_from([0, 0, 0, 0, 0, 0, 1, None]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_compute_of_a_scope_is_that_of_its_layer_and_phase_or_of_the_step(rows: list[Row]) -> None:
    found = ANALYSIS.map(_trace(rows), Options()).drop_nulls("op").sort("op")
    told = [_told_scope(row, rows) for row in rows if row["class"] == "comm"]
    assert found["scope_compute_ns"].to_list() == told


# --- verdicts ----------------------------------------------------------------------------------------


def _verdict(rows: list[Row], *, ranks: int = 2) -> tuple[bool | None, int, int]:
    [row] = _answer(rows, ranks=ranks)
    return row["hideable"], row["hideable_count"], row["unhideable_count"]


def test_a_transfer_longer_than_the_compute_of_its_layer_cannot_be_hidden() -> None:
    assert _verdict([_op(0, 99), _op(99, 100, "all_to_all")]) == (False, 0, 2)
    assert _verdict([_op(0, 100), _op(100, 100, "all_to_all")]) == (None, 0, 0)


def test_the_transfers_of_one_kind_in_a_layer_need_their_compute_together() -> None:
    both = [_op(0, 150), _op(150, 100, "all_to_all"), _op(250, 100, "all_to_all")]
    assert _verdict(both) == (False, 0, 4)
    assert _answer(both)[0]["scope_compute_ns"] == 2 * 150  # once per rank, not per exchange
    other_layer = [both[0], both[1], _op(250, 100, "all_to_all", layer=1), _op(350, 150, layer=1)]
    assert _verdict(other_layer) == (None, 0, 0)


def test_a_transfer_with_compute_beside_it_can_be_hidden_but_for_gaps_between_kernels() -> None:
    assert _verdict([_op(0, 48), _op(50, 50), _op(0, 100, "all_to_all")]) == (True, 2, 0)
    assert _verdict([_op(0, 40), _op(50, 50), _op(0, 100, "all_to_all"), _op(200, 100)]) == (None, 0, 0)


def test_gradients_may_hide_under_the_whole_step() -> None:
    elsewhere = [_op(0, 10), _op(10, 100, "reduce_scatter", axis="dp"), _op(110, 100, layer=1)]
    assert _verdict(elsewhere) == (None, 0, 0)
    elsewhere[1]["axis"] = "ep"
    assert _verdict(elsewhere) == (False, 0, 2)


@pytest.mark.parametrize("other", [1, None])
def test_with_several_or_unknown_microbatches_the_backward_counts_too(other: int | None) -> None:
    rows = [_op(0, 10), _op(10, 100, "all_to_all"), _op(110, 100, phase="backward")]
    assert _verdict(rows) == (False, 0, 2)
    rows[2]["microbatch"] = other
    assert _verdict(rows) == (None, 0, 0)


def test_without_the_other_ranks_a_transfer_is_unknown_and_nothing_is_beyond_hiding() -> None:
    partial = ANALYSIS.map(_trace([_op(0, 10), _op(10, 100, "all_to_all")], ranks=8), Options(by=()))
    [row] = ANALYSIS.reduce(partial, Options(by=())).to_dicts()
    assert (row["timed_count"], row["transfer_ns"], row["achieved_bytes_per_s"]) == (0, None, None)
    assert (row["hideable"], row["unhideable_count"]) == (None, 0)


def test_without_the_other_ranks_the_expected_bandwidth_can_still_rule_it_out() -> None:
    def of(compute_ns: int) -> Row:
        rows = [_op(0, compute_ns), _op(compute_ns, 100, "all_to_all")]
        trace = _trace(rows, ranks=8, device_name="NVIDIA H100 80GB HBM3")
        [row] = ANALYSIS.reduce(ANALYSIS.map(trace, Options(by=())), Options(by=())).to_dicts()
        return row

    # 3,500 of 4,000 bytes leave the rank over NVLink
    needed_ns = 3500 / of(100)["expected_bytes_per_s"] * 1e9
    assert needed_ns == pytest.approx(3500 / 450, rel=0.5)
    assert of(int(needed_ns))["out_of_reach_count"] == 1
    assert of(int(needed_ns))["hideable"] is False
    assert of(int(needed_ns) + 1)["unhideable_count"] == 0


def test_bandwidths_are_bytes_over_the_time_there_is_and_the_time_it_took() -> None:
    [row] = _answer([_op(0, 40), _op(20, 100, "all_to_all", launch=20), _op(120, 100)], ranks=4)
    # a quarter of the 4,000 bytes stays on the rank
    assert row["moved_bytes"] == 4 * 3000
    assert row["achieved_bytes_per_s"] == pytest.approx(3000 / 100e-9)
    assert row["required_bytes_per_s"] == pytest.approx(3000 / 20e-9)


@pytest.mark.parametrize(
    ("collective", "moved"),
    [
        ("all_gather", 3000),
        ("reduce_scatter", 3000),
        ("all_reduce", 6000),
        ("broadcast", 4000),
        ("barrier", None),
    ],
)
def test_moved_bytes_are_those_of_the_bus_bandwidth(collective: str, moved: int | None) -> None:
    row = _op(0, 10, "all_gather") | {"category": "all_gather"}
    trace = _trace([row], ranks=4)
    comm = trace.table("collectives").with_columns(
        collective=pl.lit(collective, COLLECTIVE_OPS.columns["collective"].dtype)
    )
    found = ANALYSIS.map(trace.with_tables(collectives=comm), Options(by=()))
    assert ANALYSIS.reduce(found, Options(by=()))["moved_bytes"].to_list() == [moved]


# --- synthetic runs ----------------------------------------------------------------------------------

CROSS = replace(PRESETS["ep8-nccl"], ranks_per_host=4, steps=2)
WORKLOADS: dict[str, Workload] = {
    "ep8-nccl": replace(PRESETS["ep8-nccl"], steps=2),
    "ep8-nccl-shared": replace(PRESETS["ep8-nccl-shared"], steps=2),
    "cross": CROSS,
}
KEYS = ("axis", "role", "phase", "layer")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Run, Timeline]]:
    made: dict[str, tuple[Run, Timeline]] = {}

    def get(name: str) -> tuple[Run, Timeline]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            write(WORKLOADS[name], folder)
            made[name] = tv.load(folder), simulate(WORKLOADS[name])
        return made[name]

    return get


def _ep_exchanges(timeline: Timeline) -> list[tuple[Any, int, int]]:
    """``(scope, op, rank)`` of every dispatch and combine."""
    return [
        (timeline.ops[exchange.ops[0]].scope, exchange.ops[0], rank)
        for exchange in timeline.exchanges
        if exchange.message.role
        for rank in range(timeline.workload.ranks)
    ]


def _computes(timeline: Timeline) -> list[int]:
    return [
        place
        for place, op in enumerate(timeline.ops)
        if op.exchange is None and op.kernel.category != "memory"
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_transfers_bytes_and_scopes_of_expert_exchanges_are_the_true_ones(
    name: str, known: Callable[[str], tuple[Run, Timeline]]
) -> None:
    run, timeline = known(name)
    rows = tv.analyze(run, "hideability", by=KEYS).frame.filter(pl.col("axis") == "ep")
    length = timeline.op_end_ns - timeline.op_start_ns
    transfer, moved, compute = Counter[Any](), Counter[Any](), Counter[Any]()
    for exchange in timeline.exchanges:
        if role := exchange.message.role:
            scope, traffic = timeline.ops[exchange.ops[0]].scope, exchange.message.traffic
            key = (role, scope.phase, scope.layer)
            transfer[key] += int(exchange.transfer_ns.sum())
            moved[key] += int(np.maximum(traffic.sent_bytes, traffic.received_bytes).sum())
    for place in _computes(timeline):
        scope = timeline.ops[place].scope
        compute[scope.phase, scope.layer] += int(length[place].sum())
    assert len(rows) == 2 * 2 * 2
    slack = rows["uncertainty_ns"].max()
    for row in rows.to_dicts():
        key = (row["role"], row["phase"], row["layer"])
        assert row["moved_bytes"] == moved[key]
        assert row["scope_compute_ns"] == compute[key[1:]]
        assert abs(row["transfer_ns"] - transfer[key]) <= row["exchange_count"] * slack
        assert row["achieved_bytes_per_s"] == pytest.approx(moved[key] / transfer[key] * 1e9, rel=1e-3)


def test_nothing_runs_beside_exchanges_that_are_not_overlapped(
    known: Callable[[str], tuple[Run, Timeline]],
) -> None:
    rows = tv.analyze(known("ep8-nccl")[0], "hideability", by=("axis", "role")).frame
    ep = rows.filter(pl.col("axis") == "ep")
    assert ep["slack_compute_ns"].to_list() == [0, 0]
    assert ep["required_bytes_per_s"].to_list() == [None, None]
    assert ep["hideable"].to_list() == [None, None]


def test_the_shared_expert_is_the_compute_beside_its_exchange(
    known: Callable[[str], tuple[Run, Timeline]],
) -> None:
    run, timeline = known("ep8-nccl-shared")
    start, end = timeline.op_start_ns, timeline.op_end_ns
    beside = Counter[str]()
    for scope, op, rank in _ep_exchanges(timeline):
        exchange = timeline.ops[op].exchange
        assert exchange is not None
        role = timeline.exchanges[exchange].message.role
        assert role is not None
        for place in _computes(timeline):
            if timeline.ops[place].scope == scope:
                shared = min(end[op, rank], end[place, rank]) - max(start[op, rank], start[place, rank])
                beside[role] += max(0, int(shared))
    rows = tv.analyze(run, "hideability", by=("axis", "role")).frame.filter(pl.col("axis") == "ep")
    found = {row["role"]: row for row in rows.to_dicts()}
    assert found["dispatch"]["slack_compute_ns"] == beside["dispatch"] > 0
    assert found["combine"]["slack_compute_ns"] == beside["combine"] == 0
    required = found["dispatch"]["moved_bytes"] / beside["dispatch"] * 1e9
    assert found["dispatch"]["required_bytes_per_s"] == pytest.approx(required)
    assert required > found["dispatch"]["achieved_bytes_per_s"]


def test_exchanges_between_hosts_that_outlast_their_layer_are_listed(
    known: Callable[[str], tuple[Run, Timeline]],
) -> None:
    run, timeline = known("cross")
    length = timeline.op_end_ns - timeline.op_start_ns
    compute = Counter[Any]()
    for place in _computes(timeline):
        scope = timeline.ops[place].scope
        for rank in range(CROSS.ranks):
            compute[scope.step, scope.phase, scope.layer, rank] += int(length[place, rank])
    rows = tv.analyze(run, "hideability", by=("axis", "role", "phase")).frame
    margin = int(max(rows["uncertainty_ns"]))
    never, close = Counter[Any](), Counter[Any]()
    for exchange in timeline.exchanges:
        if role := exchange.message.role:
            scope = timeline.ops[exchange.ops[0]].scope
            for rank in range(CROSS.ranks):
                room = compute[scope.step, scope.phase, scope.layer, rank] - int(exchange.transfer_ns[rank])
                never[role, scope.phase] += room < 0
                close[role, scope.phase] += abs(room) <= 2 * margin
    for row in rows.filter(pl.col("axis") == "ep").to_dicts():
        key = (row["role"], row["phase"])
        assert abs(row["unhideable_count"] - never[key]) <= close[key]
        assert row["hideable"] is (False if never[key] - close[key] > row["exchange_count"] / 2 else None)
    assert never["dispatch", "forward"] == CROSS.ranks * CROSS.steps * CROSS.layers
    assert rows.filter(pl.col("axis") != "ep")["unhideable_count"].to_list() == [0, 0, 0]
    assert "No overlap setting can hide ep dispatch forward" in sentence(rows)


# --- a public trace ----------------------------------------------------------------------------------


def test_one_rank_of_deepseek_claims_nothing_about_transfers(traces: Path) -> None:
    run = tv.load(traces / "pytorch" / "deepseek-ai-profile-data" / "train.json.gz")
    rows = tv.analyze(run, "hideability", by=("collective", "role")).frame
    comm = run.traces[0].table("collectives")
    assert rows["dur_ns"].sum() == sum(comm["dur_ns"].to_list())
    assert rows["timed_count"].sum() == 0
    assert rows["transfer_ns"].null_count() == len(rows)
    assert rows["unhideable_count"].sum() == 0
    ops = run.traces[0].table("ops").with_columns(pl.col("class").cast(pl.String)).to_dicts()
    busy = [op for op in ops if op["class"] == "compute"]
    hidden = 0
    for one in comm.to_dicts():
        end = one["ts_ns"] + one["dur_ns"]
        at = one["ts_ns"]
        for op in sorted(busy, key=lambda op: op["ts_ns"]):
            until = min(end, op["ts_ns"] + op["dur_ns"])
            hidden += max(0, until - max(at, op["ts_ns"]))
            at = max(at, until)
    assert rows["hidden_ns"].sum() == hidden
    # what starts before the exchange, once it may, can only add to what is hidden within it
    assert (rows["slack_compute_ns"] >= rows["hidden_ns"]).all()


# --- the page ----------------------------------------------------------------------------------------


def _sentence(rows: list[Row]) -> str:
    options = Options(by=("axis", "collective"))
    partials = [ANALYSIS.map(_trace(rows, rank=rank, ranks=2), options) for rank in range(2)]
    return sentence(ANALYSIS.reduce(pl.concat(partials), options))


def test_the_page_ends_in_what_can_never_be_hidden() -> None:
    assert _sentence([_op(0, 10)]) == "No communication was recorded."
    never = _sentence([_op(0, 9), _op(9, 10, "all_to_all")])
    assert never.startswith("No overlap setting can hide ep all_to_all (2 of 2): ")
    assert "enough compute beside it" in _sentence([_op(0, 10), _op(0, 10, "all_to_all")])
    unknown = _sentence([_op(0, 10), _op(10, 10, "all_to_all")])
    assert "No communication is shown to be beyond hiding; 0 of 2 exchanges" in unknown
