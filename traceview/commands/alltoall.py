"""Show what all-to-alls cost: waiting for the last rank, or moving bytes.

One row per role and phase, or per grain of --by (rank, step, layer, phase, role, axis, group, size,
collective, kind). "Wait" is the time until the last rank arrived; GB/s is the bus bandwidth of the transfer
alone, beside what links or published measurements allow. Barriers of DeepEP and the like are "sync".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview alltoall traces/ep64/ --by layer,role
  traceview alltoall traces/ep64/ -f json --fail-on 'wait_ratio>0.5'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def alltoall(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.alltoall import ANALYSIS, DEFAULT_GRAIN
    from traceview.commands import _question
    from traceview.reports.alltoall import page

    _question.answer(request, ANALYSIS, lambda _: page, by=DEFAULT_GRAIN)
