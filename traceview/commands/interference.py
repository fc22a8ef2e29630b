"""Show what overlap costs: kernels under communication against the same kernels alone.

One row per kernel category, or per grain of --by (rank, step, category, kernel, phase, module). Hidden
communication less the excess of the kernels that hide it is what overlap really wins.
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
  traceview interference traces/ep64/ --by rank,step
  traceview interference traces/ep64/ --by kernel,phase -f csv
  traceview interference traces/ep64/ --fail-on 'slowdown>1.3'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def interference(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.interference import ANALYSIS
    from traceview.commands import _question

    _question.answer(request, ANALYSIS, lambda run: _page(run, request), by=("category",))


def _page(run: Run, request: Request) -> Page:
    """The page, which also shows what the steps win."""
    from functools import partial

    from traceview import api
    from traceview.reports.interference import page

    return partial(page, steps=api.analyze(run, "interference", by=("step",), steps=request.steps).frame)
