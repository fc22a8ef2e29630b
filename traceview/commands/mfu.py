"""Show how much of the GPUs' peak a job reaches: tokens/s/GPU, TFLOP/s/GPU, MFU.

From the step time in the traces, the tokens of a step and the shape of the model; batch, model and GPU may
stand in run.toml beside the traces. Without a trace it is a calculator, for 4,096 tokens per sequence unless
--seq-len says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.commands._options import Request
    from traceview.reports.layout import Block
    from traceview.run import Run
    from traceview.terms import Asked
    from traceview.utilization import Utilization

EXAMPLES = """\b
Examples:
  traceview mfu traces/ep64/ --model deepseek-v3 --global-batch-size 15360 --seq-len 4096
  traceview mfu traces/ep64/ --fail-on 'mfu_ratio<0.3' --peak fp8
  traceview mfu --model deepseek-v3 --tokens-per-second-per-gpu 6338 --gpu GB300
"""

_COUNT, _POSITIVE = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)
_PLACES = click.argument("places", metavar="[TRACE...]", nargs=-1)
_STEPS, _FAIL_ON = _options.ASKING[0], _options.ASKING[-1]
_JOB = (
    click.option("--model", metavar="NAME|FILE", help="Known model, TOML file of your own, or config.json."),
    click.option("--seq-len", type=_COUNT, metavar="N", help="Tokens per sequence."),
    click.option(
        "--packed-len",
        type=_POSITIVE,
        metavar="X",
        help="Length that attention sees in packed documents: sum(len^2) / sum(len).",
    ),
    click.option("--global-batch-size", type=_COUNT, metavar="N", help="Sequences of all ranks in one step."),
    click.option("--tokens-per-step", type=_COUNT, metavar="N", help="Tokens of all ranks in one step."),
    click.option("--mtp", "mtp_layers", type=click.IntRange(min=0), metavar="N", help="Layers of MTP."),
    click.option("--gpu", metavar="NAME", help="GPU, where the traces do not name it."),
    click.option("--gpus", type=_COUNT, metavar="N", help="GPUs of the job, where the traces do not say."),
)
_COUNTING = (
    click.option(
        "--convention",
        type=click.Choice(["megatron", "torchtitan", "maxtext"]),
        default="megatron",
        show_default=True,
        help="Whose way of counting operations.",
    ),
    click.option("--causal/--no-causal", default=None, help="Count attention half, or in full."),
    click.option(
        "--peak",
        "precision",
        type=click.Choice(["bf16", "fp16", "fp8", "fp4"]),
        help="Only this peak. [default: all that are known]",
    ),
    click.option("--peak-set", metavar="NAME", help="Which published set of peaks, e.g. dgxc or ml-eng."),
)
_FIGURES = (
    click.option(
        "--tokens-per-second-per-gpu",
        type=_POSITIVE,
        metavar="X",
        help="Without a trace: throughput that is known.",
    ),
    click.option(
        "--tflops-per-gpu", type=_POSITIVE, metavar="X", help="Without a trace: the same in TFLOP/s."
    ),
)


@click.command(help=__doc__, epilog=EXAMPLES)
@_options.request(
    (_PLACES, *_JOB, *_COUNTING, *_FIGURES, _STEPS, _FAIL_ON),
    _options.READING[1:],
    _options.OUTPUT,
    _options.REPORTING,
)
def mfu(
    request: Request,
    *,
    tokens_per_second_per_gpu: float | None,
    tflops_per_gpu: float | None,
    **said: Any,  # noqa: ANN401 - options, each the field of `Asked` that it is named after
) -> None:
    """See the module's docstring."""
    from traceview.terms import Asked
    from traceview.utilization import RESULT

    given = [figure for figure in (tokens_per_second_per_gpu, tflops_per_gpu) if figure is not None]
    if len(given) != (0 if request.places else 1):
        message = (
            "give traces, or else one of --tokens-per-second-per-gpu and --tflops-per-gpu: a throughput is "
            "measured or known, not both."
        )
        raise click.UsageError(message)
    for condition in request.fail_on:
        condition.check(RESULT)
    asked = Asked.of(**said)
    if request.places:
        _measure(request, asked)
    else:
        _calculate(request, asked, tokens_per_second_per_gpu, tflops_per_gpu)


def _measure(request: Request, asked: Asked) -> None:
    """The answer from traces."""
    from dataclasses import replace

    import polars as pl

    from traceview import api
    from traceview.commands import _output, _traces
    from traceview.reports.about import About

    loaded = _traces.load(request)
    found = [api.utilization_of(run, asked, steps=request.steps) for run in loaded]
    runs = [
        replace(run, notes=pl.concat([run.notes, one.notes])) for run, one in zip(loaded, found, strict=True)
    ]
    rows = _traces.tagged([one.frame for one in found], runs)
    answer = _output.Answer(
        command="mfu",
        blocks=lambda: _pages(runs, found, request),
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(answer, request)
    _traces.leave(request, runs, rows)


def _calculate(
    request: Request, asked: Asked, tokens_per_s_per_gpu: float | None, tflops_per_gpu: float | None
) -> None:
    """The answer from a throughput that is known."""
    import polars as pl

    from traceview import utilization
    from traceview.commands import _output, _traces
    from traceview.reports.mfu import calculation

    if tokens_per_s_per_gpu is not None:
        found = utilization.of_throughput(tokens_per_s_per_gpu, asked)
    else:
        found = utilization.of_tflops(tflops_per_gpu or 0, asked)
    answer = _output.Answer(
        command="mfu",
        blocks=lambda: calculation(found),
        main=found.frame,
        tables={"rows": found.frame},
        runs=[],
        diagnostics=found.notes.with_columns(run=pl.lit(None, pl.String)).select("run", pl.exclude("run")),
    )
    _output.deliver(answer, request)
    _traces.leave(request, [], found.frame)


def _pages(runs: Sequence[Run], found: Sequence[Utilization], request: Request) -> list[Block]:
    from traceview.reports.about import About
    from traceview.reports.mfu import page
    from traceview.reports.notices import notices

    blocks: list[Block] = []
    for run, one in zip(runs, found, strict=True):
        known = tuple(notices(run.diagnostics))
        blocks += page(About.of(run), one, known, every_notice=request.verbosity > 0)
    return blocks
