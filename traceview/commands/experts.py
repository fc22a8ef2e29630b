"""Show how evenly tokens spread over the ranks that hold the experts, and what it costs.

Loads come from the best evidence all ranks of a group have: split lists, bytes, shapes of grouped GEMMs, or
their duration. One row per layer, or per grain of --by: layer, step, group, rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview experts traces/ep64/
  traceview experts traces/ep64/ --by layer,rank --fail-on 'max_over_mean>1.5'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def experts(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.experts import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports import experts as pages
    from traceview.reports.about import About
    from traceview.reports.notices import notices

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = request.by or ("layer",)
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
