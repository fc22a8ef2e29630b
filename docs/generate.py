"""Writes what the documents take from the code: the reference pages, and the output that pages show.

Usage: ``python docs/generate.py [--check] [ROOT]``. With ``--check`` nothing is written; the exit status is
1 when a page under ROOT (default: this checkout) differs from what would be written.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click
import polars as pl
from click.testing import CliRunner

from traceview import registry, schema, utilization
from traceview.cli import main as root_command
from traceview.comparisons import compare, scaling
from traceview.reports import json_schema, outputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from traceview.contracts import Analysis
    from traceview.schema import Table

CHECKOUT = Path(__file__).resolve().parents[1]
MADE = "<!-- made by docs/generate.py; run `make docs` instead of editing -->"
COLUMNS = 120
"""Width of the terminal whose output is shown: a wider line is wrapped, as a terminal does it."""

TABLES_INTRODUCTION = f"""\
# Tables

Times are int64 nanoseconds, sizes are bytes, ratios run from 0 to 1. Null means "not known", never zero; only
columns marked *null* may hold it. A table that is absent was not recorded; one that is empty was recorded and
holds nothing. This is schema version {schema.VERSION}; it is written into stored traces.

## Canonical tables

Attributes of a run: `run.ops`, `run.collectives` ..."""


def schema_page() -> str:
    """Every table that parsers fill and every table that analyses and comparisons return."""
    canonical = [_table(table) for table in schema.TABLES.values()]
    results = [_result(analysis) for _, analysis in sorted(registry.analyses().items())]
    results.append(_table(utilization.RESULT))
    compared = [_table(table, title=f"compare: {table.name}") for table in compare.TABLES]
    scaled = [_table(table, title=f"scaling: {table.name}") for table in scaling.TABLES]
    parts = (*canonical, "## Results", *results, "## Comparisons", *compared, *scaled)
    return "\n\n".join((MADE, TABLES_INTRODUCTION, *parts)) + "\n"


def json_schemas() -> dict[str, str]:
    """For each command that gives JSON the file of its schema, and its text."""
    known = outputs.tables()
    context = click.Context(root_command)
    pages = {}
    for name in root_command.list_commands(context):
        command = root_command.get_command(context, name)
        if command is not None and any(option.name == "format" for option in command.params):
            text = json.dumps(json_schema.schema(name, known[name]), indent=1, ensure_ascii=False)
            pages[f"docs/schemas/{name}.schema.json"] = text + "\n"
    results = {name: analysis.result for name, analysis in registry.analyses().items()}
    compared = ("compare", "compare changes", "compare kernels", "compare configuration")
    results |= {"mfu": utilization.RESULT} | dict(zip(compared, compare.TABLES, strict=True))
    text = json.dumps(json_schema.report(results), indent=1, ensure_ascii=False)
    return pages | {"docs/schemas/report.schema.json": text + "\n"}


def cli_page() -> str:
    """Every command with its arguments and options."""
    parts = [MADE, "# Command line", *_command(root_command, "traceview", parent=None)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(table: Table, title: str | None = None) -> str:
    rows = [
        (f"`{name}`", _type(column.dtype), column.unit or "", "null" if column.nullable else "", column.doc)
        for name, column in table.columns.items()
    ]
    grid = _grid(("column", "type", "unit", "", "meaning"), rows)
    return f"### {title or table.name}\n\n{table.doc}\n\n{grid}"


def _type(dtype: pl.DataType) -> str:
    """The type in one word; the legal values of an enumeration are spelled out."""
    if isinstance(dtype, pl.Enum):
        return f"one of {', '.join(dtype.categories)}"
    return "String" if isinstance(dtype, pl.Categorical) else str(dtype)


def _result(analysis: Analysis) -> str:
    grains = ", ".join(f"`{grain}`" for grain in analysis.grains)
    table = _table(analysis.result, title=f"{analysis.name}: {analysis.question}")
    return f"{table}\n\nRows by {grains}, or several of them."


def _command(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, parent, info_name=path.rpartition(" ")[2], **command.context_settings)
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    yield f"## `{path}`"
    yield _prose(command.help or "")
    yield f"```\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```"
    yield _grid(("option", "meaning"), (_option(option, context) for option in options if not option.hidden))
    yield _prose(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _command(found, f"{path} {name}", context)


def _prose(text: str) -> str:
    """Help text as Markdown; a paragraph that click must not rewrap stays as it is."""
    verbatim = text.removeprefix("\b\n")
    return inspect.cleandoc(text) if verbatim == text else f"```\n{verbatim.strip()}\n```"


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names, meaning = option.get_help_record(context) or ("", "")
    return f"`{names}`", meaning


def _grid(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


CONSOLE = re.compile(
    r"```console\n\$ traceview (?P<arguments>.*?)(?: \| (?P<end>head|tail) -n (?P<count>\d+))?"
    r"(?P<status> > \S+; echo \$\?)?\n(?:.*\n)*?```"
)
"""A block that shows a command and its output, one end of it, or stderr and the status."""


def with_output(page: str) -> str:
    """``page`` with the real output in each console block that shows a command."""
    return CONSOLE.sub(_console_block, page)


def _console_block(block: re.Match[str]) -> str:
    with contextlib.chdir(CHECKOUT):
        done = CliRunner().invoke(root_command, shlex.split(block["arguments"]), prog_name="traceview")
    if done.exit_code and not block["status"]:
        message = f"traceview {block['arguments']} failed: {done.output}"
        raise RuntimeError(message)
    left = f"{done.stderr}{done.exit_code}" if block["status"] else done.stdout.rstrip()
    lines = left.splitlines()
    if block["end"]:
        count = int(block["count"])
        lines = lines[:count] if block["end"] == "head" else lines[-count:]
    prompt = block[0].partition("\n")[2].partition("\n")[0]
    return "\n".join(("```console", prompt, *map(_wrapped, lines), "```"))


def _wrapped(line: str) -> str:
    """``line`` as a terminal shows it; the row of a table stays whole, for a page can be scrolled."""
    if len(re.findall(r" {2,}", line)) > 1:
        return line
    return textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False)


def pages(root: Path) -> dict[str, str]:
    """Every page that takes something from the code, by path under ``root``, as it should be."""
    written = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in (root / "README.md", *sorted((root / "docs").rglob("*.md")))
    }
    shown = {name: with_output(text) for name, text in written.items() if CONSOLE.search(text)}
    return {"docs/schema.md": schema_page(), "docs/cli.md": cli_page()} | json_schemas() | shown


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; the exit status."""
    places = [Path(argument) for argument in arguments if argument != "--check"]
    root = places[0] if places else CHECKOUT
    made = pages(root)
    if "--check" not in arguments:
        for name, text in made.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return 0
    stale = [name for name, text in made.items() if _content(root / name) != text]
    for name in stale:
        sys.stderr.write(f"{name} is not current; run `make docs`\n")
    return 1 if stale else 0


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
