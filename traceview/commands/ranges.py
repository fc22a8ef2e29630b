"""Show what annotations cost on the device: the work launched inside them, by name.

One row per annotation name, or per grain of --by (rank, step, domain, name, kind, layer, phase). Device time
is the union of the work launched inside; own time leaves out what a nested annotation holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview ranges traces/ep64/
  traceview ranges traces/ep64/ --by name,phase -f csv
  traceview ranges report.sqlite --by domain,name --steps all
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def ranges(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.ranges import ANALYSIS
    from traceview.commands import _question
    from traceview.reports.ranges import page

    _question.answer(request, ANALYSIS, lambda _: page, by=("name",))
