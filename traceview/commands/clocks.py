"""Show how the clocks of the hosts differ, and how exactly that is known.

One row per rank: the correction that puts all ranks on one clock, fitted to the ends of their collectives.
What the fit leaves over is the ± of every figure that compares ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview clocks traces/ep64/
  traceview clocks traces/ep64/ --fail-on 'residual_p95_ns>100000'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def clocks(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.clocks import ANALYSIS
    from traceview.commands import _question
    from traceview.reports.clocks import page

    _question.answer(request, ANALYSIS, lambda _: page, by=("rank",))
