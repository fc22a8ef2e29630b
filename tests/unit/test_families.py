"""Device work by family: against counting by hand, and against the ops of synthetic runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv
from traceview.analyzers.families import GRAINS, measure, summarize
from traceview.contracts import Options
from traceview.schema import COLLECTIVE_OPS, OPS, STEPS
from traceview.synth import Workload, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from traceview.run import Run

Row = dict[str, Any]


def _op(number: int, start: int, length: int, category: str, **more: Any) -> Row:
    kind = {"memory": "memcpy", "graph": "graph"}.get(category, "kernel")
    group = {"memory": "copy", "all_to_all": "comm", "dispatch": "comm"}.get(category, "compute")
    return {
        "op": number,
        "rank": 0,
        "device": 0,
        "stream": 7,
        "ts_ns": start,
        "dur_ns": length,
        "name": category,
        "kind": kind,
        "category": category,
        "class": group,
        "rule_id": "test",
    } | more


def _comm(op: Row, collective: str, **more: Any) -> Row:
    row = {name: op[name] for name in ("op", "rank", "device", "stream", "ts_ns", "dur_ns")}
    return row | {"collective": collective, "axis": "ep", "resolved_by": "name", "confidence": 0.5} | more


def _trace(ops: list[Row], comm: list[Row], steps: list[tuple[int, int, int, str]]) -> Trace:
    marked = [
        dict(zip(("step", "ts_ns", "dur_ns", "status"), step, strict=True))
        | {"rank": 0, "op_count": 1, "source": "test"}
        for step in steps
    ]
    tables = {
        "ops": OPS.frame(pl.DataFrame(ops, infer_schema_length=None)),
        "collectives": COLLECTIVE_OPS.frame(comm) if comm else COLLECTIVE_OPS.empty(),
        "steps": STEPS.frame(marked) if marked else STEPS.empty(),
    }
    return Trace(Facts("hand.json", "kineto", rank=0), tables)


def _rows(trace: Trace, *by: str, steps: str = "auto") -> list[Row]:
    options = Options(steps=steps, by=by)
    return summarize(measure(trace, options), options).to_dicts()


OPS_BY_HAND = [
    _op(0, 0, 10, "gemm", step=1, phase="forward"),
    _op(1, 5, 20, "gemm", step=1, phase="forward"),  # beside the first: both count
    _op(2, 30, 7, "dispatch", step=1, phase="forward"),
    _op(
        3, 40, 9, "all_to_all", step=2
    ),  # starts after the end of step 1, in whose window it was not launched
    _op(4, 50, 3, "memory", step=2),
    _op(5, 60, 5, "gemm", step=3),  # of a step that is not looked at
]
COMM_BY_HAND = [
    _comm(OPS_BY_HAND[2], "all_to_all", role="dispatch", group_size=8, dtype="Float8_e4m3fn"),
    _comm(OPS_BY_HAND[3], "unknown", axis="unknown"),
]
BY_HAND = _trace(
    OPS_BY_HAND, COMM_BY_HAND, [(1, 0, 45, "complete"), (2, 45, 15, "complete"), (3, 60, 5, "partial")]
)


def test_an_op_counts_in_the_step_that_launched_it_with_its_whole_duration() -> None:
    found = {
        (row["step"], row["family"]): (row["op_count"], row["busy_ns"])
        for row in _rows(BY_HAND, "step", "family")
    }
    assert found == {
        (1, "gemm"): (2, 30),
        (1, "all_to_all"): (1, 7),
        (2, "comm_unknown"): (1, 9),
        (2, "memory"): (1, 3),
    }


def test_a_transport_is_the_collective_it_carries_and_keeps_its_axis_and_role() -> None:
    [found] = [row for row in _rows(BY_HAND, "family") if row["family"] == "all_to_all"]
    assert (found["axis"], found["role"], found["window_count"], found["window_ns"]) == (
        "ep",
        "dispatch",
        2,
        60,
    )


def test_groups_tell_size_and_element_type() -> None:
    [found] = [row for row in _rows(BY_HAND, "group") if row["axis"] == "ep"]
    assert (found["group_size"], found["dtype"], found["op_count"]) == (8, "Float8_e4m3fn", 1)


def test_without_steps_the_whole_window_is_looked_at() -> None:
    trace = _trace([row | {"step": None} for row in OPS_BY_HAND], COMM_BY_HAND, [])
    assert sum(row["op_count"] for row in _rows(trace, "family")) == 6
    assert {row["step"] for row in _rows(trace, "family", "step")} == {None}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("job")
    write(Workload(ranks=4, expert_parallel=2, experts=4, top_k=2, steps=3, layers=2), folder)
    return tv.load(folder)


@pytest.mark.parametrize("by", [(), *((grain,) for grain in GRAINS), tuple(GRAINS)], ids=str)
def test_every_grain_holds_every_op_of_the_steps_once(run: Run, by: tuple[str, ...]) -> None:
    counted: Counter[str] = Counter()
    for trace in run.traces:
        complete = trace.table("steps").filter(pl.col("status") == "complete")["step"].to_list()
        ops = trace.table("ops").filter(pl.col("step").is_in(complete))
        counted["op_count"] += len(ops)
        counted["busy_ns"] += int(ops["dur_ns"].sum())
    frame = tv.analyze(run, "families", by=by).frame
    assert {name: frame[name].sum() for name in counted} == dict(counted)


def test_ranks_measured_apart_give_the_same_as_together(run: Run) -> None:
    options = Options(by=("step", "family", "phase"))
    partials = [measure(trace, options) for trace in run.traces]
    whole = summarize(pl.concat(partials), options)
    assert whole.equals(summarize(pl.concat(partials[::-1]), options))
    apart = pl.concat([summarize(partial, options) for partial in partials])
    assert apart["busy_ns"].sum() == whole["busy_ns"].sum()
