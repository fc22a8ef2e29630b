"""What `summary` and `overlap` ask of a run, and in which grain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import polars as pl

    from traceview.api import Result
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
    from traceview.reports import summary
    from traceview.reports.findings import Evidence

    known = registry.analyses()
    check_grains(request.by, [*known["overlap"].grains, *known["breakdown"].grains])
    kind_grain = overlap_grain(request)
    questions = [
        ("breakdown", ("rank", "step")),
        ("overlap", kind_grain),
        ("overlap", DEFAULT_KIND),
        ("collectives", DEFAULT_KIND),
        ("stragglers", ("rank",)),
        ("experts", ("layer",)),
    ]
    windows, collectives, kinds, latency, blame, loads = api.analyze_all(run, questions, steps=request.steps)
    return summary.summarize(
        run,
        windows=windows.frame,
        breakdown=_coarser(windows, breakdown_grain(request)),
        collectives=collectives.frame,
        evidence=Evidence(kinds.frame, latency.frame, blame.frame, loads.frame),
    )


DEFAULT_KIND = ("axis", "collective", "role")
"""The grain in which communication is shown unless another is asked for."""

_SPANS = ("rank", "step")


def breakdown_grain(request: Request) -> tuple[str, ...]:
    """Grain of the breakdown: those of ``--by`` that are ranks or steps, or ranks."""
    return tuple(grain for grain in request.by if grain in _SPANS) or ("rank",)


def overlap_grain(request: Request) -> tuple[str, ...]:
    """Grain of the communication table: ``--by``, with `DEFAULT_KIND` if that names no kind."""
    kinds = tuple(grain for grain in request.by if grain not in _SPANS)
    return request.by if kinds else (*request.by, *DEFAULT_KIND)


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


def _coarser(result: Result, by: tuple[str, ...]) -> pl.DataFrame:
    """``result`` in a coarser grain, without looking at the traces again."""
    from traceview.contracts import Options

    analysis = result.analysis
    partials = analysis.partial.conform(result.frame)
    options = Options(steps=result.options.steps, by=by)
    return analysis.result.conform(analysis.reduce(partials, options))
