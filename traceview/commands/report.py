"""Write the whole answer as one HTML page.

Verdict, findings, figures and tables of every question, in one file that needs no network and can be sent
to others. What cannot be shown says which evidence is missing and how to record it. Runs of several sizes,
one folder each, give the page of how the job scales.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.commands import _options

if TYPE_CHECKING:
    from traceview.commands._options import Request
    from traceview.run import Run

EXAMPLES = """\b
Examples:
  traceview report traces/ep64/ -o report.html
  traceview report traces/today/ --baseline traces/yesterday/ -o report.html
  traceview report traces/ep64/ -o report.html --compact --json numbers.json
  traceview report traces/256/ traces/1024/ -o scaling.html
"""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(help=__doc__, epilog=EXAMPLES)
@click.option(
    "-o", "--output", "page", type=_FILE, metavar="FILE", default=Path("report.html"), show_default=True,
    help="Write the page to this file.",
)  # fmt: skip
@click.option("--baseline", metavar="TRACE", help="Show what changed since this run, and how surely.")
@click.option("--title", metavar="TEXT", help="Title of the page; else the name of the run.")
@click.option("--compact", is_flag=True, help="Half the size, for browsers of 2023 and newer.")
@click.option(
    "--json", "numbers", type=_FILE, metavar="FILE", help="Write all numbers to this file, as JSON."
)
@click.option(
    "--steps", callback=_options.as_steps, default="auto", metavar="auto|all|5:10", help=_options.STEPS_HELP
)
@_options.request(_options.READING, _options.REPORTING)
def report(  # noqa: PLR0913 - one argument per option
    request: Request,
    *,
    page: Path,
    baseline: str | None,
    title: str | None,
    compact: bool,
    numbers: Path | None,
) -> None:
    """See the module's docstring."""
    from traceview import api
    from traceview.commands import _traces

    runs = _traces.load(request)
    before = None if baseline is None else _baseline(request, baseline)
    asked: dict[str, Any] = {"baseline": before, "title": title, "steps": request.steps}
    composed = api.compose(runs[0], **asked) if len(runs) == 1 else api.compose_scaling(runs, **asked)
    _write(composed.html(compact=compact), page, request)
    if numbers is not None:
        _write(composed.json(), numbers, request)
    _traces.leave(request, runs if before is None else [*runs, before])


def _baseline(request: Request, place: str) -> Run:
    from dataclasses import replace

    from traceview.commands import _traces

    return _traces.load_one(replace(request, places=(place,)))


def _write(text: str, path: Path, request: Request) -> None:
    from traceview import sink, units

    written = sink.write(text, path)
    if request.verbosity >= 0:
        click.echo(f"wrote {path} ({units.size(written)})", err=True)
