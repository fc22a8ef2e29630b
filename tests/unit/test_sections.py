"""Sections as data, from frames made by hand: what they say and draw is computed here from the definition."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from traceview import registry
from traceview.analyzers import (
    alltoall,
    breakdown,
    counters,
    experts,
    idle,
    kernels,
    ledger,
    overlap,
    roofline,
    stragglers,
    traffic,
)
from traceview.recipe import Recipe
from traceview.reports import coverage, section
from traceview.reports.about import About
from traceview.reports.coverage import Coverage
from traceview.reports.inventory import GAPS, INVENTORY, Inventory
from traceview.reports.layout import Block, Facts, Grid, Note, Verdict
from traceview.reports.section import CSV_ROWS, TABLE_ROWS, Answers, Figure, View

if TYPE_CHECKING:
    from traceview.schema import Table

MS = 1_000_000
ABOUT = About("job", (0, 1), 2, ("kineto",), ("H100",), ())


def _inventory() -> Inventory:
    groups = pl.DataFrame(
        schema={
            "axis": pl.String,
            "group_name": pl.String,
            "group_desc": pl.String,
            "group_size": pl.Int32,
            "rank_count": pl.UInt32,
        }
    )
    classes = pl.DataFrame(
        {
            "class": ["compute", "comm"],
            "category": ["gemm", "all_to_all"],
            "op_count": [3, 1],
            "dur_ns": [3 * MS, MS],
        }
    )
    unmatched = pl.DataFrame({"name": ["mystery"], "op_count": [1], "dur_ns": [MS]})
    return Inventory(
        ABOUT, INVENTORY.empty(), groups, GAPS.empty(), (), Recipe(), Coverage(classes, unmatched)
    )


def _answers(frames: dict[section.Question, pl.DataFrame]) -> Answers:
    return Answers(ABOUT, "step", _inventory(), frames)


def _frame(table: Table, *rows: dict[str, Any]) -> pl.DataFrame:
    """``rows`` as ``table``; what they leave out is null, or 0 where null is not legal."""
    schema = table.schema()
    counts = {
        name for name, column in table.columns.items() if not column.nullable and schema[name].is_numeric()
    }
    names = [name for name in schema if name in counts or any(name in row for row in rows)]
    filled = [dict.fromkeys(counts, 0) | row for row in rows]
    return table.frame(pl.DataFrame(filled, schema={name: schema[name] for name in names}))


def _built(name: str, frames: dict[section.Question, pl.DataFrame]) -> section.SectionData:
    (found,) = [one for one in registry.sections() if one.name == name]
    data: section.SectionData = found.build(_answers(frames))
    return data


def _empty(name: str) -> dict[section.Question, pl.DataFrame]:
    (found,) = [one for one in registry.sections() if one.name == name]
    analyses = registry.analyses()
    return {question: analyses[question[0]].result.empty() for question in found.questions}


@pytest.mark.parametrize("name", [one.name for one in registry.sections() if one.questions])
def test_a_section_without_any_row_gives_a_reason_and_draws_nothing(name: str) -> None:
    data = _built(name, _empty(name))
    assert data.figures == ()
    assert data.reason


def _windows(rank: int, compute: int, hidden: int, exposed: int, idle: int) -> dict[str, Any]:
    """Two windows of a rank; times in ms over both."""
    return {
        "rank": rank,
        "device": 0,
        "window_ns": (compute + exposed + idle) * MS,
        "compute_ns": compute * MS,
        "comm_ns": (hidden + exposed) * MS,
        "hidden_comm_ns": hidden * MS,
        "exposed_comm_ns": exposed * MS,
        "exposed_copy_ns": 0,
        "idle_ns": idle * MS,
        "window_count": 2,
    }


def test_the_breakdown_draws_parts_of_a_mean_window_that_add_up() -> None:
    rows = _frame(breakdown.RESULT, _windows(0, 12, 4, 6, 2), _windows(1, 20, 2, 4, 0))
    (figure,) = _built("breakdown", {("breakdown", ("rank",)): rows}).figures
    assert figure.data.to_dicts() == [
        {
            "rank": 0,
            "device": 0,
            "compute alone ms": 4.0,
            "compute over communication ms": 2.0,
            "exposed communication ms": 3.0,
            "exposed copies ms": 0.0,
            "idle ms": 1.0,
        },
        {
            "rank": 1,
            "device": 0,
            "compute alone ms": 9.0,
            "compute over communication ms": 1.0,
            "exposed communication ms": 2.0,
            "exposed copies ms": 0.0,
            "idle ms": 0.0,
        },
    ]
    # 44 ms in all: 32 compute, 10 exposed, 2 idle; windows of 10 and 12 ms
    assert figure.caption == (
        "Over all ranks: 72.7 % compute, 22.7 % exposed communication, 4.5 % idle; a step takes 10.0 ms on rank 0 and 12.0 ms on rank 1."
    )
    assert [name for name, _ in figure.legend] == [
        "compute alone",
        "compute over communication",
        "exposed communication",
        "idle",
    ]
    assert [view.label for view in figure.views] == ["by rank", "slowest first"]


def test_the_ledger_splits_expert_parallel_time_and_keeps_the_sum() -> None:
    window = {"rank": 0, "device": 0, "window_ns": 20 * MS, "window_count": 2}
    parts = [
        {"part": "compute", "time_ns": 8 * MS},
        {"part": "comm", "axis": "ep", "role": "dispatch", "time_ns": 6 * MS, "exposed_wait_ns": 1 * MS, "exposed_transfer_ns": 3 * MS, "exposed_unsplit_ns": 2 * MS},
        {"part": "comm", "axis": "dp", "time_ns": 2 * MS, "exposed_wait_ns": 2 * MS, "exposed_transfer_ns": 0, "exposed_unsplit_ns": 0},
        {"part": "several", "time_ns": 1 * MS},
        {"part": "idle", "time_ns": 3 * MS},
    ]  # fmt: skip
    rows = _frame(ledger.RESULT, *(window | part for part in parts))
    data = _built("ledger", {("ledger", ("kind",)): rows, ("ledger", ("rank",)): rows})
    (figure,) = data.figures
    (line,) = figure.data.to_dicts()
    assert line == {
        "rank": 0, "device": 0, "compute ms": 4.0, "ep waiting ms": 0.5, "ep moving bytes ms": 1.5, "ep not split ms": 1.0,
        "other communication ms": 1.0, "several at once ms": 0.5, "copies ms": 0.0, "idle ms": 1.5,
    }  # fmt: skip
    assert sum(value for name, value in line.items() if name.endswith(" ms")) == 10.0
    assert "5.0 % waiting" in figure.caption


def test_overlap_names_kinds_and_leaves_moments_of_several_to_their_own() -> None:
    shared = {"op_count": 2, "window_ns": 20 * MS, "window_count": 2}
    rows = _frame(
        overlap.RESULT,
        shared | {"axis": "dp", "collective": "all_gather", "role": "none", "comm_ns": 6 * MS, "hidden_ns": 4 * MS, "exposed_ns": 2 * MS, "exclusive_ns": 1 * MS},
        shared | {"axis": "ep", "collective": "all_to_all", "role": "combine", "comm_ns": 8 * MS, "hidden_ns": 0, "exposed_ns": 8 * MS, "exclusive_ns": 7 * MS},
        shared | {"axis": "several", "collective": "several", "role": "several", "comm_ns": 0, "hidden_ns": 0, "exposed_ns": 0, "exclusive_ns": 1 * MS},
    )  # fmt: skip
    (figure,) = _built("overlap", {("overlap", ("axis", "collective", "role")): rows}).figures
    assert figure.data.rows() == [("ep all_to_all combine", 0.0, 3.5, 0.5), ("dp all_gather", 2.0, 0.5, 0.5)]
    assert (
        figure.caption
        == "Of 2 kinds, ep all_to_all combine costs most: 3.50 ms per step exposed alone, 0 ms hidden."
    )


def test_stragglers_show_blame_per_step_and_who_waits_for_whom() -> None:
    counts = {
        "blamed_count": 3,
        "unblamed_count": 0,
        "complete_count": 4,
        "step_count": 2,
        "wait_ns": 9 * MS,
        "unblamed_ns": 0,
    }
    by_rank = _frame(
        stragglers.RESULT,
        counts | {"rank": 1, "blamed_ns": 6 * MS, "more_tokens_ns": 6 * MS, "cause": "more_tokens"},
    )
    by_step = _frame(
        stragglers.RESULT,
        counts | {"rank": 1, "step": 1, "blamed_ns": 2 * MS, "late_p50_ns": 0.5 * MS},
        counts | {"rank": 1, "step": 2, "blamed_ns": 4 * MS, "late_p50_ns": 1.5 * MS},
        counts | {"step": 2, "blamed_ns": 0},
    )
    by_pair = _frame(stragglers.RESULT, counts | {"rank": 1, "victim": 0, "blamed_ns": 6 * MS})
    data = _built(
        "stragglers",
        {
            ("stragglers", ("rank",)): by_rank,
            ("stragglers", ("rank", "step")): by_step,
            ("stragglers", ("victim",)): by_pair,
        },
    )
    steps, pairs = data.figures
    assert steps.data.rows() == [(1, 1, 2.0, 0.5), (2, 1, 4.0, 1.5)]
    assert "4.00 ms for rank 1 in step 2" in steps.caption
    assert pairs.data.rows() == [(1, 0, 3.0)]
    assert isinstance(data.blocks[0], Verdict)
    assert "Rank 1 makes others wait 3.00 ms per step" in data.blocks[0].text


def test_all_to_alls_are_shown_by_place_only_where_there_are_places() -> None:
    times = {"op_count": 4, "instance_count": 2, "complete_count": 2, "dur_ns": 8 * MS, "dur_p50_ns": 2 * MS, "dur_p99_ns": 3 * MS, "wait_ns": 2 * MS, "transfer_ns": 6 * MS, "exposed_ns": MS, "hidden_ns": 0, "sync_count": 0, "sync_ns": 0, "sync_exposed_ns": 0, "local_ns": 0}  # fmt: skip
    frames = _empty("alltoall") | {
        ("alltoall", ("role", "phase")): _frame(alltoall.RESULT, times | {"role": "dispatch", "phase": "forward"}),
        ("alltoall", ("layer", "rank")): _frame(alltoall.RESULT, times | {"layer": 3, "rank": 0}, times | {"layer": 3, "rank": 1, "dur_p50_ns": 5 * MS}),
    }  # fmt: skip
    data = _built("alltoall", frames)
    (figure,) = data.figures
    assert figure.data.rows() == [(3, 0, 2.0, 3.0, 1.0, 3.0), (3, 1, 5.0, 3.0, 1.0, 3.0)]
    assert figure.caption.startswith(
        "The slowest median, 5.00 ms, is layer 3 on rank 1; rank 0 waits longest"
    )
    assert "Bandwidth needs the bytes" in data.reason


def test_expert_load_is_drawn_over_the_mean() -> None:
    shared = {
        "level": "rank",
        "evidence": "splits",
        "rank_count": 2,
        "exchange_count": 2,
        "price_point_count": 0,
    }
    by_layer = _frame(
        experts.RESULT,
        shared | {"layer": 0, "max_over_mean": 1.5, "exchange_max_over_mean": 1.6, "is_forced": False},
    )
    by_place = _frame(
        experts.RESULT,
        *(shared | {"layer": 0, "rank": rank, "load_over_mean": load} for rank, load in ((0, 0.5), (1, 1.5))),
    )
    layers, places = _built(
        "experts", {("experts", ("layer",)): by_layer, ("experts", ("layer", "rank")): by_place}
    ).figures
    assert layers.data.rows() == [(0, 1.6, 1.5)]
    assert places.data.rows() == [(0, 0, 0.5), (0, 1, 1.5)]
    assert places.caption == "The hottest is rank 1 in layer 0, with 1.50 times the mean."


def test_the_matrix_of_many_ranks_adds_neighbours_up() -> None:
    rows = _frame(
        traffic.RESULT,
        *({"rank": rank, "peer": peer, "op_count": 1, "sent_bytes": 2 * MS, "scale_up_bytes": 0} for rank, peer in ((0, 255), (1, 254), (255, 0))),
    )  # fmt: skip
    (figure,) = _built("traffic", {("traffic", ("pair",)): rows}).figures
    # 256 ranks in blocks of two: (0, 255) and (1, 254) fall into one cell
    assert figure.data.rows() == [(0, 254, 4.0), (254, 0, 2.0)]
    assert "2 ranks by 2" in figure.method


def test_data_quality_shows_what_work_was_taken_for_and_what_nobody_knows() -> None:
    blocks = _built("quality", {}).blocks
    grids = {block.title: block for block in blocks if isinstance(block, Grid)}
    taken, unknown = (grid for title, grid in grids.items() if "taken for" in title or "no rule" in title)
    assert taken.rows == (
        ("compute", "gemm", "3", "3.00", "75.0"),
        ("comm", "all_to_all", "1", "1.00", "25.0"),
    )
    assert unknown.rows == (("mystery", "1", "1.00", "25.0"),)
    assert any(isinstance(block, Note) and block.text.startswith("25.0 % of this time") for block in blocks)


def test_coverage_of_ranks_adds_up() -> None:
    found = _inventory().coverage
    both = coverage.merged([found, found])
    assert both.classes["op_count"].to_list() == [6, 2]
    assert both.unmatched.rows() == [("mystery", 2, 2 * MS)]
    assert both.unmatched_ratio() == 0.25
    nothing = Coverage(found.classes.clear(), found.unmatched.clear())
    assert nothing.unmatched_ratio() is None
    assert list(coverage.blocks(nothing)) == []


# --- the shapes --------------------------------------------------------------------------------------


def test_a_figure_has_a_bounded_table_and_a_bounded_csv_of_the_same_numbers() -> None:
    data = pl.DataFrame({"rank": range(5_000), "ms": [None, float("nan"), *([0.123456] * 4_998)]})
    figure = Figure("f", "t", "c", data, (View("", lambda: None),))
    assert len(figure.table.rows) == TABLE_ROWS
    assert figure.table.rows[:3] == (("0", "–"), ("1", "–"), ("2", "0.1235"))
    assert figure.table.label_count == 1
    lines = list(csv.reader(io.StringIO(figure.csv)))
    assert len(lines) == 1 + CSV_ROWS
    assert lines[1:4] == [["0", ""], ["1", ""], ["2", "0.123456"]]


def test_the_body_of_a_page_leaves_out_the_run_and_begins_with_the_verdict() -> None:
    blocks: list[Block] = [
        Facts((("run", "job"), ("ranks", "2 of 2 (0-1)"), ("method", "how"))),
        Note("n"),
        Verdict("v"),
    ]
    assert section.body(blocks, ABOUT) == (Verdict("v"), Facts((("method", "how"),)), Note("n"))
    assert section.body([Facts((("run", "job"),))], ABOUT) == ()


# --- analyses of the host, of kernels and of counters ------------------------------------------------


def test_idle_time_is_drawn_by_cause_and_adds_up_per_rank() -> None:
    window = {"window_ns": 20 * MS, "window_count": 2}
    causes = [
        window | {"rank": rank, "device": 0, "cause": cause, "idle_ns": ns}
        for rank, cause, ns in ((0, "launch_starved", 4 * MS), (0, "turnaround", 2 * MS), (1, "host_blocked", MS))
    ]  # fmt: skip
    frames = _empty("idle") | {
        ("idle", ("rank", "cause")): _frame(idle.RESULT, *causes),
        ("idle", ("cause",)): _frame(idle.RESULT, *(row | {"rank": None, "device": None} for row in causes)),
        ("idle", ("step", "cause", "sync")): _frame(idle.RESULT, *(row | {"rank": None, "device": None, "step": 1} for row in causes)),
        ("idle", ()): _frame(idle.RESULT, {"window_ns": 40 * MS, "window_count": 4, "idle_ns": 7 * MS, "idle_ratio": 0.175, "host_late_ns": 5 * MS}),
    }  # fmt: skip
    (figure,) = _built("idle", frames).figures
    drawn = [{name: value for name, value in row.items() if value} for row in figure.data.to_dicts()]
    assert drawn == [{"launch starved ms": 2.0, "turnaround ms": 1.0}, {"rank": 1, "host blocked ms": 0.5}]
    assert [name for name, _ in figure.legend] == ["launch starved", "host blocked", "turnaround"]
    # 7 ms in 4 windows, 17.5 % of 40 ms; 5 ms of it for the host
    assert figure.caption.startswith(
        "The device idles 1.75 ms/step (17.5 %), of which 1.25 ms/step since the host is late"
    )


def _kernels(**busy: tuple[int, float]) -> list[dict[str, Any]]:
    """Kernels of 2 windows: busy ms and share of busy time by category."""
    shared = {"kernel_count": 2, "window_ns": 20 * MS, "window_count": 2, "rank_count": 1}
    return [
        shared | {"category": name, "busy_ns": ms * MS, "total_ns": ms * MS, "busy_ratio": share, "sum_ratio": share}
        for name, (ms, share) in busy.items()
    ]  # fmt: skip


def test_kernels_stand_in_the_column_of_their_class_and_keep_their_full_names() -> None:
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15FillFunctorIfEEEEvi"
    rows = _kernels(gemm=(4, 0.25), all_to_all=(12, 0.75))
    named = {name: value for name, value in rows[0].items() if name != "category"} | {"name": mangled}
    frames = _empty("kernels") | {
        ("kernels", ("category",)): _frame(kernels.RESULT, *rows),
        ("kernels", ("name",)): _frame(kernels.RESULT, named),
    }
    data = _built("kernels", frames)
    (figure,) = data.figures
    assert figure.data.rows() == [
        ("all_to_all", 6.0, 0.0, 75.0, 0.0, 0.0),
        ("gemm", 2.0, 25.0, 0.0, 0.0, 0.0),
    ]
    assert figure.caption == "all_to_all runs longest: 6.00 ms per rank and step, 75.0 % of busy time."
    single = data.blocks[-1]
    assert isinstance(single, Grid)
    assert single.hints == (mangled,)
    assert single.rows[0][0] != mangled
    assert "vectorized_elementwise_kernel" in single.rows[0][0]


def test_the_tax_of_mixture_of_experts_is_what_neither_computes_nor_exchanges() -> None:
    shared = _kernels(gemm=(8, 0.5))
    parts = [shared[0] | {"category": None, "moe_part": part, "busy_ns": ms * MS, "busy_ratio": share} for part, ms, share in (("expert", 8, 0.5), ("permute", 2, 0.125))]  # fmt: skip
    frames = _empty("kernels") | {
        ("kernels", ("category",)): _frame(kernels.RESULT, *shared),
        ("kernels", ("moe_part",)): _frame(kernels.RESULT, *parts),
        ("kernels", ("is_moe",)): _frame(kernels.RESULT, shared[0] | {"category": None, "is_moe": True}),
    }
    _, moe = _built("kernels", frames).figures
    assert [row[2:] for row in moe.data.rows()] == [(50.0, 0.0), (0.0, 12.5)]
    assert moe.caption == "Neither expert compute nor exchange, in shares of busy time: permute 12.5 %."


def test_products_are_drawn_under_the_roof_the_longest_first() -> None:
    shared = {"product_count": 1, "window_count": 2, "operator": "aten::mm", "precision": "bf16", "peak_tflops": 989.0, "memory_gb_per_s": 3350.0}  # fmt: skip
    rows = [
        shared | {"shape": "1×2×3", "time_ns": MS, "intensity": 10.0, "tflops": 20.0, "roof_ratio": 0.6},
        shared
        | {"shape": "4×5×6", "time_ns": 3 * MS, "intensity": 900.0, "tflops": 500.0, "roof_ratio": 0.5},
        shared | {"shape": None, "time_ns": 0, "unknown_ns": 4 * MS, "intensity": None, "tflops": None},
    ]
    data = _built(
        "roofline", {("roofline", ("operator", "precision", "shape")): _frame(roofline.RESULT, *rows)}
    )
    (figure,) = data.figures
    assert figure.data["shape"].to_list() == ["4×5×6", "1×2×3"]
    assert figure.data["ms"].to_list() == [1.5, 0.5]
    assert (
        figure.caption
        == "Longest runs aten::mm 4×5×6: 1.50 ms per rank and step at 500 TFLOP/s, 50.0 % of the roof."
    )
    assert "50.0 % of GEMM time is of unknown shape" in figure.method


def test_counters_have_a_bar_per_state_and_a_line_over_steps() -> None:
    shared = {
        "device_count": 1,
        "sample_count": 3,
        "method": "mean before",
        "quantile_error_ratio": 0.0,
        "window_ns": MS,
    }
    states = [
        shared | {"metric": "NVLink TX", "unit": "%", "state": state, "mean": mean}
        for state, mean in (("compute", 10.0), ("exposed_comm", 80.0), ("idle", None))
    ] + [shared | {"metric": "allocated", "unit": "bytes", "state": "compute", "mean": 4e9}]
    steps = [
        shared | {"metric": "NVLink TX", "unit": "%", "step": step, "mean": mean} for step, mean in ((1, 30.0), (2, 45.0))
    ]  # fmt: skip
    frames: dict[section.Question, pl.DataFrame] = {
        ("counters", ("metric",)): _frame(counters.RESULT, shared | {"metric": "NVLink TX", "unit": "%", "mean": 37.5}),
        ("counters", ("state",)): _frame(counters.RESULT, *states),
        ("counters", ("step",)): _frame(counters.RESULT, *steps),
    }  # fmt: skip
    by_state, by_step = _built("counters", frames).figures
    assert [view.label for view in by_state.views] == ["%", "GB"]
    link = by_state.data.filter(metric="NVLink TX").to_dicts()
    assert [row["while computing %"] for row in link] == [10.0, 0.0]
    assert [row["while communication is exposed %"] for row in link] == [0.0, 80.0]
    assert by_state.data.filter(metric="allocated")["while computing GB"].to_list() == [4.0]
    assert "NVLink TX was at 80.0 %" in by_state.caption
    assert by_step.data.rows() == [("NVLink TX", 1, 30.0), ("NVLink TX", 2, 45.0)]
    assert by_step.caption == "NVLink TX moves most: from 30.0 % to 45.0 % between steps."


def test_throughput_that_is_not_known_says_what_to_write_into_run_toml() -> None:
    data = _built("throughput", {})
    assert data.blocks == ()
    assert "run.toml" in data.reason


def test_a_report_without_a_baseline_has_no_comparison() -> None:
    (found,) = [one for one in registry.sections() if one.name == "compare"]
    assert found.build(_answers({})) is None
