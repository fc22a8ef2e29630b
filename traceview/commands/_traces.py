"""The two ends of every command that reads traces: load the runs, and decide how to leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.commands._progress import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from traceview.commands._gate import Condition
    from traceview.commands._options import Request
    from traceview.run import Run

CONDITION_HOLDS, SOME_SKIPPED = 1, 4
SHOWN_ROWS = 10

SKIPPED = "input.skipped"
"""Diagnostic code of a trace that could not be used."""


def load(request: Request) -> list[Run]:
    """The runs at the places asked for, each under a name of its own."""
    from traceview import api

    with watched(request) as progress:
        runs = api.load_runs(
            request.places,
            ranks=request.ranks,
            rules=request.rules,
            cache=request.cache,
            workers=request.workers,
            progress=progress,
        )
    return _distinct(runs)


def load_one(request: Request) -> Run:
    """The one run at the places asked for.

    Raises:
        UsageError: There are several.
    """
    from traceview import api

    return api.only_run(load(request))


def load_pair(request: Request) -> tuple[Run, Run]:
    """The runs at the two places asked for, told apart by name.

    Raises:
        UsageError: Several runs lie at one of them.
    """
    before, after = (load_one(replace(request, places=(place,))) for place in request.places)
    if (before.name, _folder(before)) == (after.name, _folder(after)):  # parts of one run
        return replace(before, name=f"{before.name} (A)"), replace(after, name=f"{after.name} (B)")
    before, after = _distinct([before, after])
    return before, after


def tagged(frames: Sequence[pl.DataFrame], runs: Sequence[Run]) -> pl.DataFrame:
    """One frame per run as one frame, whose first column names the run."""
    import polars as pl

    return pl.concat(
        frame.select(pl.lit(run.name).alias("run"), pl.all()) for run, frame in zip(runs, frames, strict=True)
    )


def diagnostics(runs: Sequence[Run]) -> pl.DataFrame:
    """Diagnostics of all runs."""
    return tagged([run.diagnostics for run in runs], runs)


def leave(
    request: Request,
    runs: Sequence[Run],
    result: pl.DataFrame | None = None,
    *,
    gate: Sequence[Condition] = (),
) -> None:
    """Says on stderr what the exit code stands for, and leaves with it; a failed condition comes first.

    Args:
        request: What the user asked for.
        runs: The runs that were read.
        result: The table its conditions are about; None for commands that take none.
        gate: Conditions that have to hold in every row of it.
    """
    holding = False
    if result is not None:
        holding = _report_conditions(request, result)
        holding = _report_gate(gate, result) or holding
    skipped = _report_skipped(request, runs)
    if holding:
        raise click.exceptions.Exit(CONDITION_HOLDS)
    if skipped and not request.allow_partial:
        raise click.exceptions.Exit(SOME_SKIPPED)


def _distinct(runs: list[Run]) -> list[Run]:
    """Runs of the same name told apart by their folder."""
    from traceview.reports.printable import printable

    seen = Counter(run.name for run in runs)
    names = (run.name if seen[run.name] == 1 else f"{run.name} ({_folder(run)})" for run in runs)
    # a folder's name may be no Unicode at all, and then fits into no table
    return [replace(run, name=printable(name)) for run, name in zip(runs, names, strict=True)]


def _folder(run: Run) -> Path:
    return Path(run.traces[0].facts.path).parent


def _report_conditions(request: Request, result: pl.DataFrame) -> bool:
    """Prints the rows in which a condition holds; whether there is one."""
    from traceview.reports.printable import printable

    holding = False
    for condition in request.fail_on:
        offending = condition.offending(result)
        holding = holding or len(offending) > 0
        for row in offending.head(SHOWN_ROWS).iter_rows(named=True):
            keys = {name: value for name, value in row.items() if value is not None and not _is_measure(name)}
            where = " ".join(f"{name}={value}" for name, value in keys.items())
            text = f"fail-on {condition.text}: {where} {condition.column}={row[condition.column]:.6g}"
            click.echo(printable(text), err=True)
        if len(offending) > SHOWN_ROWS:
            click.echo(f"fail-on {condition.text}: and {len(offending) - SHOWN_ROWS} more rows", err=True)
    return holding


def _report_gate(gate: Sequence[Condition], result: pl.DataFrame) -> bool:
    """Prints the conditions that do not hold; whether there is one."""
    failing = False
    for condition in gate:
        for value in condition.unmet(result)[condition.column].head(SHOWN_ROWS):
            failing = True
            found = "is unknown" if value is None else f"= {value:.6g}"
            click.echo(f"gate {condition.text}: {condition.column} {found}", err=True)
    return failing


def _is_measure(column: str) -> bool:
    return column.endswith(("_ns", "_ratio", "_count"))


def _report_skipped(request: Request, runs: Sequence[Run]) -> bool:
    """Prints which traces were skipped; whether there is one."""
    if not runs:
        return False
    import polars as pl

    from traceview.reports.printable import printable

    notes = pl.concat([run.notes for run in runs]).filter(pl.col("code") == SKIPPED)
    texts = notes["text"].unique(maintain_order=True).to_list()
    if not texts:
        return False
    for text in texts[:SHOWN_ROWS]:
        click.echo(printable(f"skipped: {text}"), err=True)
    if len(texts) > SHOWN_ROWS:
        click.echo(f"skipped: and {len(texts) - SHOWN_ROWS} more", err=True)
    if not request.allow_partial:
        click.echo("Hint: the figures describe the other traces; --allow-partial accepts that.", err=True)
    return True
