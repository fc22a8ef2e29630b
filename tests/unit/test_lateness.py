"""One reason to be late at a time, on arrivals made by hand: rank 3 of four is late for the second exchange."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceview.analyzers._arrivals import ARRIVALS, TOTALS
from traceview.analyzers._exchanges import Timed, timed
from traceview.analyzers._lateness import _common_exchange, causes

RANKS, LATE, TRANSFER = 4, 3, 1_000
ORIGIN = 10**18
NO_PACE = pl.DataFrame(schema={"rank": pl.Int32, "family": pl.String, "pace": pl.Float64})
USUAL = {"compute": 10_000, "comm": 0, "copy": 0, "idle": 2_000, "grouped": 6_000, "queued": 50_000}
"""What a rank does between the two exchanges, in ns; ``queued`` is how long the second waited in line."""


def _exchange(rank: int, number: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "op": number,
        "rank": rank,
        "device": 0,
        "step": 1,
        "axis": "ep",
        "collective": "all_to_all",
        "role": ("dispatch", "combine")[number % 2],
        "group_size": RANKS,
        "group_key": "g",
        "seq": number,
        "ts_ns": ORIGIN + start,
        "dur_ns": end - start,
        "resolved_by": "kernel_args",
        "confidence": 1.0,
        "host": "h",
        "is_host_known": True,
        "node": 0,
        "hidden_ns": 0,
        "out_bytes": 1_000,
        "begun_until_start": 5 * number,
        "begun_until_end": 5 * number,
        "begun_in_step": 10,
        **more,
    }


def _totals(number: int, spent: dict[str, int]) -> dict[str, int]:
    """Running totals at both edges of the first or second exchange, which itself is communication."""
    sums = {
        "compute": spent["compute"],
        "active": spent["compute"] + spent["comm"],
        "busy": spent["compute"] + spent["comm"] + spent["copy"],
        "grouped": spent["grouped"],
    }
    own = {"compute": 0, "active": TRANSFER, "busy": TRANSFER, "grouped": 0}
    return {
        f"{name}_until_{edge}_ns": number * sums[name] + own[name] * (number + (edge == "end"))
        for name in TOTALS
        for edge in ("start", "end")
    }


def _run(
    late: dict[str, int], second: dict[str, Any] | None = None, first: dict[str, Any] | None = None
) -> Timed:
    """Two exchanges of four ranks; the late one spends ``late`` more in between."""
    rows = []
    spending = {
        rank: {name: usual + (late.get(name, 0) if rank == LATE else 0) for name, usual in USUAL.items()}
        for rank in range(RANKS)
    }
    parts = ("compute", "comm", "copy", "idle")
    starts = {rank: TRANSFER + sum(spent[part] for part in parts) for rank, spent in spending.items()}
    end = max(starts.values()) + TRANSFER
    for rank, spent in spending.items():
        own = (first or {}) if rank == LATE else {}
        rows.append(_exchange(rank, 0, 0, TRANSFER, **_totals(0, spent), **own))
        launched = {"launched_ns": ORIGIN + starts[rank] - spent["queued"]}
        own = (second or {}) if rank == LATE else {}
        rows.append(_exchange(rank, 1, starts[rank], end, **_totals(1, spent), **launched | own))
    return timed(ARRIVALS.frame(pl.DataFrame(rows, infer_schema_length=None)))


def _cause(found: Timed, pace: pl.DataFrame = NO_PACE) -> str | None:
    last = found.exchanges.filter(pl.col("last_rank") == LATE)["instance"].unique().item()
    named = causes(found, pace).filter(pl.col("instance") == last)["cause"].to_list()
    assert len(named) == 1
    return str(named[0]) if named[0] else None


def _pace(*ratios: float) -> pl.DataFrame:
    rows = [(rank, "gemm", ratio) for rank, ratio in enumerate(ratios)]
    return pl.DataFrame(rows, NO_PACE.schema, orient="row")


UNTOLD = {"out_bytes": None}


def test_more_compute_for_the_same_rows_is_slower_kernels() -> None:
    assert _cause(_run({"compute": 5_000})) == "slower_kernels"


@pytest.mark.parametrize(
    ("rows", "cause"),
    [(1.5, "more_tokens"), (1.3, "more_tokens"), (1.2, "slower_kernels"), (0.9, "slower_kernels")],
)
def test_more_rows_are_the_cause_if_they_explain_half_of_the_excess(rows: float, cause: str) -> None:
    received = {"out_bytes": round(1_000 * rows)}  # compute takes half as long again as usual
    assert _cause(_run({"compute": 5_000}, first=received)) == cause


def test_rows_that_a_combine_brings_back_explain_nothing() -> None:
    returned = {"out_bytes": 1_500, "role": "combine"}
    assert _cause(_run({"compute": 5_000}, first=returned)) == "slower_kernels"


@pytest.mark.parametrize(
    ("pace", "grouped", "cause"),
    [
        (1.5, 3_000, "slower_kernels"),  # slow on fixed work as well
        (1.0, 5_000, "more_tokens"),  # as fast as the others, and all of it in grouped products
        (1.0, 0, None),  # as fast as the others, and not in grouped products: not known
    ],
)
def test_where_bytes_are_untold_the_pace_on_fixed_work_decides(
    pace: float, grouped: int, cause: str | None
) -> None:
    found = _run({"compute": 5_000, "grouped": grouped}, first=UNTOLD)
    assert _cause(found, _pace(1.0, 1.0, 1.0, pace)) == cause


def test_where_neither_bytes_nor_pace_are_told_the_cause_is_unknown() -> None:
    assert _cause(_run({"compute": 5_000, "grouped": 5_000}, first=UNTOLD)) is None


def test_idling_before_a_late_launch_is_a_late_launch() -> None:
    assert _cause(_run({"idle": 5_000})) == "late_launch"


def test_idling_after_a_launch_in_time_is_unknown() -> None:
    assert _cause(_run({"idle": 5_000, "queued": 5_000})) is None


def test_idling_with_no_launch_recorded_is_unknown() -> None:
    assert _cause(_run({"idle": 5_000}, second={"launched_ns": None})) is None


def test_other_communication_in_between_is_earlier_communication() -> None:
    assert _cause(_run({"comm": 5_000})) == "earlier_comm"


def test_copies_in_between_are_unknown() -> None:
    assert _cause(_run({"copy": 5_000})) is None


def test_the_largest_excess_counts() -> None:
    assert _cause(_run({"compute": 2_000, "idle": 5_000})) == "late_launch"
    assert _cause(_run({"compute": 5_000, "idle": 2_000})) == "slower_kernels"


def test_a_rank_that_is_further_in_the_program_is_not_late_because_of_its_kernels() -> None:
    ahead = {"begun_until_start": 8}
    assert _cause(_run({"compute": 5_000}, second=ahead)) == "late_launch"
    assert _cause(_run({"compute": 5_000, "queued": 5_000}, second=ahead)) is None


def test_a_rank_of_another_program_is_slower_only_if_its_pace_says_so() -> None:
    other = {"begun_in_step": 20, "begun_until_start": 15}
    assert _cause(_run({"compute": 5_000}, second=other)) is None
    assert _cause(_run({"compute": 5_000}, second=other), _pace(1.0, 1.0, 1.0, 1.5)) == "slower_kernels"


def test_the_first_exchange_of_all_has_no_cause_without_the_beginning_of_windows() -> None:
    found = _run({"compute": 5_000})
    only = found.exchanges.filter(pl.col("seq") == 1)
    alone = Timed(only, found.windows, found.clock)
    assert set(causes(alone, NO_PACE)["cause"]) <= {None}


# --- which exchange the ranks are compared from ------------------------------------------------------


def _meetings(*meetings: tuple[str, tuple[int, ...], int]) -> dict[int, int]:
    """For the n-th of some meetings (group, ranks, start; 100 ns each), which one its ranks are compared from."""
    rows = [
        _exchange(rank, number, start, start + 100, group_key=group, group_size=len(ranks), axis="tp")
        for number, (group, ranks, start) in enumerate(meetings)
        for rank in ranks
    ]
    edges = {f"{name}_until_{edge}_ns": 0 for name in TOTALS for edge in ("start", "end")}
    found = timed(ARRIVALS.frame(pl.DataFrame([row | edges for row in rows], infer_schema_length=None)))
    # every rank starts at the same time here, so somebody has to be named last by hand
    exchanges = found.exchanges.with_columns(last_rank=pl.col("rank").min().over("instance"))
    number = dict(exchanges.select("instance", "seq").iter_rows())
    pairs = _common_exchange(exchanges.filter("is_complete")).select("instance", "instance_before")
    return {number[instance]: number[before] for instance, before in pairs.iter_rows()}


ALL, PAIR, OTHERS = ("all", (0, 1, 2, 3)), ("pair", (0, 1)), ("others", (1, 2))


def test_a_group_is_compared_from_the_last_exchange_that_all_its_ranks_were_in() -> None:
    assert _meetings((*PAIR, 0), (*ALL, 200), (*PAIR, 400)) == {2: 1}
    assert _meetings((*ALL, 0), (*PAIR, 200), (*ALL, 400)) == {1: 0, 2: 0}
    assert _meetings((*PAIR, 0), (*OTHERS, 200), (*PAIR, 400)) == {2: 0}


def test_an_exchange_that_is_still_running_is_not_compared_from() -> None:
    assert _meetings((*PAIR, 0), (*ALL, 350), (*PAIR, 400)) == {2: 0}


def test_the_first_exchange_has_none_before_it() -> None:
    assert _meetings((*PAIR, 0)) == {}
