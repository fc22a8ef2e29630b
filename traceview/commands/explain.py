"""Explain a metric: definition, formula, evidence, pitfalls, source.

METRIC is a column of any result (exposed_comm_ns), or what people call it (mfu, busbw, "launch-starved").
Without one, the metrics are listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview explain exposed_comm_ns
  traceview explain busbw
  traceview explain mfu -f json
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.argument("metric", required=False)
@_options.request(_options.OUTPUT, _options.REPORTING)
def explain(request: Request, *, metric: str | None) -> None:
    """See the module's docstring."""
    from traceview import metrics
    from traceview.commands import _output
    from traceview.reports import explain as explanations
    from traceview.schema import DIAGNOSTICS

    found = explanations.explain(metric) if metric else None
    if found is None:
        rows, known, blocks = explanations.columns(), metrics.metrics(), explanations.overview
    else:
        rows, known, blocks = found.columns, (found.metric,) if found.metric else (), found.blocks
    table = explanations.table(known)
    answer = _output.Answer(
        command="explain",
        blocks=blocks,
        main=rows,
        tables={"rows": rows, "metrics": table},
        runs=(),
        diagnostics=DIAGNOSTICS.empty(),
    )
    _output.deliver(answer, request)
