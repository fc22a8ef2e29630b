"""Write synthetic traces with a known truth.

A small MoE job, one trace per rank, truth.json: what an analysis must find in them, and run.toml: what its
owner would say about it. The same preset and seed always give the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request
    from traceview.synth import Workload

EXAMPLES = """\b
Examples:
  traceview synth --list
  traceview synth ep8-deepep -o traces/
  traceview synth ep8-nccl --format nsys -o traces/
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.argument("preset", required=False)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the traces, truth.json and run.toml here.",
)
@click.option(
    "--format",
    "trace_format",
    type=click.Choice(["kineto", "nsys"]),
    default="kineto",
    show_default=True,
    help="Write them as PyTorch's profiler (kineto) or as exports of Nsight Systems (nsys).",
)
@click.option("--list", "listing", is_flag=True, help="List the presets.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the random draws.")
@_options.request(_options.REPORTING)
def synth(  # noqa: PLR0913 - one argument per option
    request: Request,
    *,
    preset: str | None,
    directory: Path | None,
    trace_format: str,
    listing: bool,
    seed: int | None,
) -> None:
    """See the module's docstring."""
    from traceview.synth import PRESETS, recipe, write

    if listing:
        for name, workload in PRESETS.items():
            click.echo(f"{name:<24}{_describe(workload)}")
        return
    if preset is None or directory is None:
        message = "give a preset and a directory: traceview synth PRESET -o DIR (--list shows the presets)."
        raise click.UsageError(message)
    if preset not in PRESETS:
        message = f"no preset '{preset}'; there are: {', '.join(PRESETS)}."
        raise click.UsageError(message)
    workload = PRESETS[preset] if seed is None else replace(PRESETS[preset], seed=seed)
    paths = write(workload, directory, trace_format=trace_format)
    _report([*paths, recipe.write(workload, directory)], directory, request)


def _report(paths: list[Path], directory: Path, request: Request) -> None:
    from traceview import units

    for path in paths:
        click.echo(path)
    if request.verbosity >= 0:
        written = units.size(sum(path.stat().st_size for path in paths))
        click.echo(f"wrote {units.plural(len(paths), 'file')} ({written}) to {directory}", err=True)


def _describe(workload: Workload) -> str:
    overlap = "no overlap" if workload.overlap == "none" else f"overlap {workload.overlap}"
    return f"{workload.ranks} ranks, {workload.steps} steps, {workload.transport}, {overlap}"
