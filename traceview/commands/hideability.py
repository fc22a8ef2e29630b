"""Show which communication overlap could hide, and which it never can.

One row per axis, collective and role, or per grain of --by. "Compute beside it" is compute between the moment
an exchange could start and the first kernel that waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request
    from traceview.reports.layout import Block

EXAMPLES = """\b
Examples:
  traceview hideability traces/ep64/ --by axis,role,phase,layer
  traceview hideability traces/ep64/ -f json --fail-on 'unhideable_count>0'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def hideability(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.hideability import ANALYSIS, KIND
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About
    from traceview.reports.hideability import page
    from traceview.reports.notices import notices

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = request.by or KIND
    frames = [api.analyze(run, ANALYSIS.name, by=by, steps=request.steps).frame for run in runs]
    rows = _traces.tagged(frames, runs)

    def blocks() -> list[Block]:
        every = request.verbosity > 0
        return [
            block
            for run, frame in zip(runs, frames, strict=True)
            for block in page(About.of(run), frame, tuple(notices(run.diagnostics)), every_notice=every)
        ]

    answer = _output.Answer(
        command=ANALYSIS.name,
        blocks=blocks,
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)
