"""Show why devices idle: late launches, waits of the host, dependencies, or nothing recorded.

One row per cause, or per grain of --by (rank, step, cause, sync, phase, layer). Below it where the host waits
for the device, such as for the token counts of a router, and what each of those waits costs.
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
  traceview idle traces/ep64/
  traceview idle traces/ep64/ --by rank,step,cause -f csv
  traceview idle traces/ep64/ --by sync
  traceview idle traces/ep64/ --by rank --fail-on 'host_late_ratio>0.05'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def idle(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.idle import ANALYSIS
    from traceview.commands import _question

    _question.answer(request, ANALYSIS, lambda run: _page(run, request), by=("cause",))


def _page(run: Run, request: Request) -> Page:
    """The page, which also shows the causes, the waits and how far the hosts are ahead."""
    from functools import partial

    from traceview import api
    from traceview.reports.idle import Evidence, page

    asked = [("idle", ()), ("idle", ("step", "cause", "sync"))]
    total, parts = (answer.frame for answer in api.analyze_all(run, asked, steps=request.steps))
    return partial(page, evidence=Evidence.of(total, parts))
