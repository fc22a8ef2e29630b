"""Options that commands share, and the one object a command receives them as."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.commands._gate import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ("table", "json", "csv", "md")
STEPS_HELP = (
    "Complete steady steps (auto, the default), the whole device window (all), or steps 5 to 9 (5:10)."
)
LARGEST_RANGE = 1 << 20
"""Longest range of ranks or steps; anything longer is a slip of the finger."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; made once, by the options below.

    Attributes:
        places: Files, directories, globs.
        ranks: Keep only these ranks; None keeps all.
        rules: A TOML file of kernel rules.
        cache: Folder for prepared tables.
        workers: Processes for large inputs.
        allow_partial: Whether skipped traces are fine (exit 0 instead of 4).
        progress: Whether progress may be shown.
        steps: "auto", "all" or a half-open range.
        by: Grain of the result; empty means the command's own.
        fail_on: Conditions that make the command exit 1.
        format: One of `FORMATS`.
        output: File for the result; None is stdout.
        verbosity: -1 quiet, 0 normal, 1 and more verbose.
    """

    places: tuple[str, ...] = ()
    ranks: frozenset[int] | None = None
    rules: Path | None = None
    cache: Path | None = None
    workers: int | None = None
    allow_partial: bool = False
    progress: bool = True
    steps: str | range = "auto"
    by: tuple[str, ...] = ()
    fail_on: tuple[Condition, ...] = ()
    format: str = "table"
    output: Path | None = None
    verbosity: int = 0


def _ranks(_ctx: click.Context, _param: click.Parameter, value: str | None) -> frozenset[int] | None:
    """``0-7,12`` as a set of ranks."""
    if value is None:
        return None
    ranks: set[int] = set()
    for part in value.split(","):
        if not (match := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)):
            message = f"'{part}' is neither a rank nor a range such as 0-7."
            raise click.BadParameter(message)
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + LARGEST_RANGE:
            message = f"'{part}' runs backwards or is too long."
            raise click.BadParameter(message)
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def as_steps(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | range | None:
    """``auto``, ``all``, one step, or the half-open range ``5:10``; None where nothing was given."""
    if value is None or value in {"auto", "all"}:
        return value
    if not (match := re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", value)):
        message = f"'{value}' is none of auto, all, a step, or a range such as 5:10."
        raise click.BadParameter(message)
    first = int(match[1])
    end = int(match[2]) if match[2] else first + 1
    if not first < end <= first + LARGEST_RANGE:
        message = f"'{value}' is empty or too long; 5:10 means steps 5 to 9."
        raise click.BadParameter(message)
    return range(first, end)


def _conditions(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[Condition, ...]:
    """``exposed_comm_ratio>0.2`` as a `Condition`, as often as it was given."""
    conditions = []
    for text in value:
        if (condition := Condition.parse(text)) is None:
            message = f"'{text}' is no condition such as exposed_comm_ratio>0.2."
            raise click.BadParameter(message)
        conditions.append(condition)
    return tuple(conditions)


def as_names(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """``--by a,b --by c`` as ``(a, b, c)``, each once."""
    return tuple(dict.fromkeys(name.strip() for text in value for name in text.split(",") if name.strip()))


def _remember_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's own signature
    ctx.meta["debug"] = value


_FILE = click.Path(dir_okay=False, path_type=Path)

LOADING = (
    click.option("--ranks", callback=_ranks, metavar="0-7,12", help="Only these ranks."),
    click.option(
        "--rules",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE.toml",
        help="Kernel rules of your own, tried before the built-in ones.",
    ),
    click.option(
        "--cache",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Keep prepared tables here.",
    ),
    click.option(
        "--jobs", "workers", type=click.IntRange(min=1), metavar="N", help="Processes for large inputs."
    ),
    click.option("--allow-partial", is_flag=True, help="Exit 0 even if some traces were skipped."),
    click.option("--no-progress", "progress", flag_value=False, default=True, help="Never show progress."),
)
"""How traces are read."""

READING = (click.argument("places", metavar="TRACE...", nargs=-1, required=True), *LOADING)
"""Options of commands that read traces."""

_STEPS = click.option("--steps", callback=as_steps, default="auto", metavar="auto|all|5:10", help=STEPS_HELP)
_BY = click.option(
    "--by", multiple=True, callback=as_names, metavar="A,B", help="Grain of the result, e.g. rank,step."
)
_FAIL_ON = click.option(
    "--fail-on",
    callback=_conditions,
    multiple=True,
    metavar="'COLUMN>NUMBER'",
    help="Exit 1 if this holds in any row, e.g. 'exposed_comm_ratio>0.2'.",
)
ASKING = (_STEPS, _BY, _FAIL_ON)
"""Options of commands that analyse."""

CHECKING = (_STEPS, _FAIL_ON)
"""The same of commands whose result has one grain."""

SELECTING = (_STEPS,)
"""What is looked at."""

GATING = (
    click.option(
        "--gate",
        callback=_conditions,
        multiple=True,
        metavar="'COLUMN<=NUMBER'",
        help="Exit 1 unless this holds, e.g. 'delta_step_ratio<=0.02'; unknown is no pass.",
    ),
)
"""Conditions of commands that compare runs."""

OUTPUT = (
    click.option(
        "-f",
        "--format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Form of the result.",
    ),
    click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the result to this file."),
)
"""Options of commands that give a result."""

REPORTING = (
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
    click.option("-v", "--verbose", count=True, help="Show every warning and each file read."),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_remember_debug,
        help="Show tracebacks of errors.",
    ),
)
"""Options of every command."""


def request(*groups: tuple[Callable[..., Any], ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds option ``groups`` to a command, which receives them as its first argument, a `Request`.

    Options of the command's own arrive as keywords.
    """
    own = {field.name for field in fields(Request)}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def collected(*, quiet: bool, verbose: int, **values: Any) -> Any:  # noqa: ANN401 - whatever the command takes
            shared = {name: values.pop(name) for name in list(values) if name in own}
            return function(Request(**shared, verbosity=-1 if quiet else verbose), **values)

        decorated: Callable[..., Any] = collected
        for option in reversed([option for group in groups for option in group]):
            decorated = option(decorated)
        return decorated

    return decorate
