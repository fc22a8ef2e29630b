"""The same collective on all its ranks: by number, by occurrence within the step, by alignment."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from traceview.matching import common_places, with_instance
from traceview.schema import COLLECTIVE_OPS

if TYPE_CHECKING:
    import random

_SCHEMA = COLLECTIVE_OPS.only(
    "rank", "collective", "role", "subrole", "in_bytes", "out_bytes", "seq", "step", "ts_ns"
).schema()


def exchanges(*rows: tuple[int, str, int | None, int | None, int], group: str | None = "g") -> pl.DataFrame:
    """Exchanges from (rank, collective, step, seq, bytes), in order of time."""
    return pl.DataFrame(
        {
            "rank": [r[0] for r in rows],
            "collective": [r[1] for r in rows],
            "role": None,
            "subrole": None,
            "in_bytes": [r[4] for r in rows],
            "out_bytes": [r[4] for r in rows],
            "seq": [r[3] for r in rows],
            "step": [r[2] for r in rows],
            "ts_ns": range(len(rows)),
        },
        schema=_SCHEMA,
    ).with_columns(group_key=pl.lit(group, pl.String))


def together(frame: pl.DataFrame) -> set[frozenset[int]]:
    """Row numbers that share an instance."""
    found = with_instance(frame).with_row_index("row").drop_nulls("instance")
    return {frozenset(rows) for rows in found.group_by("instance").agg("row")["row"].to_list()}


def test_a_sequence_number_decides_whatever_else_differs() -> None:
    frame = exchanges((0, "all_gather", 1, 7, 10), (0, "all_gather", 1, 8, 10), (1, "all_gather", 2, 8, 99))
    assert together(frame) == {frozenset({0}), frozenset({1, 2})}


def test_without_numbers_the_occurrence_within_the_step_decides() -> None:
    rank0 = [(0, "all_gather", step, None, 10) for step in (1, 1, 2, 2)]
    rank1 = [(1, "all_gather", step, None, 10) for step in (1, 1, 2, 2)]
    assert together(exchanges(*rank0, *rank1)) == {frozenset({n, n + 4}) for n in range(4)}


def test_a_rank_that_starts_three_steps_late_matches_the_steps_it_saw() -> None:
    rank0 = [(0, "all_reduce", step, None, 10) for step in range(6)]
    rank1 = [(1, "all_reduce", step, None, 10) for step in range(3, 6)]
    shared = {pair for pair in together(exchanges(*rank0, *rank1)) if len(pair) == 2}
    assert shared == {frozenset({3, 6}), frozenset({4, 7}), frozenset({5, 8})}


def test_sizes_tell_symmetric_collectives_apart_but_not_all_to_alls() -> None:
    rank0 = [(0, "all_gather", 1, None, 10), (0, "all_gather", 1, None, 20), (0, "all_to_all", 1, None, 5)]
    rank1 = [(1, "all_gather", 1, None, 20), (1, "all_to_all", 1, None, 9)]
    shared = {pair for pair in together(exchanges(*rank0, *rank1)) if len(pair) == 2}
    assert shared == {frozenset({1, 3}), frozenset({2, 4})}


def test_a_window_that_cuts_a_step_aligns_from_its_end() -> None:
    kinds = ["all_gather", "all_reduce", "reduce_scatter", "all_gather", "all_reduce"]
    rank0 = [(0, kind, 1, None, 10) for kind in kinds]
    rank1 = [(1, kind, 1, None, 10) for kind in kinds[2:]]
    shared = {pair for pair in together(exchanges(*rank0, *rank1)) if len(pair) == 2}
    assert shared == {frozenset({2, 5}), frozenset({3, 6}), frozenset({4, 7})}


def test_groups_of_the_same_kind_never_meet_and_unknown_groups_match_nothing() -> None:
    left = exchanges((0, "all_gather", 1, None, 1), group="a")
    right = exchanges((1, "all_gather", 1, None, 1), group="b")
    assert together(pl.concat([left, right])) == {frozenset({0}), frozenset({1})}
    assert together(exchanges((0, "all_gather", 1, 5, 1), (1, "all_gather", 1, 5, 1), group=None)) == set()


def test_an_exchange_outside_of_all_steps_of_a_stepped_group_stays_alone() -> None:
    frame = exchanges(
        (0, "all_gather", None, None, 1), (0, "all_gather", 1, None, 1), (1, "all_gather", 1, None, 1)
    )
    assert together(frame) == {frozenset({1, 2})}


def test_nothing_in_nothing_out() -> None:
    empty = exchanges()
    assert with_instance(empty)["instance"].to_list() == []


@given(st.integers(2, 5), st.integers(1, 12), st.randoms(use_true_random=False))
def test_rank_order_and_other_ranks_rows_change_nothing(ranks: int, count: int, draw: random.Random) -> None:
    program = [draw.choice(["all_gather", "all_reduce", "all_to_all"]) for _ in range(count)]
    rows = [(rank, kind, 1, None, 8) for rank in range(ranks) for kind in program]
    frame = exchanges(*rows)
    expected = {frozenset(rank * count + n for rank in range(ranks)) for n in range(count)}
    assert together(frame) == expected


def _lcs_length(a: list[int], b: list[int]) -> int:
    """Longest common subsequence by trying all of them."""
    for size in range(min(len(a), len(b)), 0, -1):
        of_b = set(combinations(b, size))
        if any(chosen in of_b for chosen in combinations(a, size)):
            return size
    return 0


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_an_alignment_is_a_longest_common_subsequence(sequence: list[int], reference: list[int]) -> None:
    places = common_places(sequence, reference)
    used = [place for place in places if place is not None]
    assert used == sorted(set(used))
    assert all(
        reference[place] == item for item, place in zip(sequence, places, strict=True) if place is not None
    )
    assert len(used) == _lcs_length(sequence, reference)


def test_of_equal_alignments_the_latest_is_taken() -> None:
    assert common_places([1, 2], [1, 2, 1, 2, 1, 2]) == [4, 5]
