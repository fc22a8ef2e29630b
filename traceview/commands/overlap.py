"""Show which communication is hidden, and which is exposed.

One row per axis, collective and role, or per grain of --by. "Exposed alone" is exposed time in which
nothing else communicates; moments shared by several kinds are the row "several", so the column adds up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.commands._options import Request
    from traceview.reports.layout import Block
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview overlap traces/ep64/ --by rank,axis
  traceview overlap traces/ep64/ -f json --fail-on 'overlap_ratio<0.8'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def overlap(request: Request) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.overlap import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = _questions.overlap_grain(request)
    rows = _traces.tagged([api.overlap(run, by=by, steps=request.steps).frame for run in runs], runs)
    answer = _output.Answer(
        command="overlap",
        blocks=lambda: _blocks(runs, request),
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)


def _blocks(runs: Sequence[Run], request: Request) -> list[Block]:
    from traceview.commands._questions import summarized
    from traceview.reports import text

    found = [summarized(run, request) for run in runs]
    return [block for one in found for block in text.overlap(one, every_notice=request.verbosity > 0)]
