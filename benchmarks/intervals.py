"""CPU time and memory of the interval algebra: ``python benchmarks/intervals.py [kernels]``.

Kernels of 8 ranks in file order (rank after rank, nearly sorted by start), a quarter of them
communication on a stream of their own. Neighbours on a shared machine slow everything down, so the
figure to compare is the ratio to the yardstick, an argsort of the same start times.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from traceview.intervals import Spans, busy_fraction, covered, exclusive, innermost, total, union

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = 8
EPOCH_NS = 1_760_000_000_000_000_000
BINS = 1200
ROUNDS = 3
LABELS = 6


def kernels(count: int) -> tuple[Spans, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """``count`` kernels of `RANKS` ranks in file order, and which of them communicate."""
    rng = np.random.default_rng(0)
    is_comm = rng.random(count) < 0.25
    key = np.repeat(np.arange(RANKS), -(-count // RANKS))[:count]
    duration = np.where(is_comm, rng.integers(2_000, 40_000, count), rng.integers(1_000, 8_000, count))
    # a file is written as buffers fill: starts run a little out of order
    start = EPOCH_NS + np.arange(count) * 5_000 + rng.integers(-20_000, 20_000, count)
    start -= key * (start[-1] - EPOCH_NS) // RANKS
    return Spans.of(start, start + duration, key), is_comm


def ranges(count: int, depth: int) -> Spans:
    """``count`` host ranges, in towers of ``depth`` nested ones."""
    tower, level = np.divmod(np.arange(count), depth)
    start = tower * 1_000_000 + level * 10_000
    return Spans.of(start, start + (depth - level) * 20_000)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of ``work``, best of `ROUNDS`."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def peak_mb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3  # Linux counts in KiB


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    spans, is_comm = kernels(count)
    points = np.random.default_rng(1).integers(0, 4_000_000_000, count // 10)
    host = ranges(count // 100, depth=30)
    windows = Spans.of(
        [spans.start[spans.key == rank].min() for rank in range(RANKS)],
        [spans.end[spans.key == rank].max() for rank in range(RANKS)],
        range(RANKS),
    )

    def overlap() -> object:
        compute = total(union(spans.take(~is_comm)), RANKS)
        comm = total(union(spans.take(is_comm)), RANKS)
        return compute, comm, compute + comm - total(union(spans), RANKS)

    def exposed() -> object:
        comm = spans.take(is_comm)
        return comm.durations() - covered(spans.take(~is_comm), comm)

    works: dict[str, Callable[[], object]] = {
        "yardstick: argsort of the starts": lambda: np.argsort(spans.start, kind="stable"),
        "overlap of unions": overlap,
        "exposed time of each comm kernel": exposed,
        f"busy fraction, {BINS} bins a rank": lambda: busy_fraction(spans, windows, BINS),
        f"exclusive, {LABELS} labels": lambda: exclusive(spans, np.arange(count) % LABELS, LABELS),
        f"innermost, {len(points):,} points": lambda: innermost(host, np.zeros(len(points), int), points),
    }
    print(f"{count:,} kernels, {RANKS} ranks; {peak_mb():,.0f} MB before the work")
    yardstick = None
    for name, work in works.items():
        seconds = cpu_seconds(work)
        yardstick = yardstick or seconds
        print(f"{name:36} {seconds:7.3f} CPU-s {seconds / yardstick:7.1f} x   peak {peak_mb():6,.0f} MB")


if __name__ == "__main__":
    main()
