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
    from traceview.commands._options import Request
    from traceview.commands._question import Page
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
    from traceview.analyzers.stragglers import ANALYSIS
    from traceview.commands import _question

    _question.answer(request, ANALYSIS, lambda run: _page(run, request), by=DEFAULT_GRAIN)


def _page(run: Run, request: Request) -> Page:
    """The page; with the matrix of who waited for whom, if it shows ranks and they are few."""
    from functools import partial

    from traceview import api
    from traceview.reports.stragglers import MATRIX_RANKS, page

    if (request.by or DEFAULT_GRAIN) != DEFAULT_GRAIN or len(run.ranks) > MATRIX_RANKS:
        return page
    matrix = api.analyze(run, "stragglers", by=("victim",), steps=request.steps).frame
    return partial(page, matrix=matrix)
