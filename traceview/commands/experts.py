"""Show how evenly tokens spread over the ranks that hold the experts, and what it costs.

Loads come from the best evidence all ranks of a group have: split lists, bytes, shapes of grouped GEMMs, or
their duration. One row per layer, or per grain of --by: layer, step, group, rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview experts traces/ep64/
  traceview experts traces/ep64/ --by layer,rank --fail-on 'max_over_mean>1.5'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def experts(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.experts import ANALYSIS
    from traceview.commands import _question
    from traceview.reports.experts import page

    _question.answer(request, ANALYSIS, lambda _: page, by=("layer",))
