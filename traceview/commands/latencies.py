"""Show how the durations of exchanges are spread.

Quantiles per collective, role and phase, or per grain of --by (rank, step, layer, phase, role, axis,
collective); CSV and JSON have a row for each of 103 quantiles. Durations include waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview latencies traces/ep64/
  traceview latencies traces/ep64/ --by role,layer -f csv
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def latencies(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.latencies import ANALYSIS, DEFAULT_GRAIN
    from traceview.commands import _question
    from traceview.reports.latencies import page

    _question.answer(request, ANALYSIS, lambda _: page, by=DEFAULT_GRAIN)
