"""Show which kernels take the time, how near to the hardware they run, and what MoE adds to them.

Counts and durations per kernel category, or per grain of --by (rank, step, category, name, layer, phase,
module, range, moe_part), over all ranks; rates of matrix products against peak and roofline; SMs taken by
communication; copies. --by range,name shows kernels by the annotation around their launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.commands._options import Request
    from traceview.reports.kernels import Findings
    from traceview.reports.layout import Block
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview kernels traces/ep64/ --by name
  traceview kernels traces/ep64/ --by range,name -f csv
  traceview kernels traces/ep64/ --by moe_part --fail-on 'window_ratio>0.9'
"""

QUESTIONS = {
    "products": ("roofline", ("operator", "precision", "name")),
    "moe_parts": ("kernels", ("moe_part",)),
    "moe": ("kernels", ("is_moe",)),
    "sm_share": ("sm_share", ("axis", "category")),
    "copies": ("copies", ("kind",)),
}
"""What is asked besides the kernels themselves, in which grain; named as in `reports.kernels.Findings`."""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def kernels(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers.kernels import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    found = [_findings(run, request) for run in runs]
    tables = {
        name: _traces.tagged([getattr(one, name) for one in found], runs) for name in ("rows", *QUESTIONS)
    }
    answer = _output.Answer(
        command="kernels",
        blocks=lambda: _blocks(runs, found, request),
        main=tables["rows"],
        tables=tables,
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, tables["rows"])


def _findings(run: Run, request: Request) -> Findings:
    from traceview import api
    from traceview.reports.kernels import Findings

    asked = {"rows": ("kernels", request.by or ("category",)), **QUESTIONS}
    answers = api.analyze_all(run, list(asked.values()), steps=request.steps)
    return Findings(**{name: answer.frame for name, answer in zip(asked, answers, strict=True)})


def _blocks(runs: Sequence[Run], found: Sequence[Findings], request: Request) -> list[Block]:
    from traceview.reports.about import About
    from traceview.reports.kernels import page
    from traceview.reports.notices import notices

    return [
        block
        for run, one in zip(runs, found, strict=True)
        for block in page(
            About.of(run), one, tuple(notices(run.diagnostics)), every_notice=request.verbosity > 0
        )
    ]
