"""Set algebra on half-open intervals of int64 nanoseconds, for all keys in one call.

A *key* is a small code (rank, device, step, row of a window, ...); intervals of different keys never meet.
Every key gets its own stretch of one int64 axis, so that a single stable sort and a few running sums
answer for all of them, without a loop over keys or intervals. Results are exact for any int64 time.

Intervals may come in any order, overlap, repeat, or have length zero; the latter cover nothing.
Results are *canonical* where the text says so: sorted by key and start, disjoint, not even touching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KEY_LIMIT = 2**31
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Intervals ``[start, end)`` in ns, each of a key: three int64 arrays of one length."""

    key: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, start: npt.ArrayLike, end: npt.ArrayLike, key: npt.ArrayLike | None = None) -> Self:
        """Checked spans; without ``key`` all of them belong to key 0.

        Raises:
            TypeError: A value is not a whole number that int64 surely holds.
            ValueError: The shapes differ, an end lies before its start, a duration does not fit int64,
                or a key lies outside ``[0, KEY_LIMIT)``.
        """
        starts, ends = _ints(start), _ints(end)
        keys = np.zeros(starts.shape, np.int64) if key is None else _ints(key)
        if starts.ndim != 1 or not starts.shape == ends.shape == keys.shape:
            message = f"spans need 1-d arrays of one length, not {starts.shape}, {ends.shape}, {keys.shape}"
            raise ValueError(message)
        # the second test catches the durations that wrapped around
        wrong = np.flatnonzero((ends < starts) | (ends - starts < 0))
        if len(wrong):
            row = wrong[0]
            message = f"span {row}, [{starts[row]}, {ends[row]}), ends before it starts or is too long"
            raise ValueError(message)
        if len(keys) and not (keys.min() >= 0 and keys.max() < KEY_LIMIT):
            message = f"keys must lie in [0, {KEY_LIMIT}), not in [{keys.min()}, {keys.max()}]"
            raise ValueError(message)
        return cls(keys, starts, ends)

    def __len__(self) -> int:
        return len(self.start)

    def durations(self) -> Ints:
        """Length of each span, ns."""
        return self.end - self.start

    def take(self, rows: Ints | npt.NDArray[np.bool_]) -> Spans:
        """The spans at ``rows``: indices, or a mask."""
        # numpy walks a mask anew for each array, at twice the cost of indices
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Spans(self.key[index], self.start[index], self.end[index])


def union(spans: Spans) -> Spans:
    """Everything covered by a span, canonical."""
    axis = _Axis.over(spans)
    return axis.decode(*_merged(*axis.encode(spans)))


def intersection(a: Spans, b: Spans) -> Spans:
    """Everything covered by both ``a`` and ``b``, canonical."""
    return clip(union(a), b)


def difference(a: Spans, b: Spans) -> Spans:
    """Everything covered by ``a`` and not by ``b``, canonical."""
    axis = _Axis.over(a, b)
    start, end = _merged(*axis.encode(a))
    busy_start, busy_end = _merged(*axis.encode(b))
    # the complement of b on the whole axis; the parts that run from key to key are cut by a
    free_start = np.concatenate(([_LOWEST], busy_end))
    free_end = np.concatenate((busy_start, [_HIGHEST]))
    i, j = _meetings(start, end, free_start, free_end)
    return axis.decode(np.maximum(start[i], free_start[j]), np.minimum(end[i], free_end[j]))


def gaps(spans: Spans, windows: Spans) -> Spans:
    """Everything covered by a window and by no span, canonical."""
    return difference(windows, spans)


def clip(spans: Spans, windows: Spans) -> Spans:
    """The parts of each span that lie inside the union of the windows of its key.

    Returns:
        One span per part, in the order of ``spans`` and then of time; parts of overlapping spans overlap.
    """
    pieces, span = split(spans, union(windows))
    return Spans(spans.key[span], pieces.start, pieces.end)


def split(spans: Spans, windows: Spans) -> tuple[Spans, Ints]:
    """The piece of each span in each window of its key.

    The pieces are keyed by their *window's row*, so what follows works per window unchanged:
    ``total(union(pieces), len(windows))`` is the busy time of every window.

    Returns:
        The pieces, in the order of ``spans`` and then of time, and the row of the span each was cut from.

    Raises:
        ValueError: Two windows of one key overlap. They may touch, and come in any order.
    """
    axis = _Axis.over(spans, windows)
    start, end = axis.encode(windows)
    order = np.argsort(start, kind="stable")
    order = order[end[order] > start[order]]
    start, end = start[order], end[order]
    clash = np.flatnonzero(start[1:] < end[:-1])
    if len(clash):
        message = f"windows {order[clash[0]]} and {order[clash[0] + 1]} of one key overlap"
        raise ValueError(message)
    span, place = _meetings(*axis.encode(spans), start, end)
    window = order[place]
    pieces = Spans(
        window,
        np.maximum(spans.start[span], windows.start[window]),
        np.minimum(spans.end[span], windows.end[window]),
    )
    return pieces, span


def total(spans: Spans, n_keys: int) -> Ints:
    """Summed durations of each key in ``range(n_keys)``, ns; a measure of time if the spans are disjoint.

    Raises:
        IndexError: A key is not below ``n_keys``.
    """
    sums = np.zeros(n_keys, np.int64)
    np.add.at(sums, spans.key, spans.durations())
    return sums


def covered(busy: Spans, query: Spans) -> Ints:
    """How much of each query span the union of ``busy`` covers, ns; one value per query span."""
    axis = _Axis.over(busy, query)
    start, end = _merged(*axis.encode(busy))
    segments = axis.decode(start, end)
    elapsed = np.concatenate(([0], np.cumsum(segments.durations())))
    # row n holds the last of the n segments begun before a point: on the axis, and in time
    reach = np.concatenate(([_LOWEST], end))
    until = np.concatenate(([0], segments.end))

    def covered_before(code: Ints, time: Ints) -> Ints:
        begun = np.searchsorted(start, code)
        return elapsed[begun] - np.where(reach[begun] > code, until[begun] - time, 0)

    first, last = axis.encode(query)
    return covered_before(last, query.end) - covered_before(first, query.start)


def busy_fraction(busy: Spans, windows: Spans, bins: int) -> Floats:
    """Share of each bin that the union of ``busy`` covers, 0..1, with ``bins`` equal bins a window.

    Bin edges are rounded down to whole ns; the empty bins of a window shorter than ``bins`` ns give 0.

    Returns:
        One row per window, one column per bin.

    Raises:
        ValueError: ``bins`` is not positive.
    """
    if bins < 1:
        message = f"bins must be positive, not {bins}"
        raise ValueError(message)
    # floor(duration * edge / bins), without the product that could overflow
    duration = windows.durations()[:, np.newaxis]
    whole, rest = duration // bins, duration % bins
    edge = np.arange(bins + 1)
    edges = windows.start[:, np.newaxis] + whole * edge + rest * edge // bins
    cells = Spans(np.repeat(windows.key, bins), edges[:, :-1].ravel(), edges[:, 1:].ravel())
    width = cells.durations()
    share = np.divide(covered(busy, cells), width, out=np.zeros(len(cells)), where=width > 0)
    return share.reshape(len(windows), bins)


def exclusive(spans: Spans, label: npt.ArrayLike, n_labels: int) -> tuple[Spans, Ints]:
    """Time split by which one label is active, label ``n_labels`` standing for "several of them".

    Args:
        spans: Activities; those of one label are unioned first.
        label: Label of each span, in ``range(n_labels)``.
        n_labels: How many labels there are.

    Returns:
        Disjoint spans that add up to ``union(spans)``, sorted by key and start, and the label of each;
        neighbours that touch differ in label.

    Raises:
        ValueError: A label is out of range, or there is not one per span.
    """
    labels = _ints(label)
    if labels.shape != spans.key.shape or ((labels < 0) | (labels >= n_labels)).any():
        message = f"each of {len(spans)} spans needs a label in range({n_labels})"
        raise ValueError(message)
    active = union(Spans(spans.key * n_labels + labels, spans.start, spans.end))
    key, labels = np.divmod(active.key, n_labels)
    active = Spans(key, active.start, active.end)
    axis = _Axis.over(active)
    edge = np.concatenate(axis.encode(active))
    order = np.argsort(edge, kind="stable")
    edge = edge[order]
    count = np.cumsum(np.repeat([1, -1], len(active))[order])
    label_sum = np.cumsum(np.concatenate((labels, -labels))[order])  # of one active label: itself
    state = np.select([count == 0, count == 1], [-1, label_sum], n_labels)
    settled = np.append(edge[1:] != edge[:-1], True)[: len(edge)]
    edge, state = edge[settled], state[settled]
    changed = np.diff(state, prepend=-1) != 0
    edge, state = edge[changed], state[changed]
    # the state returns to -1 at the end of every key, so no stretch runs from key to key
    on = np.flatnonzero(state >= 0)
    return axis.decode(edge[on], edge[on + 1]), state[on]


def innermost(spans: Spans, key: npt.ArrayLike, points: npt.ArrayLike) -> Ints:
    """Row of the innermost span around each point: of those of its key that contain it, the last to start.

    Of several that start together the shortest is taken, then the last in input order. Crossing spans
    are handled exactly. The cost is logarithmic per point, whatever the nesting depth.

    Args:
        spans: Spans to search, nested or not.
        key: Key of each point.
        points: Times, ns.

    Returns:
        One row number per point; -1 where no span contains it.
    """
    query = Spans.of(points, points, key)
    axis = _Axis.over(spans, query)
    start, end = axis.encode(spans)
    order = np.lexsort((-end, start))
    point, _ = axis.encode(query)
    begun = np.searchsorted(start[order], point, side="right")
    return np.append(order, -1)[_last_above(end[order], begun, point)]


@dataclass(frozen=True, slots=True)
class _Axis:
    """One int64 axis for all keys: codes are ordered by key, then time, and no two keys touch.

    Codes are shifted times, or, where those would not fit, the ranks of the times that occur.
    Codes are therefore compared, never measured.
    """

    stride: int
    origin: int = 0
    keys: Ints | None = None
    times: Ints | None = None

    @classmethod
    def over(cls, *parts: Spans) -> _Axis:
        """An axis on which all ``parts`` have a place."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return cls(stride=1)
        origin = min(int(part.start.min()) for part in filled)
        stride = max(int(part.end.max()) for part in filled) - origin + 1
        if (max(int(part.key.max()) for part in filled) + 1) * stride < _HIGHEST:
            return cls(stride, origin)
        keys = np.unique(np.concatenate([part.key for part in filled]))
        times = np.unique(np.concatenate([time for part in filled for time in (part.start, part.end)]))
        return cls(len(times), 0, keys, times)

    def encode(self, spans: Spans) -> tuple[Ints, Ints]:
        """Codes of the starts and of the ends."""
        if self.keys is None or self.times is None:
            shift = spans.key * self.stride - self.origin
            return spans.start + shift, spans.end + shift
        shift = np.searchsorted(self.keys, spans.key) * self.stride
        start, end = (np.searchsorted(self.times, time) for time in (spans.start, spans.end))
        return start + shift, end + shift

    def decode(self, start: Ints, end: Ints) -> Spans:
        """Spans of codes; both codes of one span belong to one key."""
        key = start // self.stride
        shift = key * self.stride - self.origin
        if self.keys is None or self.times is None:
            return Spans(key, start - shift, end - shift)
        return Spans(self.keys[key], self.times[start - shift], self.times[end - shift])


def _ints(values: npt.ArrayLike) -> Ints:
    array = np.asarray(values)
    # an empty list is float64 to numpy; anything else that is not surely int64 is refused
    return array.astype(np.int64, casting="safe" if array.size else "unsafe", copy=False)


def _merged(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Union of codes in any order: disjoint, sorted, without empty ones."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    fresh = np.flatnonzero(start[1:] > reach[:-1]) + 1
    start = np.append(start[:1], start[fresh])
    end = np.append(reach[fresh - 1], reach[-1:])
    solid = end > start
    return start[solid], end[solid]


def _meetings(start: Ints, end: Ints, piece_start: Ints, piece_end: Ints) -> tuple[Ints, Ints]:
    """Every pair of a span and a disjoint, sorted piece that share time, by span and then by piece."""
    first = np.searchsorted(piece_end, start, side="right")
    stop = np.where(end > start, np.searchsorted(piece_start, end), first)
    count = stop - first
    span = np.repeat(np.arange(len(start)), count)
    ahead = np.cumsum(count) - count
    return span, np.arange(len(span)) + (first - ahead)[span]


def _last_above(values: Ints, count: Ints, bar: Ints) -> Ints:
    """Index of the last of the first ``count`` values that exceeds ``bar``, per row; -1 if none does.

    Climbs a tree of block maxima (level k: blocks of 2**k values), asking each time the last block that
    the count holds whole, until one has a hit; then descends in that block, right half first.
    """
    levels = [values]
    while len(levels[-1]) > 1:
        levels.append(np.maximum(levels[-1][:-1:2], levels[-1][1::2]))
    node, height = count.copy(), np.full(len(count), -1)
    open_rows = np.arange(len(count)) if len(values) else np.empty(0, np.int64)
    for level, top in enumerate(levels):
        last = node[open_rows] - 1
        hit = (last >= 0) & (top[last] > bar[open_rows])
        height[open_rows[hit]], node[open_rows[hit]] = level, last[hit]
        open_rows = open_rows[~hit]
        node[open_rows] >>= 1
    for level in range(len(levels) - 2, -1, -1):
        rows = np.flatnonzero(height > level)
        right = 2 * node[rows] + 1
        node[rows] = right - (levels[level][right] <= bar[rows])
    return np.where(height >= 0, node, -1)
