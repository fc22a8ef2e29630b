"""The page of `alltoall` and `collectives`: rows as text, what is missing, and the sentences."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceview.analyzers.alltoall import RESULT
from traceview.reports.about import About
from traceview.reports.alltoall import ROWS, page
from traceview.reports.layout import Grid, Note, Verdict, plain
from traceview.reports.notices import Notice

ABOUT = About("job", (0, 1), 2, ("kineto",), ("NVIDIA H100 80GB HBM3",), ())
MEASURED = {
    "role": "dispatch",
    "phase": "forward",
    "op_count": 16,
    "instance_count": 8,
    "complete_count": 8,
    "dur_ns": 16_000_000,
    "dur_p50_ns": 1_000_000,
    "dur_p99_ns": 1_200_000,
    "wait_ns": 4_000_000,
    "transfer_ns": 12_000_000,
    "wait_ratio": 0.25,
    "transfer_p50_ns": 750_000,
    "exposed_ns": 8_000_000,
    "exposed_wait_ns": 2_000_000,
    "exposed_transfer_ns": 6_000_000,
    "hidden_ns": 0,
    "sync_count": 0,
    "sync_ns": 0,
    "sync_exposed_ns": 0,
    "local_ns": 0,
    "sent_bytes": 4_000_000_000,
    "busbw_bytes_per_s": 300e9,
    "expected_bytes_per_s": 450e9,
    "expected_ratio": 2 / 3,
    "expected_source": "link speed of H100",
    "uncertainty_ns": 0,
    "window_count": 4,
    "window_ns": 40_000_000,
}


def blocks_of(*rows: dict[str, Any], notices: tuple[Notice, ...] = ()) -> list[Any]:
    frame = RESULT.frame([MEASURED | row for row in rows]) if rows else RESULT.empty()
    return page(ABOUT, frame, notices)


def verdict(*rows: dict[str, Any]) -> str:
    (found,) = (block.text for block in blocks_of(*rows) if isinstance(block, Verdict))
    return str(found)


def cells(row: dict[str, Any]) -> dict[str, str]:
    """The one row of the table, by head."""
    (grid,) = (block for block in blocks_of(row) if isinstance(block, Grid))
    return dict(zip(grid.heads, grid.rows[0], strict=True))


def remarks(*rows: dict[str, Any]) -> list[str]:
    return [block.text for block in blocks_of(*rows) if isinstance(block, Note)]


def test_times_are_per_rank_and_window_and_rates_are_decimal_gigabytes() -> None:
    shown = cells({})
    assert (shown["exposed ms"], shown["of it wait ms"]) == ("2.00", "0.500")
    assert (shown["GB/s"], shown["expected"], shown["%"]) == ("300", "450", "66.7")
    assert (shown["wait %"], shown["sent"]) == ("25.0", "4.00 GB")


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    names = ("wait_ratio", "exposed_wait_ns", "sent_bytes", "busbw_bytes_per_s", "expected_ratio")
    shown = cells(dict.fromkeys(names))
    dash = cells({"bytes_imbalance": None})["max/mean"]
    assert [shown[head] for head in ("wait %", "of it wait ms", "sent", "GB/s", "%")] == [dash] * 5
    assert not dash.isdigit()


def test_bytes_in_flight_are_named_with_their_speed_and_how_far_it_is_from_expected() -> None:
    text = verdict({})
    assert "forward dispatch, 2.00 ms per rank and window (20.0 % of it)" in text
    assert "75.0 % of that is moving bytes" in text
    assert "300 GB/s, 66.7 % of 450 GB/s: link speed of H100" in text


def test_waiting_is_named_where_it_is_the_larger_part_and_barriers_count_as_waiting() -> None:
    assert "of that is waiting for other ranks" in verdict(
        {"exposed_wait_ns": 7_000_000, "exposed_transfer_ns": 1}
    )
    assert "60.0 % of that is waiting for other ranks" in verdict({"sync_exposed_ns": 7_000_000})


def test_the_most_exposed_row_is_the_one_named() -> None:
    text = verdict({"role": "combine", "exposed_ns": 1_000_000}, {"phase": "backward"})
    assert "Most exposed: backward dispatch" in text


def test_without_all_ranks_nobody_claims_a_cause() -> None:
    alone = dict.fromkeys(("exposed_wait_ns", "exposed_transfer_ns", "wait_ns", "busbw_bytes_per_s"))
    text = verdict({**alone, "complete_count": 0, "sync_exposed_ns": 2_000_000})
    assert "cannot be told apart without all ranks" in text
    assert "20.0 % of that is barriers" in text
    assert "GB/s" not in text
    assert any(remark.startswith("8 of 8 exchanges lack") for remark in remarks({"complete_count": 0}))


def test_hidden_and_absent_exchanges_are_said_to_be_so() -> None:
    assert verdict({"exposed_ns": 0}) == "None of it is exposed while nothing else communicates."
    assert verdict() == "No such exchange was recorded."
    assert not any(isinstance(block, Grid) for block in blocks_of())


def test_unknown_bytes_and_unsure_clocks_are_remarked_on() -> None:
    assert remarks({}) == []
    assert any("16 ops" in remark for remark in remarks({"sent_bytes": None}))
    assert any("within 40.0 µs" in remark for remark in remarks({"uncertainty_ns": 40_000}))


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = [{"layer": layer} for layer in range(ROWS + 3)]
    (grid,) = (block for block in blocks_of(*rows) if isinstance(block, Grid))
    assert len(grid.rows) == ROWS
    assert any(remark.startswith("and 3 more rows") for remark in remarks(*rows))


def test_windows_that_are_not_cut_like_the_rows_give_totals() -> None:
    assert "8.00 ms in all" in verdict({"window_count": None, "window_ns": None})


@pytest.mark.parametrize("name", ["evil\x1b[31m", "a\nb"])
def test_a_name_from_the_trace_cannot_steer_the_terminal(name: str) -> None:
    text = plain(blocks_of({"group_key": name}))
    assert name not in text


def test_diagnostics_stand_on_the_page() -> None:
    notice = Notice("warning", "input.skipped", "a file was skipped", (), 1)
    assert "a file was skipped [input.skipped]" in plain(blocks_of({}, notices=(notice,)))


def test_a_grain_of_one_row_is_called_everything() -> None:
    assert "Most exposed: everything" in verdict({"role": None, "phase": None})
    assert pl.Series(RESULT.columns.keys()).is_unique().all()
