"""Blocks of terminal text, and their two renderings: plain and aligned, or styled for a terminal.

Blocks hold finished cells. Every cell goes through `printable` here, so nothing that a trace
says can steer the terminal, and nothing is ever cut short or wrapped.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceview.reports.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

_GAP = "  "
_STYLES = {"error": "bold red", "warning": "yellow", "missing": "cyan", "info": "dim", "plain": ""}


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and values, one pair a line, below an optional title."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first ``label_count`` columns are text, the others numbers with the unit in the head.

    ``hints`` are what the first cells of the rows stand for in full, where a page can show that on demand.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    label_count: int = 1
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence; ``severity`` is a key of `_STYLES` and leads the line unless it is "plain"."""

    text: str
    severity: str = "plain"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one line to remember."""

    text: str


Block = Facts | Grid | Note | Verdict


def plain(blocks: Sequence[Block]) -> str:
    """``blocks`` as aligned text without colour or box, for pipes, files and logs."""
    return "".join(f"{line}\n" for line in _plain_lines(blocks))


def styled(blocks: Sequence[Block], *, columns: int) -> str:
    """``blocks`` with colour and rules, for a terminal at least as wide as the text needs.

    Args:
        blocks: What to show.
        columns: Width of the terminal; wider lines are left for it to wrap.
    """
    from rich.console import Console  # noqa: PLC0415 - heavy, and only terminals need it

    widest = max((len(line) for line in _plain_lines(blocks)), default=0)
    text = io.StringIO()
    # NO_COLOR and TERM are rich's to honour
    console = Console(file=text, force_terminal=True, width=max(columns, 2 * widest), highlight=False)
    for number, block in enumerate(blocks):
        if number and not _continues(blocks[number - 1], block):
            console.print()
        console.print(_renderable(block))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _continues(previous: Block, block: Block) -> bool:
    return isinstance(previous, Note) and isinstance(block, Note)


def _plain_lines(blocks: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        if number and not _continues(blocks[number - 1], block):
            yield ""
        match block:
            case Facts():
                yield from _facts_lines(block)
            case Grid():
                yield from _grid_lines(block)
            case Note(text, severity):
                yield printable(text) if severity == "plain" else f"{severity}: {printable(text)}"
            case Verdict(text):
                yield printable(text)


def _facts_lines(facts: Facts) -> Iterator[str]:
    if facts.title:
        yield printable(facts.title)
    width = max((len(label) for label, _ in facts.pairs), default=0)
    for label, value in facts.pairs:
        yield f"{printable(label):<{width}}{_GAP}{printable(value)}".rstrip()


def _grid_lines(grid: Grid) -> Iterator[str]:
    if grid.title:
        yield printable(grid.title)
    lines = [tuple(map(printable, row)) for row in (grid.heads, *grid.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(grid.heads))]
    for line in lines:
        cells = (
            cell.ljust(width) if column < grid.label_count else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield _GAP.join(cells).rstrip()


def _renderable(block: Block) -> RenderableType:
    """The rich form of a block; `Text`, never markup, so brackets in names stay brackets."""
    from rich.text import Text  # noqa: PLC0415 - heavy, and only terminals need it

    match block:
        case Facts():
            return Text("\n").join(Text(line) for line in _facts_lines(block))
        case Grid():
            return _rich_table(block)
        case Note(text, severity):
            lead = "" if severity == "plain" else f"{severity}: "
            return Text(lead, style=_STYLES[severity]).append(printable(text), style="" if lead else "dim")
        case Verdict(text):
            return Text(printable(text), style="bold")


def _rich_table(grid: Grid) -> RenderableType:
    from rich import box  # noqa: PLC0415 - heavy, and only terminals need it
    from rich.table import Table  # noqa: PLC0415 - heavy, and only terminals need it
    from rich.text import Text  # noqa: PLC0415 - heavy, and only terminals need it

    table = Table(
        title=Text(printable(grid.title), style="bold") if grid.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for column, head in enumerate(grid.heads):
        table.add_column(
            Text(printable(head)), justify="left" if column < grid.label_count else "right", no_wrap=True
        )
    for row in grid.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
