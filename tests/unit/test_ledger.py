"""The ledger: exact sums, the synthetic truth, and an oracle that looks at every single nanosecond."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from traceview import api
from traceview.analyzers import ledger
from traceview.contracts import Options
from traceview.reports import layout
from traceview.reports import ledger as pages
from traceview.reports.about import About
from traceview.schema import COLLECTIVE_OPS, OPS, STEPS, Table
from traceview.synth import Workload, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.run import Run

GRAINS = [(), ("rank",), ("step",), ("rank", "step"), ("rank", "step", "phase", "layer"), ("kind", "phase")]


class Preset:
    def __init__(self, name: str, folder: Path) -> None:
        write(name, folder)
        self.run: Run = tv.load(folder)
        self.truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())

        self._partials: dict[str | range, pl.DataFrame] = {}

    def rows(self, *by: str, steps: str | range = "auto") -> list[dict[str, Any]]:
        options = Options(steps=steps, by=by)
        if steps not in self._partials:
            self._partials[steps] = pl.concat([ledger.measure(trace, options) for trace in self.run.traces])
        return ledger.summarize(self._partials[steps], options).to_dicts()


JUDGES = (
    "ep8-nccl-shared",
    "ep8-deepep-overlap",
    "ep8-straggler",
    "ep8-imbalanced",
    "ep4-two-hosts",
    "tp2-ep4",
)
"""Presets that differ in what a ledger could get wrong: overlap, transport, clocks, balance, axes."""


@pytest.fixture(scope="module", params=JUDGES)
def preset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Preset:
    return Preset(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a tiny job."""
    folder = tmp_path_factory.mktemp("small")
    write(Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, layers=1), folder)
    return folder


def _sums(rows: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], int]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        sums[tuple(row[key] for key in keys)] += row["time_ns"]
    return dict(sums)


# --- sums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", ["auto", "all", range(11, 12)], ids=str)
def test_rows_add_up_to_the_window_whatever_the_grain(preset: Preset, steps: str | range) -> None:
    for by in GRAINS:
        rows = preset.rows(*by, steps=steps)
        keys = [key for key in ("rank", "step") if key in by]
        windows = {tuple(row[key] for key in keys): row["window_ns"] for row in rows}
        assert _sums(rows, *keys) == windows


def test_the_parts_of_a_communication_row_add_up_to_it(preset: Preset) -> None:
    for row in preset.rows("rank", "step", "phase", "layer"):
        parts = [row[f"exposed_{name}_ns"] for name in ("wait", "transfer", "unsplit")]
        if row["part"] == "comm":
            assert sum(part or 0 for part in parts) == row["time_ns"]
        else:
            assert parts == [None, None, None]


# --- truth -------------------------------------------------------------------------------------------


def _expected(figures: dict[str, Any]) -> dict[tuple[str, str | None], int]:
    """The rows of one window from the truth; those of no time left out."""
    axes = figures["exposed_comm_by_axis_ns"]
    rows = {("comm", axis): time for axis, time in axes.items() if axis != "several"}
    others = {"several": axes.get("several", 0), "copy": figures["exposed_copy_ns"]}
    others |= {"compute": figures["compute_ns"], "idle": figures["idle_ns"]}
    return {key: time for key, time in (rows | {(k, None): v for k, v in others.items()}).items() if time}


def _found(rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], int]:
    return {key: time for key, time in _sums(rows, "part", "axis").items() if time}


def test_time_by_axis_is_that_of_the_truth_per_rank_and_step(preset: Preset) -> None:
    rows = preset.rows("rank", "step")
    for rank, known in enumerate(preset.truth["ranks"]):
        for step, figures in known["steps"].items():
            here = [row for row in rows if (row["rank"], row["step"]) == (rank, int(step))]
            assert _found(here) == _expected(figures)


def test_a_single_step_is_whole_although_ops_of_its_neighbours_reach_into_it(preset: Preset) -> None:
    rows = preset.rows("rank", steps=range(11, 12))
    for rank, known in enumerate(preset.truth["ranks"]):
        assert _found([row for row in rows if row["rank"] == rank]) == _expected(known["steps"]["11"])


def test_nothing_stays_unsplit_where_all_ranks_are_there(preset: Preset) -> None:
    rows = [row for row in preset.rows("rank") if row["part"] == "comm"]
    assert {row["exposed_unsplit_ns"] for row in rows} == {0}
    assert all(row["exposed_wait_ns"] is not None for row in rows)


def test_each_rank_waits_as_long_as_the_truth_says(preset: Preset) -> None:
    """Exposed waiting is no more than waiting; without compute beside it, it is exposed alone or shared."""
    wait: Counter[tuple[int, str]] = Counter()
    count: Counter[tuple[int, str]] = Counter()
    for exchange in preset.truth["collectives"]:
        for rank, start in zip(exchange["group_ranks"], exchange["start_ns"], strict=True):
            wait[rank, exchange["axis"]] += max(exchange["start_ns"]) - start
            count[rank, exchange["axis"]] += 1
    found: Counter[tuple[int, str]] = Counter()
    hidden: Counter[tuple[int, str]] = Counter()
    several: Counter[int] = Counter()
    for row in preset.rows("rank"):
        several[row["rank"]] += row["time_ns"] * (row["part"] == "several")
        if row["part"] == "comm":
            found[row["rank"], row["axis"]] += row["exposed_wait_ns"]
            hidden[row["rank"], row["axis"]] += row["hidden_ns"]
    assert set(found) == set(wait)
    for (rank, axis), exposed in found.items():
        slack = 200 * count[rank, axis]  # a clock fitted to stamps of whole ns
        assert exposed <= wait[rank, axis] + slack
        if not hidden[rank, axis]:
            assert exposed + several[rank] >= wait[rank, axis] - slack


def test_with_a_rank_missing_no_exchange_can_be_split(small: Path) -> None:
    run = tv.load(small, ranks=[1])
    rows = [row for row in api.analyze(run, "ledger", by=("rank",)).summary() if row["part"] == "comm"]
    assert rows
    for row in rows:
        assert (row["exposed_wait_ns"], row["exposed_transfer_ns"], row["uncertainty_ns"]) == (None,) * 3
        assert row["exposed_unsplit_ns"] == row["time_ns"]


# --- oracle ------------------------------------------------------------------------------------------

RANKS, END, STEP_NS = 2, 40, 20
KINDS = ("compute", "copy", "dispatch", "world")
PIECES = st.tuples(
    st.integers(0, RANKS - 1), st.sampled_from(KINDS), st.integers(0, END - 1), st.integers(0, 15), st.integers(0, 1)
)  # fmt: skip


def _fill(table: Table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return table.frame(pl.DataFrame(rows, strict=False)) if rows else table.empty()


def _trace(rank: int, pieces: list[dict[str, Any]], *, host: str = "one", shift_ns: int = 0) -> Trace:
    """A rank with ``pieces`` and steps of `STEP_NS`, whose clock reads ``shift_ns`` more than the true time."""
    classes = {"compute": ("gemm", "compute"), "copy": ("memory", "copy")}
    ops, comm = [], []
    for piece in pieces:
        category, kind = classes.get(piece["kind"], ("all_to_all", "comm"))
        both = {key: piece[key] for key in ("op", "rank", "dur_ns", "step")}
        both |= {"device": 0, "ts_ns": piece["ts_ns"] + shift_ns}
        ops.append(
            both | {"name": "k", "kind": "kernel", "category": category, "class": kind, "rule_id": "r"}
        )
        if kind == "comm":
            is_expert = piece["kind"] == "dispatch"
            comm.append(
                both
                | {"collective": "all_to_all", "axis": "ep" if is_expert else "world", "seq": piece["seq"]}
                | {
                    "role": "dispatch" if is_expert else None,
                    "group_name": piece["kind"],
                    "group_size": RANKS,
                }
                | {"group_ranks": list(range(RANKS)), "resolved_by": "kernel_args", "confidence": 1.0}
            )
    steps = [
        {"rank": rank, "step": step, "ts_ns": step * STEP_NS + shift_ns, "dur_ns": STEP_NS, "op_count": 1}
        | {"status": "complete", "source": "test"}
        for step in range(END // STEP_NS)
    ]
    tables = {
        "ops": _fill(OPS, ops),
        "collectives": _fill(COLLECTIVE_OPS, comm),
        "steps": _fill(STEPS, steps),
    }
    return Trace(Facts(f"rank{rank}", "test", rank=rank, host=host), tables)


def _pieces(drawn: list[tuple[int, str, int, int, int]]) -> list[list[dict[str, Any]]]:
    """Pieces per rank; communication is numbered per kind in order of time."""
    ranks: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    numbers: Counter[tuple[int, str]] = Counter()
    for rank, kind, start, drawn_length, step in sorted(drawn, key=lambda piece: piece[2]):
        length = min(drawn_length, END - start)
        seq = numbers[rank, kind]
        numbers[rank, kind] += 1
        ranks[rank].append(
            {"op": len(ranks[rank]), "rank": rank, "kind": kind, "ts_ns": start, "dur_ns": length, "seq": seq}
            | {"step": step}
        )
    return ranks


def _by_every_nanosecond(ranks: list[list[dict[str, Any]]], chosen: list[int]) -> Counter[tuple[Any, ...]]:
    """``(rank, step, row, column): ns``, looking at each instant."""
    found: Counter[tuple[Any, ...]] = Counter()
    present: dict[tuple[str, int], list[int]] = {
        (p["kind"], p["seq"]): [] for pieces in ranks for p in pieces
    }
    for piece in itertools.chain(*ranks):
        if piece["step"] in chosen:
            present[piece["kind"], piece["seq"]].append(piece["ts_ns"])
    for rank, pieces in enumerate(ranks):
        for instant in range(min(chosen) * STEP_NS, (max(chosen) + 1) * STEP_NS):
            step = instant // STEP_NS
            active = [p for p in pieces if p["ts_ns"] <= instant < p["ts_ns"] + p["dur_ns"]]
            comm = [p for p in active if p["kind"] not in {"compute", "copy"}]
            kinds = {p["kind"] for p in active}
            row = "copy" if "copy" in kinds else "idle"
            if "compute" in kinds:
                row = "compute"
                for piece in comm:
                    if piece["step"] in chosen:
                        found[rank, piece["step"], piece["kind"], "hidden_ns"] += 1
            elif comm:
                row = comm[0]["kind"] if len(comm) == 1 else "several"
            found[rank, step, row, "time_ns"] += 1
            if row == comm[0]["kind"] if comm else False:
                starts = present[comm[0]["kind"], comm[0]["seq"]] if comm[0]["step"] in chosen else []
                column = "unsplit" if len(starts) < RANKS else "wait" if instant < max(starts) else "transfer"
                found[rank, step, row, f"exposed_{column}_ns"] += 1
    return found


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=9), st.sampled_from([[0, 1], [0], [1]]))
def test_every_cell_equals_what_is_counted_instant_by_instant(
    drawn: list[tuple[int, str, int, int, int]], chosen: list[int]
) -> None:
    ranks = _pieces(drawn)
    options = Options(steps=range(min(chosen), max(chosen) + 1), by=("rank", "step"))
    traces = [_trace(rank, pieces) for rank, pieces in enumerate(ranks) if pieces]
    if not traces:
        return
    rows = ledger.summarize(pl.concat([ledger.measure(trace, options) for trace in traces]), options)
    names = {"ep": "dispatch", "world": "world"}
    found = {
        (row["rank"], row["step"], names.get(row["axis"], row["part"]), column): row[column]
        for row in rows.to_dicts()
        for column in row
        if re.fullmatch(r"time_ns|hidden_ns|exposed_\w+_ns", column) and row[column]
    }
    present = {trace.facts.rank for trace in traces}
    expected = _by_every_nanosecond(ranks, chosen)
    assert found == {key: value for key, value in expected.items() if key[0] in present}


@pytest.mark.parametrize("shift_ns", [0, 1_000_000, -7_777])
def test_the_last_arrival_is_sought_on_the_clock_of_whoever_waits(shift_ns: int) -> None:
    """Rank 0 waits 5 ns and then 2 ns; rank 1, on another host with another clock, waits 3 ns in between."""
    begun = (((0, 15), (20, 10), (33, 6)), ((5, 10), (17, 13), (35, 4)))
    drawn = [(rank, "dispatch", *span, 0) for rank, spans in enumerate(begun) for span in spans]
    ranks = _pieces(drawn)
    options = Options(steps=range(2), by=("rank",))
    traces = [_trace(0, ranks[0]), _trace(1, ranks[1], host="other", shift_ns=shift_ns)]
    rows = ledger.summarize(pl.concat([ledger.measure(trace, options) for trace in traces]), options)
    comm = rows.filter(pl.col("part") == "comm").select("rank", "exposed_wait_ns", "exposed_transfer_ns")
    assert comm.rows() == [(0, 7, 24), (1, 3, 24)]


# --- real traces -------------------------------------------------------------------------------------


COMM = re.compile(r"nccl|::ep::(?!.*get_dispatch_layout)")


def _swept(path: Path) -> dict[str, int]:
    """Compute, communication, copies and idle of a file's device rows, in plain Python."""
    kinds = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
    edges = []
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if (kind := kinds.get(event.get("cat"))) and event.get("ph") == "X":
            name = "comm" if kind == "compute" and COMM.search(event["name"]) else kind
            start = round(event["ts"] * 1000)
            edges += [(start, 1, name), (start + round(event["dur"] * 1000), -1, name)]
    edges.sort()
    running: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for (time, change, name), (until, _, _) in itertools.pairwise(edges):
        running[name] += change
        row = next((kind for kind in ("compute", "comm", "copy") if running[kind]), "idle")
        sums[row] += until - time
    return dict(sums)


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai-profile-data/train.json.gz",
        "KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks/rank3-chrome-trace.json.gz",
    ],
)
def test_a_public_trace_adds_up_to_what_plain_python_finds(traces: Path, name: str) -> None:
    run = tv.load(traces / "pytorch" / name)
    rows = api.analyze(run, "ledger", by=(), steps="all").summary()
    found = Counter[str]()
    for row in rows:
        found["comm" if row["part"] in {"comm", "several"} else row["part"]] += row["time_ns"]
    assert {part: time for part, time in found.items() if time} == _swept(traces / "pytorch" / name)


def test_eight_public_ranks_wait_longer_than_they_transfer(traces: Path) -> None:
    """Of this recording it is known that most of its communication is waiting for a late rank."""
    run = tv.load(traces / "pytorch" / "KellerJordan-modded-nanogpt" / "2025-12-11_baseline_8ranks")
    (row,) = [row for row in api.analyze(run, "ledger", by=()).summary() if row["part"] == "comm"]
    assert row["exposed_wait_ns"] > 2 * row["exposed_transfer_ns"]


# --- page --------------------------------------------------------------------------------------------


def _page(run: Run, *by: str) -> str:
    rows = api.analyze(run, "ledger", by=by).frame
    return layout.plain(pages.page(About.of(run), rows, []))


def test_the_page_ends_with_the_tax_of_expert_parallelism(small: Path) -> None:
    page = _page(tv.load(small))
    last = page.splitlines()[-1]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", last)]
    assert last.startswith("Expert parallelism takes")
    assert shares[0] == pytest.approx(shares[1] + shares[2], abs=0.11)
    assert "ep dispatch" in page
    alone = _page(tv.load(small, ranks=[0]))
    assert alone.splitlines()[-1].endswith("cannot be told apart without all ranks.")


@pytest.mark.parametrize(
    ("part", "axis", "expected"),
    [("comm", "dp", "exposed communication takes 50.0 %"), ("idle", None, "communication takes 0.0 %")],
)
def test_without_expert_parallelism_the_sentence_says_so(part: str, axis: str | None, expected: str) -> None:
    rest = {"window_ns": 100, "window_count": 1}
    rows = [{"part": part, "axis": axis, "time_ns": 50} | rest, {"part": "compute", "time_ns": 50} | rest]
    assert expected in pages.sentence(ledger.RESULT.frame(pl.DataFrame(rows, strict=False)))


def test_nothing_recorded_is_said_and_not_divided_by() -> None:
    assert pages.sentence(ledger.RESULT.empty()).startswith("No device work was recorded")
