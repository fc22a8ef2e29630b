from __future__ import annotations

import numpy as np
import pytest

from traceview.intervals import (
    KEY_LIMIT,
    Spans,
    busy_fraction,
    clip,
    covered,
    difference,
    exclusive,
    gaps,
    innermost,
    intersection,
    split,
    total,
    union,
)

EPOCH = 1_760_000_000_000_000_000
FAR = 4 * 10**18
NOTHING = Spans.of([], [])


def rows(spans: Spans) -> list[tuple[int, int, int]]:
    return list(zip(spans.key.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True))


def test_spans_without_a_key_belong_to_key_zero() -> None:
    assert rows(Spans.of([3, 1], [5, 1])) == [(0, 3, 5), (0, 1, 1)]


def test_spans_know_their_number_and_durations() -> None:
    spans = Spans.of([3, 1], [5, 1])
    assert len(spans) == 2
    assert spans.durations().tolist() == [2, 0]


def test_narrow_integers_become_int64() -> None:
    spans = Spans.of(np.array([1], np.int32), np.array([2], np.uint16), np.array([0], np.int8))
    assert {array.dtype for array in (spans.key, spans.start, spans.end)} == {np.dtype(np.int64)}


@pytest.mark.parametrize("bad", [[1.5], [float("nan")], np.array([2**63], np.uint64), ["1"]])
def test_times_that_int64_may_not_hold_are_refused(bad: list[float]) -> None:
    with pytest.raises(TypeError, match="safe"):
        Spans.of(bad, [2])


@pytest.mark.parametrize(
    ("start", "end", "key", "why"),
    [
        ([1, 2], [3], None, "one length"),
        ([1], [3], [0, 1], "one length"),
        ([[1]], [[3]], None, "1-d"),
        ([0, 5], [1, 4], None, r"span 1, \[5, 4\), ends before it starts"),
        ([FAR], [-FAR - FAR // 2], None, "ends before it starts"),
        ([-2 * FAR], [2 * FAR], None, "too long"),
        ([1], [2], [-1], "keys must lie in"),
        ([1], [2], [KEY_LIMIT], "keys must lie in"),
    ],
)
def test_malformed_spans_are_refused(start: list[int], end: list[int], key: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Spans.of(start, end, key)


def test_spans_are_taken_by_index_and_by_mask() -> None:
    spans = Spans.of([0, 10, 20], [1, 11, 21], [0, 1, 2])
    assert rows(spans.take(np.array([2, 0]))) == [(2, 20, 21), (0, 0, 1)]
    assert rows(spans.take(spans.key < 2)) == [(0, 0, 1), (1, 10, 11)]


def test_union_merges_what_touches_and_drops_what_is_empty() -> None:
    spans = Spans.of([5, 0, 9, 20, 21], [9, 5, 12, 20, 22])
    assert rows(union(spans)) == [(0, 0, 12), (0, 21, 22)]


def test_keys_never_merge_even_where_one_ends_as_the_next_begins() -> None:
    assert rows(union(Spans.of([0, 0], [10, 10], [1, 0]))) == [(0, 0, 10), (1, 0, 10)]


def test_difference_and_gaps_are_the_same_cut_seen_from_both_sides() -> None:
    busy, window = Spans.of([2, 6], [4, 20]), Spans.of([0], [10])
    assert rows(difference(window, busy)) == rows(gaps(busy, window)) == [(0, 0, 2), (0, 4, 6)]


def test_intersection_of_spans_that_only_touch_is_empty() -> None:
    assert rows(intersection(Spans.of([0], [5]), Spans.of([5], [9]))) == []


def test_clip_keeps_the_parts_of_overlapping_spans_apart() -> None:
    assert rows(clip(Spans.of([0, 1], [9, 3]), Spans.of([2, 7], [4, 8]))) == [(0, 2, 4), (0, 7, 8), (0, 2, 3)]


def test_split_keys_each_piece_by_the_row_of_its_window() -> None:
    windows = Spans.of([10, 0, 0], [20, 10, 20], [0, 0, 1])
    pieces, span = split(Spans.of([5, 3], [15, 4], [0, 1]), windows)
    assert rows(pieces) == [(1, 5, 10), (0, 10, 15), (2, 3, 4)]
    assert span.tolist() == [0, 0, 1]


def test_split_refuses_windows_of_one_key_that_overlap() -> None:
    with pytest.raises(ValueError, match="windows 1 and 0 of one key overlap"):
        split(NOTHING, Spans.of([9, 0], [20, 10]))


def test_total_is_exact_beyond_the_precision_of_a_float() -> None:
    spans = Spans.of([0, 0, 0], [2**53 + 1, 1, 7], [1, 1, 0])
    assert total(spans, 3).tolist() == [7, 2**53 + 2, 0]


def test_total_refuses_a_key_it_was_not_told_of() -> None:
    with pytest.raises(IndexError):
        total(Spans.of([0], [1], [3]), 3)


def test_covered_counts_doubly_busy_time_once_and_only_of_the_same_key() -> None:
    busy = Spans.of([0, 2, 0], [4, 6, 100], [0, 0, 1])
    assert covered(busy, Spans.of([1, 5, 6, 3], [3, 9, 9, 3])).tolist() == [2, 1, 0, 0]


def test_busy_fraction_rounds_bin_edges_down() -> None:
    # ten ns in four bins: edges 0, 2, 5, 7, 10
    share = busy_fraction(Spans.of([1], [6]), Spans.of([0], [10]), bins=4)
    assert share.tolist() == [[1 / 2, 1.0, 1 / 2, 0.0]]


def test_bins_narrower_than_a_nanosecond_are_idle_rather_than_nan() -> None:
    share = busy_fraction(Spans.of([0], [2]), Spans.of([0, 1], [2, 1]), bins=4)
    assert share.tolist() == [[0.0, 1.0, 0.0, 1.0], [0.0] * 4]


def test_busy_fraction_of_a_window_of_centuries_does_not_overflow() -> None:
    share = busy_fraction(Spans.of([0], [FAR]), Spans.of([0], [2 * FAR]), bins=1000)
    assert share.tolist() == [[1.0] * 500 + [0.0] * 500]


def test_busy_fraction_needs_a_bin() -> None:
    with pytest.raises(ValueError, match="bins must be positive, not 0"):
        busy_fraction(NOTHING, NOTHING, bins=0)


def test_exclusive_time_tells_one_label_from_several() -> None:
    spans = Spans.of([0, 4, 5, 8, 20], [6, 9, 7, 10, 21], [0, 0, 0, 0, 1])
    pieces, label = exclusive(spans, [0, 1, 1, 1, 1], n_labels=2)
    assert rows(pieces) == [(0, 0, 4), (0, 4, 6), (0, 6, 10), (1, 20, 21)]
    assert label.tolist() == [0, 2, 1, 1]


@pytest.mark.parametrize("label", [[2], [-1], [0, 0]])
def test_exclusive_refuses_labels_that_do_not_fit(label: list[int]) -> None:
    with pytest.raises(ValueError, match=r"each of 1 spans needs a label in range\(2\)"):
        exclusive(Spans.of([0], [1]), label, n_labels=2)


def test_innermost_is_the_last_to_start_then_the_shortest_then_the_last_given() -> None:
    spans = Spans.of([0, 2, 2, 2, 5], [10, 9, 4, 4, 5])
    assert innermost(spans, [0] * 7, [-1, 0, 2, 4, 5, 9, 10]).tolist() == [-1, 0, 3, 1, 1, 0, -1]


def test_innermost_is_exact_for_spans_that_cross() -> None:
    spans = Spans.of([0, 3, 4], [10, 6, 8])
    assert innermost(spans, [0] * 3, [5, 7, 9]).tolist() == [2, 2, 0]


def test_innermost_finds_the_outermost_range_behind_a_thousand_nested_ones() -> None:
    depth = 1000
    level = np.arange(depth)
    found = innermost(Spans.of(level, 2 * depth - level), [0] * 3, [depth - 1, 2 * depth - 1, 2 * depth])
    assert found.tolist() == [depth - 1, 0, -1]


def test_epoch_stamps_are_exact_to_the_nanosecond() -> None:
    busy = Spans.of([EPOCH, EPOCH + 2], [EPOCH + 1, EPOCH + 3], [1023, 1023])
    window = Spans.of([EPOCH], [EPOCH + 10**13], [1023])
    assert rows(gaps(busy, window)) == [(1023, EPOCH + 1, EPOCH + 2), (1023, EPOCH + 3, EPOCH + 10**13)]
    assert covered(busy, window).tolist() == [2]


def test_times_too_far_apart_for_one_axis_stay_exact() -> None:
    # three keys over eight billion seconds each: three stretches do not fit int64
    a = Spans.of([-FAR, -FAR, FAR - 5, 0], [FAR, -FAR + 7, FAR, 3], [0, 1, 2, 2])
    b = Spans.of([0, -FAR + 2, FAR - 9], [1, FAR, FAR - 3], [0, 1, 2])
    assert rows(union(a)) == [(0, -FAR, FAR), (1, -FAR, -FAR + 7), (2, 0, 3), (2, FAR - 5, FAR)]
    assert rows(intersection(a, b)) == [(0, 0, 1), (1, -FAR + 2, -FAR + 7), (2, FAR - 5, FAR - 3)]
    assert covered(b, a).tolist() == [1, 5, 2, 0]
    assert innermost(a, [0, 1, 2, 2], [5, -FAR + 7, 2, FAR - 1]).tolist() == [0, -1, 3, 2]


def test_nothing_gives_nothing() -> None:
    for result in (union(NOTHING), intersection(NOTHING, NOTHING), difference(NOTHING, NOTHING)):
        assert rows(result) == []
    assert exclusive(NOTHING, [], n_labels=3)[1].tolist() == []
    assert innermost(NOTHING, [], []).tolist() == []
    assert busy_fraction(NOTHING, NOTHING, bins=3).shape == (0, 3)
    assert total(NOTHING, 2).tolist() == [0, 0]


def test_an_empty_side_leaves_the_other_as_it_is() -> None:
    some = Spans.of([1], [4])
    assert rows(difference(some, NOTHING)) == [(0, 1, 4)]
    assert (
        rows(difference(NOTHING, some))
        == rows(intersection(some, NOTHING))
        == rows(clip(some, NOTHING))
        == []
    )
    assert covered(NOTHING, some).tolist() == [0]
    assert covered(some, NOTHING).tolist() == []
    assert innermost(NOTHING, [0], [2]).tolist() == [-1]
