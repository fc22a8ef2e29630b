"""Show who made whom wait, what it cost, and why they were late.

Of every exchange the last rank to arrive takes the blame for the exposed waiting of the others; a tie, or a
lead within the clock's residual, blames nobody. One row per rank, or per grain of --by (rank, victim, step,
axis, collective, layer, phase); --by victim gives the matrix of who waited for whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from traceview.commands._options import Request
    from traceview.reports.layout import Block
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview stragglers traces/ep64/
  traceview stragglers traces/ep64/ --by layer,phase -f csv
  traceview stragglers traces/ep64/ --fail-on 'persistent_ratio>0.5'
"""
DEFAULT_GRAIN = ("rank",)


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def stragglers(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.stragglers import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = request.by or DEFAULT_GRAIN
    frames = [api.analyze(run, ANALYSIS.name, by=by, steps=request.steps).frame for run in runs]
    rows = _traces.tagged(frames, runs)
    answer = _output.Answer(
        command=ANALYSIS.name,
        blocks=lambda: _blocks(runs, frames, request),
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)


def _blocks(runs: Sequence[Run], frames: Sequence[pl.DataFrame], request: Request) -> list[Block]:
    from traceview.reports import stragglers as report
    from traceview.reports.about import About
    from traceview.reports.notices import notices

    every_notice = request.verbosity > 0
    return [
        block
        for run, rows in zip(runs, frames, strict=True)
        for block in report.page(
            About.of(run), rows, _matrix(run, request), notices(run.diagnostics), every_notice=every_notice
        )
    ]


def _matrix(run: Run, request: Request) -> pl.DataFrame | None:
    """The run's `stragglers` by victim, if the page shows ranks and they are few."""
    from traceview import api
    from traceview.reports.stragglers import MATRIX_RANKS

    if (request.by or DEFAULT_GRAIN) != DEFAULT_GRAIN or len(run.ranks) > MATRIX_RANKS:
        return None
    return api.analyze(run, "stragglers", by=("victim",), steps=request.steps).frame
