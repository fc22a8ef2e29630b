"""Show which communication is hidden, and which is exposed.

One row per axis, collective and role, or per grain of --by. "Exposed alone" is exposed time in which
nothing else communicates; moments shared by several kinds are the row "several", so the column adds up.
--compat nsys adds what Nsight Systems' recipe says about the same kernels, which counts pairs.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from traceview.commands._options import Request
    from traceview.reports.layout import Block
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview overlap traces/ep64/ --by rank,axis
  traceview overlap traces/ep64/ -f json --fail-on 'overlap_ratio<0.8'
  traceview overlap report.sqlite --compat nsys
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.option(
    "--compat",
    type=click.Choice(["nsys"]),
    help="Add the figures of another tool: the recipe nccl_gpu_overlap_trace of Nsight Systems.",
)
@_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
def overlap(request: Request, *, compat: str | None) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.analyzers.overlap import ANALYSIS
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(ANALYSIS.result)
    _questions.check_grains(request.by, ANALYSIS.grains)
    runs = _traces.load(request)
    by = _questions.overlap_grain(request)
    rows = _traces.tagged([api.overlap(run, by=by, steps=request.steps).frame for run in runs], runs)
    pairs = [
        api.analyze(run, "nsys_overlap", by=_rank_grain(request), steps=request.steps).frame
        for run in (runs if compat else ())
    ]
    answer = _output.Answer(
        command="overlap",
        blocks=lambda: _blocks(runs, pairs, request),
        main=rows,
        tables={"rows": rows} | ({"nsys_overlap": _traces.tagged(pairs, runs)} if compat else {}),
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)


def _rank_grain(request: Request) -> tuple[str, ...]:
    """The part of ``--by`` that the recipe's figures have."""
    return tuple(grain for grain in request.by if grain == "rank")


def _blocks(runs: Sequence[Run], pairs: Sequence[pl.DataFrame], request: Request) -> list[Block]:
    from traceview.commands._questions import summarized
    from traceview.reports import nsys_overlap, text

    blocks: list[Block] = []
    for run, recipe in zip_longest(runs, pairs):
        *page, verdict = text.overlap(summarized(run, request), every_notice=request.verbosity > 0)
        blocks += [*page, *([] if recipe is None else nsys_overlap.blocks(recipe)), verdict]
    return blocks
