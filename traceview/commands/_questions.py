"""What `summary` and `overlap` ask of a run, and in which grain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from traceview.commands._options import Request
    from traceview.reports.summary import Summary
    from traceview.run import Run


def summarized(run: Run, request: Request) -> Summary:
    """``run`` summed up in the grains asked for.

    The breakdown takes the grains it has (rank, step), the communication table takes all; either falls
    back to its own where it is given none.

    Raises:
        UsageError: A grain is unknown to both.
    """
    from traceview import api, registry

    known = registry.analyses()
    check_grains(request.by, [*known["overlap"].grains, *known["breakdown"].grains])
    return api.summary(run, by=request.by, steps=request.steps)


def overlap_grain(request: Request) -> tuple[str, ...]:
    """Grain of the communication table; see `reports.summary.kind_grain`."""
    from traceview.reports import summary

    return summary.kind_grain(request.by)


def check_grains(by: Sequence[str], known: Collection[str]) -> None:
    """Makes sure every grain is known, before anything is read.

    Raises:
        UsageError: One is not.
    """
    from traceview.errors import UsageError

    if unknown := [grain for grain in by if grain not in known]:
        choice = ", ".join(dict.fromkeys(known))
        message = f"--by: cannot show by {', '.join(unknown)}; choose from: {choice}."
        raise UsageError(message)
