"""Show what lies in the traces, without analysing it.

Format, ranks, steps, streams, process groups and span; and what evidence is missing, with how to record
it the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview info traces/ep64/
  traceview info trace.json.gz -f json
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.OUTPUT, _options.REPORTING)
def info(request: Request) -> None:
    """See the module's docstring."""
    from traceview.commands import _output, _traces
    from traceview.reports import inventory, text

    runs = _traces.load(request)
    found = [inventory.take(run) for run in runs]
    rows = _traces.tagged([one.rows for one in found], runs)
    answer = _output.Answer(
        command="info",
        blocks=lambda: [
            block for one in found for block in text.inventory(one, every_notice=request.verbosity > 0)
        ],
        main=rows,
        tables={
            "rows": rows,
            "groups": _traces.tagged([one.groups for one in found], runs),
            "missing": _traces.tagged([one.gaps for one in found], runs),
        },
        runs=[one.about.as_dict() for one in found],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)
