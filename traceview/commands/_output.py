"""Where results go: stdout or a file, in the format asked for. Everything else is stderr's."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from traceview.commands._options import Request
    from traceview.reports.layout import Block


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's result, ready for every format.

    Attributes:
        command: Name of the command.
        blocks: Makes the terminal page.
        main: The table that CSV and Markdown show.
        tables: The tables of the JSON object, by key.
        runs: One object per run, for JSON.
        diagnostics: Diagnostics of all runs.
    """

    command: str
    blocks: Callable[[], Sequence[Block]]
    main: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    runs: Sequence[Mapping[str, Any]]
    diagnostics: pl.DataFrame


def deliver(answer: Answer, request: Request) -> None:
    """Writes ``answer`` as ``request`` wants it."""
    from traceview import stages

    with stages.stage("render", request.format):
        text = _text(answer, request)
    if request.output is None:
        _print(text)
        return
    from traceview import sink, units

    written = sink.write(text, request.output)
    if request.verbosity >= 0:
        click.echo(f"wrote {request.output} ({units.size(written)})", err=True)


def _text(answer: Answer, request: Request) -> str:
    from traceview.reports import delimited, json_, layout

    match request.format:
        case "json":
            return json_.document(
                answer.command,
                inputs=request.places,
                runs=answer.runs,
                diagnostics=answer.diagnostics,
                tables=answer.tables,
            )
        case "csv":
            return delimited.csv(answer.main)
        case "md":
            return delimited.markdown(answer.main)
        case _ if request.output is None and sys.stdout.isatty():
            return layout.styled(answer.blocks(), columns=shutil.get_terminal_size().columns)
        case _:
            return layout.plain(answer.blocks())


def _print(text: str) -> None:
    """Writes to stdout; a reader who has left is no error, and does not change the exit code."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered must not fail again when the interpreter leaves
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
