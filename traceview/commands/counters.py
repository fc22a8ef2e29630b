"""Show what the trace's counters read: memory, SMs, DRAM, NVLink, network cards.

One row per metric, or per grain of --by (rank, device, step, state), weighted by time. Below it, the mean
while compute ran, while communication was exposed and while the device idled.
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
  traceview counters traces/ep64/ --by rank
  traceview counters traces/ep64/ --by step,state -f csv
  traceview counters traces/ep64/ --fail-on 'sampled_ratio<0.9'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def counters(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.counters import ANALYSIS
    from traceview.commands import _question

    _question.answer(request, ANALYSIS, lambda run: _page(run, request), by=("metric",))


def _page(run: Run, request: Request) -> Page:
    """The page, which also shows what the counters read in each state of the device."""
    from functools import partial

    from traceview import api
    from traceview.reports.counters import page

    return partial(page, states=api.analyze(run, "counters", by=("state",), steps=request.steps).frame)
