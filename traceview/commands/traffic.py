"""Show who sends how many bytes to whom.

One row per pair of ranks, or per grain of --by (pair, rank, peer, node, step, axis, role). Of all-to-alls, by
their split lists, and of transfers to one peer; other collectives leave the routes to the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview traffic traces/ep64/
  traceview traffic traces/ep64/ --by node -f csv
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def traffic(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.traffic import ANALYSIS, DEFAULT_GRAIN
    from traceview.commands import _question
    from traceview.reports.traffic import page

    _question.answer(request, ANALYSIS, lambda _: page, by=DEFAULT_GRAIN)
