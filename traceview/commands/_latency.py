"""What `alltoall` and `collectives` do with their analysis: ask it of every run, and show the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from traceview.commands._options import Request
    from traceview.contracts import Analysis
    from traceview.reports.layout import Block
    from traceview.run import Run


def answer(request: Request, analysis: Analysis, *, by: Sequence[str]) -> None:
    """Answers ``analysis`` in the grain ``by``."""
    from traceview import api
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(analysis.result)
    _questions.check_grains(request.by, analysis.grains)
    runs = _traces.load(request)
    frames = [api.analyze(run, analysis.name, by=by, steps=request.steps).frame for run in runs]
    rows = _traces.tagged(frames, runs)
    found = _output.Answer(
        command=analysis.name,
        blocks=lambda: _blocks(runs, frames, request),
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(found, request)
    _traces.leave(request, runs, rows)


def _blocks(runs: Sequence[Run], frames: Sequence[pl.DataFrame], request: Request) -> list[Block]:
    from traceview.reports import alltoall
    from traceview.reports.about import About
    from traceview.reports.notices import notices

    every_notice = request.verbosity > 0
    return [
        block
        for run, rows in zip(runs, frames, strict=True)
        for block in alltoall.page(About.of(run), rows, notices(run.diagnostics), every_notice=every_notice)
    ]
