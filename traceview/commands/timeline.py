"""Write what ran when as one HTML page to move and zoom in: every kernel of every rank, on one clock.

One row per stream, and rows for steps, layers and exposed communication. Up to a million bars; beyond that,
short ones are drawn together, and the page says so. The page needs no network.
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
  traceview timeline traces/ep64/ --ranks 0-7 -o timeline.html
  traceview timeline traces/ep64/ --ranks 3,37 --step 12
"""


@click.command(help=__doc__, epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    default=Path("timeline.html"),
    show_default=True,
    help="Write the page to this file.",
)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Only this step.")
@click.option(
    "--max-bars",
    "most_bars",
    type=click.IntRange(min=1000),
    default=1_000_000,
    show_default=True,
    help="Beyond so many, short bars are drawn together.",
)
@_options.request(_options.READING, _options.REPORTING)
def timeline(request: Request, *, page: Path, step: int | None, most_bars: int) -> None:
    """See the module's docstring."""
    from traceview import api, sink, units
    from traceview.commands import _traces
    from traceview.reports import html
    from traceview.reports.sections import timeline as section

    run = _traces.load_one(request)
    made = api.timeline(run, step=step, most_bars=most_bars)
    caption = (
        f"{units.count(made.bar_count)} bars of {units.plural(len(run.ranks), 'rank')} "
        f"over {units.duration(made.span_ns)}."
    )
    title = f"{run.name}{f', step {step}' if step is not None else ''}"
    method = section.METHOD + section.precision(made)
    size = sink.write(html.timeline_page(made, title=title, caption=caption, method=method), page)
    if request.verbosity >= 0:
        click.echo(f"wrote {page} ({units.size(size)})", err=True)
    _traces.leave(request, [run])
