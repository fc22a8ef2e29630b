"""Show what collectives cost: waiting for the last rank, or moving bytes.

One row per axis, collective and role, or per grain of --by (rank, step, layer, phase, role, axis, group,
size, collective, kind). "Wait" is the time until the last rank arrived; GB/s is the bus bandwidth of the
transfer alone, beside what links or published measurements allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview collectives traces/ep64/ --by axis,kind,size
  traceview collectives traces/ep64/ -f csv --by rank,kind
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def collectives(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.collectives import ANALYSIS, DEFAULT_GRAIN
    from traceview.commands import _question
    from traceview.reports.alltoall import page

    _question.answer(request, ANALYSIS, lambda _: page, by=DEFAULT_GRAIN)
