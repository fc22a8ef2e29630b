"""How the process of a rank numbers itself, its threads and its calls, whichever profiler writes it down."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from traceview.synth.timeline import HostSpan, Timeline


def process_id(rank: int) -> int:
    """Number of the process; another one on every rank, as in real runs."""
    return 2_326_506 + 631 * rank


def thread_ids(rank: int) -> dict[str, int]:
    """Numbers of its threads by name."""
    main = process_id(rank)
    return {"main": main, "autograd": main + 512}


def correlations(timeline: Timeline, rank: int) -> dict[int, int]:
    """Correlation ids of calls by their row; a launch that was not recorded has its number all the same."""
    return numbered(enumerate(timeline.spans), ("call",), first=12_000 + 7 * rank)


def numbered(spans: Iterable[tuple[int, HostSpan]], kinds: Sequence[str], *, first: int) -> dict[int, int]:
    """Running numbers of the spans of some kinds, by their row."""
    numbers = count(first)
    return {row: next(numbers) for row, span in spans if span.kind in kinds}
