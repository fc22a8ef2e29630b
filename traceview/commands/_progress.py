"""Progress on stderr: a bar for somebody watching a terminal, lines for ``-v``, otherwise nothing."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.commands._options import Request
    from traceview.jobs import Progress


@contextmanager
def watched(request: Request) -> Iterator[Progress]:
    """A `Progress` for the time of the block."""
    from traceview.jobs import silent

    if not request.progress or request.verbosity < 0:
        yield silent
    elif sys.stderr.isatty():
        with _bar() as progress:
            yield progress
    elif request.verbosity > 0:
        yield _line
    else:
        yield silent


def _line(done: int, total: int, label: str, /) -> None:
    click.echo(f"read {done} of {total}: {_name(label)}", err=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("reading"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[rate]}", markup=False),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, rate="")

        def progress(done: int, total: int, label: str, /) -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:.3g} files/s" if speed else _name(label)
            bar.update(task, completed=done, total=total, rate=rate)

        yield progress


def _name(label: str) -> str:
    from traceview.reports.printable import printable

    return printable(Path(label).name)
