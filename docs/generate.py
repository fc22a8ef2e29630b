"""Writes the reference pages from what they describe: the tables, and the commands.

Usage: ``python docs/generate.py [--check] [FOLDER]``. With ``--check`` nothing is written; the exit status
is 1 when a page in FOLDER (default: the one of this script) differs from what would be written.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview import registry, schema
from traceview.cli import main as root_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from traceview.contracts import Analysis
    from traceview.schema import Table

MADE = "<!-- made by docs/generate.py; run `make docs` instead of editing -->"

TABLES_INTRODUCTION = f"""\
# Tables

Times are int64 nanoseconds, sizes are bytes, ratios run from 0 to 1. Null means "not known", never zero; only
columns marked *null* may hold it. A table that is absent was not recorded; one that is empty was recorded and
holds nothing. This is schema version {schema.VERSION}; it is written into stored traces.

## Canonical tables

Attributes of a run: `run.ops`, `run.collectives` ..."""


def schema_page() -> str:
    """Every table that parsers fill and every table that analyses return."""
    canonical = [_table(table) for table in schema.TABLES.values()]
    results = [_result(analysis) for _, analysis in sorted(registry.analyses().items())]
    return "\n\n".join((MADE, TABLES_INTRODUCTION, *canonical, "## Results", *results)) + "\n"


def cli_page() -> str:
    """Every command with its arguments and options."""
    parts = [MADE, "# Command line", *_command(root_command, "traceview", parent=None)]
    return "\n\n".join(parts) + "\n"


def _table(table: Table, title: str | None = None) -> str:
    rows = [
        (f"`{name}`", _type(column.dtype), column.unit or "", "null" if column.nullable else "", column.doc)
        for name, column in table.columns.items()
    ]
    grid = _grid(("column", "type", "unit", "", "meaning"), rows)
    return f"### {title or table.name}\n\n{table.doc}\n\n{grid}"


def _type(dtype: object) -> str:
    """The type in one word; the legal values of an enumeration are spelled out."""
    values = getattr(dtype, "categories", None)
    named = values is not None and len(values)
    return f"one of {', '.join(values)}" if named else str(dtype).partition("(categories")[0]


def _result(analysis: Analysis) -> str:
    grains = ", ".join(f"`{grain}`" for grain in analysis.grains)
    table = _table(analysis.result, title=f"{analysis.name}: {analysis.question}")
    return f"{table}\n\nRows by {grains}, or several of them."


def _command(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, parent, info_name=path.rpartition(" ")[2])
    yield f"## `{path}`\n\n{_prose(command.help or '')}"
    yield "```\n" + command.get_usage(context).removeprefix("Usage: ") + "\n```"
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    yield _grid(("option", "meaning"), (_option(option, context) for option in options if not option.hidden))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _command(found, f"{path} {name}", context)


def _prose(text: str) -> str:
    return inspect.cleandoc(text).replace("\b\n", "").partition("\f")[0].strip()


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names, meaning = option.get_help_record(context) or ("", "")
    return f"`{names}`", meaning


def _grid(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; the exit status."""
    folders = [Path(argument) for argument in arguments if argument != "--check"]
    folder = folders[0] if folders else Path(__file__).parent
    pages = {folder / "schema.md": schema_page(), folder / "cli.md": cli_page()}
    if "--check" not in arguments:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [
        path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        sys.stderr.write(f"{path} is not current; run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
