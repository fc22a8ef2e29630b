"""Show what overlap costs: kernels under communication against the same kernels alone.

One row per kernel category, or per grain of --by (rank, step, category, kernel, phase, module). Hidden
communication less the excess of the kernels that hide it is what overlap really wins.
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
  traceview interference traces/ep64/ --by rank,step
  traceview interference traces/ep64/ --by kernel,phase -f csv
  traceview interference traces/ep64/ --fail-on 'slowdown>1.3'
"""

DEFAULT_GRAIN = ("category",)


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def interference(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.interference import ANALYSIS
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
    from traceview import api
    from traceview.reports.about import About
    from traceview.reports.interference import page
    from traceview.reports.notices import notices

    blocks: list[Block] = []
    for run, rows in zip(runs, frames, strict=True):
        steps = api.analyze(run, "interference", by=("step",), steps=request.steps).frame
        found = tuple(notices(run.diagnostics))
        blocks += page(About.of(run), rows, steps, found, every_notice=request.verbosity > 0)
    return blocks
