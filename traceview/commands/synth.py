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
  traceview synth ep8-gpu-metrics --format nsys-parquetdir -o traces/
"""

FORMATS = (
    "kineto",
    "nsys",
    *(f"nsys-{kind}" for kind in ("sqlite", "parquetdir", "arrowdir", "arrow", "jsonlines")),
)


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
    type=click.Choice(FORMATS),
    default="kineto",
    show_default=True,
    help="Write them as PyTorch's profiler does, or as one of the export types of Nsight Systems; nsys is "
    "short for nsys-sqlite.",
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
        files = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]
        written = units.size(sum(file.stat().st_size for file in files))
        click.echo(f"wrote {units.plural(len(files), 'file')} ({written}) to {directory}", err=True)


def _describe(workload: Workload) -> str:
    overlap = "no overlap" if workload.overlap == "none" else f"overlap {workload.overlap}"
    return f"{workload.ranks} ranks, {workload.steps} steps, {workload.transport}, {overlap}"
