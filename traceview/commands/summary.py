"""Show where the step goes, and what communication costs.

Per rank: compute, exposed communication, exposed copies and idle time, which add up to the step; then
communication by kind, warnings about the data, and a verdict.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.commands._options import Request
    from traceview.commands._output import Answer
    from traceview.reports.layout import Block
    from traceview.reports.summary import Summary
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview summary traces/ep64/
  traceview summary 'traces/rank*.json.gz' --steps 5:10 --by step -f csv
  traceview summary traces/ep64/ --fail-on 'exposed_comm_ratio>0.2'
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def summary(request: Request) -> None:
    """See the module's docstring."""
    from traceview.analyzers import breakdown, overlap
    from traceview.commands import _output, _questions, _traces

    for condition in request.fail_on:
        condition.check(breakdown.RESULT)
    _questions.check_grains(request.by, overlap.GRAINS)
    runs = _traces.load(request)
    found = [_questions.summarized(run, request) for run in runs]
    answer = _answer(runs, found, request)
    _output.deliver(answer, request)
    _traces.leave(request, runs, answer.main)


def _answer(runs: Sequence[Run], found: Sequence[Summary], request: Request) -> Answer:
    import polars as pl

    from traceview.commands._output import Answer
    from traceview.commands._traces import diagnostics, tagged
    from traceview.reports.findings import table
    from traceview.reports.summary import STEP_TIMES

    breakdown = tagged([one.breakdown for one in found], runs)
    times = [
        pl.DataFrame([asdict(one.step_time)] if one.step_time else [], STEP_TIMES.schema()) for one in found
    ]
    return Answer(
        command="summary",
        blocks=lambda: _blocks(found, request),
        main=breakdown,
        tables={
            "breakdown": breakdown,
            "collectives": tagged([one.collectives for one in found], runs),
            "findings": tagged([table(list(one.findings)) for one in found], runs),
            "steps": tagged([one.steps for one in found], runs),
            "step_time": tagged(times, runs),
            "mfu": tagged([one.utilization.frame for one in found], runs),
        },
        runs=[_run(one) for one in found],
        diagnostics=diagnostics(runs),
    )


def _run(found: Summary) -> dict[str, Any]:
    return found.about.as_dict() | {
        "steps_used": found.step_use.used,
        "steps_left_out": [{"step": step, "reason": reason} for step, reason in found.step_use.left_out],
    }


def _blocks(found: Sequence[Summary], request: Request) -> list[Block]:
    from traceview.reports import text

    return [block for one in found for block in text.summary(one, every_notice=request.verbosity > 0)]
