"""Show what of its speed a rank retains as the job grows, and who owns the loss.

Runs of two or more sizes, one folder each: tokens/s/rank against the smallest job, the efficiency of each
run as a product of factors, and the loss per step by owner, as rows that add up exactly. Tokens per step are
taken from --tokens-per-step or --tokens-per-rank; without them the work of a rank has to be the same in all
runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.commands._options import Request
    from traceview.comparisons.scaling import Scaling
    from traceview.reports.layout import Block
    from traceview.run import Run

    PerRun = tuple[tuple[str | None, int], ...]

EXAMPLES = """\b
Examples:
  traceview scaling traces/256/ traces/1024/
  traceview scaling traces/* --tokens-per-rank 16384
  traceview scaling traces/* --tokens-per-step 256=4194304 --tokens-per-step 1024=16777216
  traceview scaling traces/* --fail-on 'retention<0.95'
"""


def _per_run(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> PerRun:
    """``RUN=NUMBER`` or ``NUMBER``, as often as it was given, as pairs; without a run the name is None."""
    pairs: list[tuple[str | None, int]] = []
    for value in values:
        if not (match := re.fullmatch(r"(?:(.+)=)?0*([1-9]\d{0,17})", value)):
            message = f"'{value}' is neither a positive number nor RUN=NUMBER."
            raise click.BadParameter(message)
        pairs.append((match[1], int(match[2])))
    return tuple(pairs)


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(_options.READING, _options.CHECKING, _options.OUTPUT, _options.REPORTING)
@click.option(
    "--tokens-per-step",
    callback=_per_run,
    multiple=True,
    metavar="[RUN=]N",
    help="Tokens that the whole job trains on in a step: of every run, or of one.",
)
@click.option(
    "--tokens-per-rank",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens per rank and step, where that is the same in all runs.",
)
@click.option(
    "--experts",
    callback=_per_run,
    multiple=True,
    metavar="[RUN=]N",
    help="Routed experts of the model: of every run, or of one.",
)
@click.option("--additive", is_flag=True, help="Show what each factor loses of the time, not the factor.")
def scaling(
    request: Request,
    *,
    tokens_per_step: PerRun,
    tokens_per_rank: int | None,
    experts: PerRun,
    additive: bool,
) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.commands import _output, _traces
    from traceview.comparisons.scaling import SIZES
    from traceview.reports.about import About

    for condition in request.fail_on:
        condition.check(SIZES)
    if tokens_per_step and tokens_per_rank:
        message = "give --tokens-per-step or --tokens-per-rank, not both."
        raise click.UsageError(message)
    runs = _traces.load(request)
    tokens = _by_name(tokens_per_step, runs)
    if tokens_per_rank:
        tokens = {run.name: tokens_per_rank * (run.world_size or len(run.ranks)) for run in runs}
    found = api.scaling(runs, tokens_per_step=tokens, experts=_by_name(experts, runs), steps=request.steps)
    answer = _output.Answer(
        command="scaling",
        blocks=lambda: _blocks(found, runs, request, additive=additive),
        main=found.sizes,
        tables={
            "rows": found.sizes,
            "losses": found.losses,
            "axes": found.axes,
            "efficiency": found.efficiency,
        },
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, found.sizes)


def _by_name(pairs: PerRun, runs: Sequence[Run]) -> Mapping[str, int]:
    """Numbers by name of the run; a run's own goes before that of all."""
    of_all = {run.name: number for name, number in pairs if name is None for run in runs}
    return of_all | {name: number for name, number in pairs if name is not None}


def _blocks(found: Scaling, runs: Sequence[Run], request: Request, *, additive: bool) -> list[Block]:
    from traceview.reports.notices import notices
    from traceview.reports.scaling import page

    noticed = {run.name: tuple(notices(run.diagnostics)) for run in runs}
    return page(found, noticed, additive=additive, every_notice=request.verbosity > 0)
