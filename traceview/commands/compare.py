"""Compare two runs: did B beat A, where, and could it be chance.

Differences per rank and step of every part of the step, which add up to the difference of step time, then of
families of kernels, and which kernels are new or gone. Runs of different size, framework or profiler are
aligned by what work means, never by its order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._gate import Condition
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview compare traces/yesterday/ traces/today/
  traceview compare base/ new/ --gate 'delta_step_ratio<=0.02' --gate 'exposed_comm_ratio<=0.1'
  traceview compare run/ run/ --steps 5:10 --steps-b 10:15
  traceview compare base/ new/ --log-step-ms 412 398 -f json
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--by",
    multiple=True,
    callback=_options.as_names,
    metavar="A,B",
    help="What rows are told apart by beside axis and role: phase (the default), layer.",
)
@click.option(
    "--steps-b",
    callback=_options.as_steps,
    metavar="auto|all|5:10",
    help="Steps of B, where they are not those of A.",
)
@click.option(
    "--log-step-ms",
    nargs=2,
    type=click.FloatRange(min=0, min_open=True),
    metavar="A B",
    help="Step times of A and B without the profiler, from the training logs, in ms.",
)
@_options.request(_options.LOADING, _options.SELECTING, _options.GATING, _options.OUTPUT, _options.REPORTING)
def compare(  # noqa: PLR0913 - one argument per option
    request: Request,
    *,
    a: str,
    b: str,
    steps_b: str | range | None,
    log_step_ms: tuple[float, float] | None,
    gate: tuple[Condition, ...],
) -> None:
    """See the module's docstring."""
    import polars as pl

    from traceview import api
    from traceview.commands import _output, _questions, _traces
    from traceview.comparisons.compare import GRAINS, TOTALS
    from traceview.reports.about import About
    from traceview.reports.compare import page
    from traceview.reports.notices import notices

    for condition in gate:
        condition.check(TOTALS, "--gate")
    _questions.check_grains(request.by, GRAINS)
    request = replace(request, places=(a, b))
    before, after = _traces.load_pair(request)
    found = api.compare(
        before,
        after,
        by=request.by or ("phase",),
        steps=(request.steps, request.steps if steps_b is None else steps_b),
        log_step_ns=(log_step_ms[0] * 1e6, log_step_ms[1] * 1e6) if log_step_ms else (None, None),
    )
    abouts = (About.of(before), About.of(after))
    diagnostics = pl.concat(
        [_traces.diagnostics((before, after)), found.notes.select(pl.lit(None).alias("run"), pl.all())],
        how="vertical_relaxed",
    )
    answer = _output.Answer(
        command="compare",
        blocks=lambda: page(abouts, found, notices(diagnostics), every_notice=request.verbosity > 0),
        main=found.changes,
        tables={
            "totals": found.totals,
            "changes": found.changes,
            "kernels": found.kernels,
            "configuration": found.configuration,
        },
        runs=[about.as_dict() for about in abouts],
        diagnostics=diagnostics,
    )
    _output.deliver(answer, request)
    _traces.leave(request, (before, after), found.totals, gate=gate)
