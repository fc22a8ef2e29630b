"""Show which communication overlap could hide, and which it never can.

One row per axis, collective and role, or per grain of --by. "Compute beside it" is compute between the moment
an exchange could start and the first kernel that waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview hideability traces/ep64/ --by axis,role,phase,layer
  traceview hideability traces/ep64/ -f json --fail-on 'unhideable_count>0'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def hideability(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.hideability import ANALYSIS, KIND
    from traceview.commands import _question
    from traceview.reports.hideability import page

    _question.answer(request, ANALYSIS, lambda _: page, by=KIND)
