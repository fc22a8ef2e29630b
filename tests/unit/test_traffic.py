"""Bytes from rank to rank: against what the traces record, and against `alltoall`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import traceview as tv
from traceview import schema
from traceview.analyzers import traffic
from traceview.analyzers.traffic import RESULT
from traceview.contracts import Options
from traceview.reports import traffic as pages
from traceview.reports.about import About
from traceview.reports.layout import Grid, Note, Verdict
from traceview.synth import PRESETS, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from traceview.run import Run

ABOUT = About("job", (0, 1), 2, ("kineto",), (), ())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ep8")
    write(PRESETS["ep8-nccl"], folder)
    return tv.load(folder)


def test_each_pair_gets_what_the_split_lists_say(run: Run) -> None:
    steps = set(tv.breakdown(run, by=("step",)).frame["step"])
    expected: Counter[tuple[int, int]] = Counter()
    for op in run.collectives.filter(pl.col("collective") == "all_to_all").collect().iter_rows(named=True):
        if op["step"] in steps:
            row_bytes = op["in_bytes"] // sum(op["in_splits"])
            for peer, rows in zip(op["group_ranks"], op["in_splits"], strict=True):
                if peer != op["rank"]:
                    expected[op["rank"], peer] += rows * row_bytes
    found = tv.traffic(run).frame
    assert {(row["rank"], row["peer"]): row["sent_bytes"] for row in found.iter_rows(named=True)} == expected
    assert found["bytes_method"].unique().to_list() == ["exact"]


def test_sums_agree_with_alltoall_in_every_grain(run: Run) -> None:
    known = tv.all_to_all(run, by=("role",)).frame
    rows = tv.traffic(run, by=("role",)).frame
    both = known.join(rows.with_columns(pl.col("role").cast(pl.String)), on="role")
    assert len(both) == 2
    assert both["sent_bytes"].to_list() == both["sent_bytes_right"].to_list()
    assert both["scale_up_bytes"].to_list() == both["scale_up_bytes_right"].to_list()
    for grain in traffic.GRAINS:
        assert tv.traffic(run, by=(grain,)).frame["sent_bytes"].sum() == known["sent_bytes"].sum()


def _trace(*ops: dict[str, Any]) -> Trace:
    """Rank 1 of four with these communication ops, and a device that ran for a while."""
    comm = schema.TABLES["collectives"]
    columns = comm.schema()
    rows = []
    for place, op in enumerate(ops):
        filled = {"op": place, "rank": 1, "device": 0, "ts_ns": place, "dur_ns": 1, "axis": "ep"} | op
        rows.append({name: filled.get(name) for name in columns})
    busy = {"op": 0, "rank": 1, "device": 0, "ts_ns": 0, "dur_ns": 9}
    device = schema.TABLES["ops"].schema()
    tables = {name: table.empty() for name, table in schema.TABLES.items()}
    tables["ops"] = pl.DataFrame([{name: busy.get(name) for name in device}], schema=device)
    return Trace(Facts("t", "kineto", rank=1), tables | {"collectives": pl.DataFrame(rows, schema=columns)})


EXCHANGE = {"collective": "all_to_all", "group_size": 4, "group_ranks": [0, 1, 2, 3], "in_bytes": 4_000}


def _pairs(trace: Trace) -> list[tuple[Any, ...]]:
    partial = traffic.measure(trace, Options(by=("pair",)))
    rows = traffic.summarize(partial, Options(by=("pair",)))
    return rows.select("rank", "peer", "op_count", "sent_bytes", "bytes_method").rows()


def test_a_list_cut_short_is_spread_evenly_and_says_so() -> None:
    trace = _trace(EXCHANGE | {"in_splits": [3, 1], "splits_complete": False})
    assert _pairs(trace) == [(1, peer, 1, 1_000, "even") for peer in (0, 2, 3)]


def test_exact_and_even_bytes_of_a_pair_are_mixed() -> None:
    exact = EXCHANGE | {"in_splits": [1, 1, 2, 0], "splits_complete": True}
    found = _pairs(_trace(exact, EXCHANGE))
    assert found == [(1, 0, 2, 2_000, "mixed"), (1, 2, 2, 3_000, "mixed"), (1, 3, 2, 1_000, "mixed")]


def test_a_transfer_counts_where_it_is_sent_and_never_where_it_arrives() -> None:
    sends = {"collective": "send_recv", "in_bytes": 500, "dst_rank": 3, "axis": "pp"}
    receives = {"collective": "send_recv", "in_bytes": 500, "src_rank": 0, "axis": "pp"}
    assert _pairs(_trace(sends, receives)) == [(1, 3, 1, 500, "exact")]


def test_ops_without_peers_or_bytes_are_counted_and_never_zero() -> None:
    silent = {"collective": "all_to_all", "role": "dispatch"}
    others = {"collective": "all_reduce", "in_bytes": 100, "group_ranks": [0, 1], "group_size": 2}
    assert _pairs(_trace(silent, silent, others)) == [(1, None, 2, None, None)]


def test_the_page_shows_the_largest_pairs_and_what_is_not_known() -> None:
    pair = {
        "rank": 0,
        "peer": 1,
        "op_count": 2,
        "sent_bytes": 3_000,
        "scale_up_bytes": 3_000,
        "bytes_method": "exact",
    }
    other = {
        "rank": 1,
        "peer": 0,
        "op_count": 2,
        "sent_bytes": 1_000,
        "scale_up_bytes": 0,
        "bytes_method": "even",
    }
    silent = {
        "rank": 1,
        "peer": None,
        "op_count": 5,
        "sent_bytes": None,
        "scale_up_bytes": None,
        "bytes_method": None,
    }
    names = RESULT.schema()
    blocks = pages.page(
        ABOUT, RESULT.frame(pl.DataFrame([other, silent, pair], schema={n: names[n] for n in pair})), ()
    )
    (grid,) = [block for block in blocks if isinstance(block, Grid)]
    assert grid.rows == (
        ("0", "1", "2", "3.00 kB", "100.0", "exact"),
        ("1", "0", "2", "1.00 kB", "0.0", "even"),
    )
    (note,) = [block for block in blocks if isinstance(block, Note)]
    assert note.text.startswith("of 5 ops peers or bytes were not recorded")
    assert isinstance(blocks[-1], Verdict)
    assert blocks[-1].text == (
        "4.00 kB sent, 75.0 % of it within the scale-up domain; most from rank 0 to rank 1: 1.50 times the mean of a pair."
    )
    assert pages.sentence(RESULT.empty()) == pages.NONE
