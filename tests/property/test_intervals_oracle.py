"""The interval algebra against sets of (key, nanosecond)."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.intervals import (
    Spans,
    _last_above,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[int, int, int]
Cells = set[tuple[int, int]]

KEYS = 3
LABELS = 3
EPOCH = 1_760_000_000_000_000_000
# the last clock runs so wide that its keys do not fit on one axis of shifted times
CLOCKS = ((0,), (-7,), (EPOCH,), (-4 * 10**18, 4 * 10**18))


@st.composite
def spans(draw: st.DrawFn, origins: Sequence[int]) -> Spans:
    row = st.tuples(st.integers(0, KEYS - 1), st.sampled_from(origins), st.integers(0, 16), st.integers(0, 7))
    return of(
        [(key, origin + at, origin + at + size) for key, origin, at, size in draw(st.lists(row, max_size=12))]
    )


def several(count: int) -> st.SearchStrategy[list[Spans]]:
    """``count`` sets of spans on one clock."""
    return st.sampled_from(CLOCKS).flatmap(
        lambda clock: st.lists(spans(clock), min_size=count, max_size=count)
    )


one, two = several(1).map(lambda found: found[0]), several(2)


def of(given_rows: Sequence[Row]) -> Spans:
    key, start, end = zip(*given_rows, strict=True) if given_rows else ((), (), ())
    return Spans.of(start, end, key)


def rows(some: Spans) -> list[Row]:
    return list(zip(some.key.tolist(), some.start.tolist(), some.end.tolist(), strict=True))


def cells_of(row: Row) -> Cells:
    return {(row[0], time) for time in range(row[1], row[2])}


def cells(some: Spans) -> Cells:
    return set().union(*map(cells_of, rows(some)))


def disjoint(some: Spans) -> Spans:
    """As many of the spans, in their order, as can stand side by side."""
    kept: list[Row] = []
    for row in rows(some):
        if not any(cells_of(row) & cells_of(other) for other in kept):
            kept.append(row)
    return of(kept)


def assert_canonical(some: Spans) -> None:
    assert all(start < end for _, start, end in rows(some))
    assert all(a[0] < b[0] or (a[0] == b[0] and a[2] < b[1]) for a, b in pairwise(rows(some)))


@given(one)
def test_union_is_the_set_union(some: Spans) -> None:
    assert cells(union(some)) == cells(some)
    assert_canonical(union(some))


@given(two)
def test_intersection_is_the_set_intersection(pair: list[Spans]) -> None:
    a, b = pair
    assert cells(intersection(a, b)) == cells(a) & cells(b)
    assert_canonical(intersection(a, b))


@given(two)
def test_difference_is_the_set_difference(pair: list[Spans]) -> None:
    a, b = pair
    assert cells(difference(a, b)) == cells(a) - cells(b)
    assert_canonical(difference(a, b))


@given(two)
def test_gaps_are_what_windows_hold_beside_the_spans(pair: list[Spans]) -> None:
    busy, windows = pair
    assert cells(gaps(busy, windows)) == cells(windows) - cells(busy)
    assert_canonical(gaps(busy, windows))


@given(two)
def test_clip_keeps_of_each_span_what_a_window_holds(pair: list[Spans]) -> None:
    some, windows = pair
    expected = Counter(cell for row in rows(some) for cell in cells_of(row) & cells(windows))
    assert Counter(cell for row in rows(clip(some, windows)) for cell in cells_of(row)) == expected


@given(two)
def test_split_gives_each_window_its_piece_of_each_span(pair: list[Spans]) -> None:
    some, windows = pair[0], disjoint(pair[1])
    pieces, span = split(some, windows)
    found = {
        (row, window): set(range(start, end))
        for row, (window, start, end) in zip(span.tolist(), rows(pieces), strict=True)
    }
    expected = {
        (i, j): {time for _, time in cells_of(a) & cells_of(b)}
        for i, a in enumerate(rows(some))
        for j, b in enumerate(rows(windows))
    }
    assert len(found) == len(pieces)
    assert found == {pair: times for pair, times in expected.items() if times}
    assert [row for row, _ in found] == sorted(span.tolist())


@given(one)
def test_split_refuses_exactly_the_windows_that_overlap(windows: Spans) -> None:
    overlapping = any(cells_of(a) & cells_of(b) for a, b in combinations(rows(windows), 2))
    try:
        split(of([]), windows)
    except ValueError:
        assert overlapping
    else:
        assert not overlapping


@given(one)
def test_total_sums_the_durations_of_each_key(some: Spans) -> None:
    expected = [sum(end - start for key, start, end in rows(some) if key == k) for k in range(KEYS)]
    assert total(some, KEYS).tolist() == expected


@given(two)
def test_covered_counts_the_busy_nanoseconds_of_each_query(pair: list[Spans]) -> None:
    busy, query = pair
    assert covered(busy, query).tolist() == [len(cells_of(row) & cells(busy)) for row in rows(query)]


@given(two, st.integers(1, 9))
def test_busy_fraction_is_the_busy_share_of_each_bin(pair: list[Spans], bins: int) -> None:
    busy, windows = pair
    shares = []
    for key, start, end in rows(windows):
        edges = [start + (end - start) * edge // bins for edge in range(bins + 1)]
        inside = [(b - a, len(cells_of((key, a, b)) & cells(busy))) for a, b in pairwise(edges)]
        shares.append([held / width if width else 0.0 for width, held in inside])
    assert busy_fraction(busy, windows, bins).tolist() == shares


@given(one, st.data())
def test_exclusive_time_belongs_to_its_only_label_or_to_several(some: Spans, data: st.DataObject) -> None:
    label = data.draw(st.lists(st.integers(0, LABELS - 1), min_size=len(some), max_size=len(some)))
    active: dict[tuple[int, int], set[int]] = {}
    for row, owner in zip(rows(some), label, strict=True):
        for cell in cells_of(row):
            active.setdefault(cell, set()).add(owner)
    expected = {cell: min(owners) if len(owners) == 1 else LABELS for cell, owners in active.items()}

    pieces, owners_found = exclusive(some, label, LABELS)
    found = [
        (cell, o)
        for row, o in zip(rows(pieces), owners_found.tolist(), strict=True)
        for cell in cells_of(row)
    ]
    assert sorted(found) == sorted(expected.items())
    labelled = list(zip(rows(pieces), owners_found.tolist(), strict=True))
    assert labelled == sorted(labelled)
    assert all(start < end for _, start, end in rows(pieces))
    assert not any(a[0] == b[0] and a[2] == b[1] and o == p for (a, o), (b, p) in pairwise(labelled))
    assert total(pieces, KEYS).tolist() == total(union(some), KEYS).tolist()


@given(st.sampled_from(CLOCKS), st.data())
def test_innermost_is_the_best_of_all_containing_spans(clock: tuple[int, ...], data: st.DataObject) -> None:
    some = data.draw(spans(clock))
    point = st.tuples(st.integers(0, KEYS - 1), st.sampled_from(clock), st.integers(-2, 26))
    points = [(key, origin + at) for key, origin, at in data.draw(st.lists(point, max_size=20))]
    expected = [
        max(
            (
                (start, -end, row)
                for row, (k, start, end) in enumerate(rows(some))
                if k == key and start <= at < end
            ),
            default=(0, 0, -1),
        )[2]
        for key, at in points
    ]
    keys, times = zip(*points, strict=True) if points else ((), ())
    assert innermost(some, keys, times).tolist() == expected


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 20), st.integers(-1, 9))
def test_the_tree_of_maxima_finds_the_last_value_above_the_bar(
    values: list[int], count: int, bar: int
) -> None:
    held = min(count, len(values))
    expected = max((i for i in range(held) if values[i] > bar), default=-1)
    found = _last_above(np.array(values, np.int64), np.array([held]), np.array([bar]))
    assert found.tolist() == [expected]


@given(two)
def test_measures_of_a_set_and_its_parts_agree(pair: list[Spans]) -> None:
    a, b = pair

    def measure(some: Spans) -> list[int]:
        return [int(sums) for sums in total(some, KEYS)]

    whole = np.add(measure(intersection(a, b)), measure(difference(a, b)))
    assert measure(union(a)) == whole.tolist()
    windows = union(b)
    held = total(Spans(windows.key, np.zeros_like(windows.start), covered(a, windows)), KEYS)
    assert measure(windows) == np.add(held, measure(gaps(a, windows))).tolist()


@given(two, st.integers(-(10**17), 10**17))
def test_shifting_the_clock_shifts_the_results_and_nothing_else(pair: list[Spans], by: int) -> None:
    a, b = pair
    later_a, later_b = (Spans(some.key, some.start + by, some.end + by) for some in pair)
    for operation in (intersection, difference, gaps, clip):
        expected = [(key, start + by, end + by) for key, start, end in rows(operation(a, b))]
        assert rows(operation(later_a, later_b)) == expected
    assert covered(later_a, later_b).tolist() == covered(a, b).tolist()


@given(two, st.permutations([0, 5, 2**31 - 1]))
def test_relabelling_the_keys_relabels_the_results_and_nothing_else(
    pair: list[Spans], names: list[int]
) -> None:
    a, b = pair
    renamed_a, renamed_b = (Spans(np.array(names)[some.key], some.start, some.end) for some in pair)
    for operation in (intersection, difference, gaps, clip):
        expected = sorted((names[key], start, end) for key, start, end in rows(operation(a, b)))
        assert sorted(rows(operation(renamed_a, renamed_b))) == expected
    assert covered(renamed_a, renamed_b).tolist() == covered(a, b).tolist()
