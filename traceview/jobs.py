"""One function over many items, in processes, where a crash costs one item and not the batch.

A worker that is killed breaks the whole `ProcessPoolExecutor`: nobody knows which item did it. The pool is
then rebuilt and the unfinished items run one at a time, so the guilty one is found and the others finish.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Protocol, TypeVar

from traceview import stages
from traceview.errors import TraceViewError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Progress(Protocol):
    """Told about each finished item."""

    def __call__(self, done: int, total: int, label: str, /) -> None:
        """``done`` of ``total`` items are finished; ``label`` is the latest."""


def silent(done: int, total: int, label: str, /) -> None:
    """Progress that nobody watches."""


class WorkerLostError(TraceViewError):
    """A worker process died on this item, most likely out of memory."""


def run_jobs(
    function: Callable[[Item], Outcome],
    items: Sequence[Item],
    *,
    workers: int,
    progress: Progress = silent,
) -> list[Outcome | TraceViewError]:
    """``function(item)`` for every item, in order; a `TraceViewError` stands where one was raised.

    Any other exception is a bug and propagates. ``function`` and the items must be picklable.
    """
    results: dict[int, Outcome | TraceViewError] = {}

    def note(index: int, outcome: Outcome | TraceViewError) -> None:
        results[index] = outcome
        progress(len(results), len(items), str(items[index]))

    if workers <= 1 or len(items) <= 1:
        for index, item in enumerate(items):
            note(index, _guarded(function, item))
        return [results[index] for index in range(len(items))]
    for width in (workers, 1):
        pending = [index for index in range(len(items)) if index not in results]
        for batch in [pending] if width > 1 else [[index] for index in pending]:
            for index, outcome in _in_pool(function, items, batch, width):
                note(index, outcome)
    for index in range(len(items)):
        if index not in results:
            note(
                index,
                WorkerLostError(f"the worker reading '{items[index]}' died, most likely out of memory."),
            )
    return [results[index] for index in range(len(items))]


def default_workers() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_pool(
    function: Callable[[Item], Outcome], items: Sequence[Item], batch: Sequence[int], width: int
) -> Iterator[tuple[int, Outcome | TraceViewError]]:
    """Outcomes of the items of ``batch`` that finish before the pool, if ever, breaks."""
    # never fork: a forked polars can deadlock
    context = multiprocessing.get_context("spawn")
    prepared = stages.enable if stages.enabled() else None
    with ProcessPoolExecutor(min(width, len(batch)) or 1, mp_context=context, initializer=prepared) as pool:
        futures: dict[Future[Outcome | TraceViewError], int] = {
            pool.submit(_guarded, function, items[index]): index for index in batch
        }
        for future in as_completed(futures):
            try:
                outcome = future.result()
            except BrokenProcessPool:
                continue
            yield futures[future], outcome


def _guarded(function: Callable[[Item], Outcome], item: Item) -> Outcome | TraceViewError:
    try:
        return function(item)
    except TraceViewError as error:
        return error
