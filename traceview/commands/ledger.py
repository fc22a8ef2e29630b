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
    from traceview.analyzers.ledger import ANALYSIS
    from traceview.commands import _question
    from traceview.reports.ledger import page

    _question.answer(request, ANALYSIS, lambda _: page, by=("kind",))
