"""One bad item costs one item: an error is an outcome, a killed worker is found."""

from __future__ import annotations

import os
import signal

import pytest

from traceview.errors import TraceViewError
from traceview.jobs import WorkerLostError, run_jobs


def double(item: int) -> int:
    return 2 * item


def refuse_three(item: int) -> int:
    if item == 3:
        message = "three"
        raise TraceViewError(message)
    return item


def die_on_three(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def crash(item: int) -> int:
    raise ZeroDivisionError(item)


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_stand_in_the_order_of_the_items(workers: int) -> None:
    seen: list[tuple[int, int]] = []
    outcomes = run_jobs(
        double, range(5), workers=workers, progress=lambda done, total, _: seen.append((done, total))
    )
    assert outcomes == [0, 2, 4, 6, 8]
    assert seen == [(n, 5) for n in range(1, 6)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refused_item_is_an_outcome_and_the_rest_goes_on(workers: int) -> None:
    outcomes = run_jobs(refuse_three, range(5), workers=workers)
    assert [o for o in outcomes if not isinstance(o, TraceViewError)] == [0, 1, 2, 4]
    assert str(outcomes[3]) == "three"


def test_a_killed_worker_costs_its_own_item_only() -> None:
    outcomes = run_jobs(die_on_three, range(6), workers=2)
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [0, 1, 2, 4, 5]
    assert isinstance(outcomes[3], WorkerLostError)
    assert "'3'" in str(outcomes[3])


def test_a_bug_is_not_an_outcome() -> None:
    with pytest.raises(ZeroDivisionError):
        run_jobs(crash, [1], workers=1)
