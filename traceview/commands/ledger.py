"""Show what every nanosecond of the step goes into.

Compute, communication by axis, role and phase, copies and idle time, as rows that add up exactly. Exposed
communication is split into waiting for the last rank and transferring; hidden time stands beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview ledger traces/ep64/
  traceview ledger traces/ep64/ --by step,phase -f csv
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def ledger(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.ledger import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports import ledger as pages
    from traceview.reports.about import About
    from traceview.reports.notices import notices

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = request.by
    frames = [api.analyze(run, ANALYSIS.name, by=by, steps=request.steps).frame for run in runs]
    rows = _traces.tagged(frames, runs)
    answer = _output.Answer(
        command=ANALYSIS.name,
        blocks=lambda: [
            block
            for run, frame in zip(runs, frames, strict=True)
            for block in pages.page(
                About.of(run), frame, notices(run.diagnostics), every_notice=request.verbosity > 0
            )
        ],
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)
