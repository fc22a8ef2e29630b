"""Write a run as one file for another tool: all ranks on one clock.

For Perfetto (ui.perfetto.dev): ranks are processes and streams are threads, with tracks for steps, layers and
exposed communication. Choose ranks and a step: viewers struggle with more than a gigabyte.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request

EXAMPLES = """\b
Examples:
  traceview export traces/ep64/ --to perfetto --ranks 0-7 --step 12
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.option("--to", "target", type=click.Choice(["perfetto"]), required=True, help="What for.")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file; else RUN.perfetto.json.gz.",
)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Only this step.")
@_options.request(_options.READING, _options.REPORTING)
def export(request: Request, *, target: str, path: Path | None, step: int | None) -> None:  # noqa: ARG001 - one target so far
    """See the module's docstring."""
    from traceview import api, units
    from traceview.commands import _traces

    run = _traces.load_one(request)
    written = api.export_perfetto(run, path or Path(f"{run.name}.perfetto.json.gz"), step=step)
    if request.verbosity >= 0:
        click.echo(f"wrote {written} ({units.size(written.stat().st_size)})", err=True)
    _traces.leave(request, [run])
