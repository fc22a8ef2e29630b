"""Runs, results and summaries as a notebook shows them: small tables of escaped, bounded text.

Nothing here draws, runs a script or analyses: a cell that only names an object must come back at once.
"""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING

from traceview import units
from traceview.reports.layout import Facts, Grid, Note, Verdict
from traceview.reports.markup import TOOLTIP_LETTERS, shown
from traceview.reports.notices import notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl

    from traceview.contracts import Analysis, Options
    from traceview.reports.layout import Block
    from traceview.run import Run
    from traceview.schema import Column

ROWS, COLUMNS, NOTICES, LISTED = 20, 32, 8, 6
SENTENCE = 600
"""Letters of a sentence."""

_BORDERLESS = 'style="margin:0 0 .5em 0"'


def run(asked: Run) -> str:
    """``asked`` in a few lines: mesh, ranks, steps, span, warnings; reads two small tables of one rank."""
    facts = [trace.facts for trace in asked.traces]
    span = max(fact.end_ns - fact.start_ns for fact in facts)
    pairs = [
        ("ranks", _ranks(asked)),
        ("mesh", _mesh(asked)),
        (
            "recorded",
            _listed([*(fact.format for fact in facts), *_known(fact.device_name for fact in facts)]),
        ),
        ("hosts", _listed(_known(fact.host for fact in facts))),
        ("steps", _steps(asked)),
        ("span", f"{units.duration(span)} of device work, longest rank"),
        ("events", units.count(sum(fact.event_count for fact in facts))),
    ]
    found = [note for note in notices(asked.diagnostics) if note.severity != "info"]
    notes = [Note(_concerning(note.text, len(note.ranks)), note.severity) for note in found[:NOTICES]]
    if len(found) > NOTICES:
        notes.append(Note(f"and {len(found) - NOTICES} more kinds of warnings; see run.diagnostics"))
    title = f"Run '{asked.name}'"
    return blocks([Facts(tuple(pair for pair in pairs if pair[1]), title), *notes], meter=_meter(asked))


def result(frame: pl.DataFrame, analysis: Analysis, options: Options) -> str:
    """A result: its question, its first rows with their units, and what each column means."""
    known = analysis.result.columns
    full = [name for name in frame.columns if frame[name].null_count() < len(frame) or frame.is_empty()]
    heads = full[:COLUMNS]
    rows = frame.select(heads).head(ROWS).iter_rows()
    left_out = [
        *([f"{len(frame) - ROWS:,} more rows"] if len(frame) > ROWS else []),
        *([f"{len(full) - COLUMNS} more columns"] if len(full) > COLUMNS else []),
        *(
            [f"{len(frame.columns) - len(full)} columns hold nothing here"]
            if len(full) < len(frame.columns)
            else []
        ),
    ]
    steps = options.steps if isinstance(options.steps, str) else f"{options.steps.start}:{options.steps.stop}"
    asked = f"by {', '.join(options.by) or 'nothing'}; steps {steps}; {units.plural(len(frame), 'row')}"
    return _div(
        f"<p><b>{_text(analysis.question)}</b> {_text(asked)}</p>",
        _table(
            "".join(_head(name, known[name]) for name in heads),
            (
                "".join(
                    f"<td>{_text(_value(value, name, known[name]))}</td>"
                    for name, value in zip(heads, row, strict=True)
                )
                for row in rows
            ),
        ),
        f"<p>{_text('; '.join([*left_out, 'all of it: .frame']))}</p>",
    )


def blocks(shown_blocks: Iterable[Block], *, meter: str = "") -> str:
    """The blocks of a terminal page as HTML.

    Args:
        shown_blocks: What to show.
        meter: Markup that stands below the first block.
    """
    parts: list[str] = []
    for block in shown_blocks:
        match block:
            case Facts(pairs, title):
                rows = (f"<th>{_text(label)}</th><td>{_text(value, SENTENCE)}</td>" for label, value in pairs)
                parts += [f"<p><b>{_text(title)}</b></p>"] * bool(title) + [_table("", rows)]
            case Grid():
                parts.append(_grid(block))
            case Note(text, severity):
                lead = "" if severity == "plain" else f"<b>{_text(severity)}</b> "
                parts.append(f"<p>{lead}{_text(text, SENTENCE)}</p>")
            case Verdict(text):
                parts.append(f"<p><b>{_text(text, SENTENCE)}</b></p>")
        if meter:
            parts.append(meter)
            meter = ""
    return _div(*parts)


# --- what a run says ---------------------------------------------------------------------------------


def _ranks(asked: Run) -> str:
    of = f" of {asked.world_size:,}" if asked.world_size else ", size of the job not recorded"
    return f"{len(asked.ranks):,}{of}"


def _meter(asked: Run) -> str:
    """A bar of how much of the job is here; none where its size is not known."""
    if not asked.world_size:
        return ""
    here, whole = len(asked.ranks), int(asked.world_size)
    share = _text(units.percent(here / whole))
    return f'<meter min="0" max="{whole}" value="{here}">{here} of {whole}</meter> {share} of the job'


def _mesh(asked: Run) -> str:
    """Parallel sizes as said in ``run.toml``, else as recorded by the first rank's process groups."""
    if said := asked.recipe.parallel:
        return ", ".join(f"{axis} {size}" for axis, size in said.items()) + " (run.toml)"
    if "groups" not in (tables := asked.traces[0].tables):
        return ""
    groups = tables["groups"].select("axis", "group_size").drop_nulls().unique().sort("axis", "group_size")
    sizes = [f"{axis} {size:,}" for axis, size in groups.iter_rows() if axis not in {"world", "unknown"}]
    return f"{_listed(sizes)} (process groups of rank {asked.ranks[0]})" if sizes else ""


def _steps(asked: Run) -> str:
    """Steps of the first rank, by status."""
    if "steps" not in (tables := asked.traces[0].tables):
        return ""
    steps = tables["steps"]
    if steps.is_empty():
        return "none marked"
    statuses = Counter(steps["status"].cast(str).to_list())
    counted = ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items()))
    numbers = steps["step"].to_list()
    return f"{min(numbers)}–{max(numbers)}: {counted} (rank {asked.ranks[0]})"


def _known(values: Iterable[str | None]) -> Iterator[str]:
    return (value for value in values if value)


def _listed(values: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(values))
    more = f" and {len(distinct) - LISTED:,} more" if len(distinct) > LISTED else ""
    return ", ".join(shown(value) for value in distinct[:LISTED]) + more


def _concerning(text: str, ranks: int) -> str:
    return f"{text} ({units.plural(ranks, 'rank')})" if ranks > 1 else text


# --- tags --------------------------------------------------------------------------------------------


def _text(text: object, letters: int = 120) -> str:
    """``text`` as it may stand between tags, and in quoted attributes."""
    return html.escape(shown(text, letters), quote=True)


def _div(*parts: str) -> str:
    return f'<div class="traceview">{"".join(parts)}</div>'


def _table(head: str, rows: Iterable[str]) -> str:
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table {_BORDERLESS}>{top}<tbody>{body}</tbody></table>"


def _grid(grid: Grid) -> str:
    rows: Sequence[tuple[str, ...]] = grid.rows[:ROWS]
    table = _table(
        "".join(f"<th>{_text(head)}</th>" for head in grid.heads),
        ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows),
    )
    title = f"<p>{_text(grid.title)}</p>" if grid.title else ""
    more = f"<p>and {len(grid.rows) - ROWS:,} more rows</p>" if len(grid.rows) > ROWS else ""
    return title + table + more


def _head(name: str, column: Column) -> str:
    meaning = f"{column.doc} [{column.unit}]" if column.unit else column.doc
    return f'<th title="{_text(meaning, TOOLTIP_LETTERS)}">{_text(name)}</th>'


def _value(value: object, name: str, column: Column) -> str:  # noqa: PLR0911 - one line for each kind of value
    """One cell, with its unit."""
    match value:
        case None:
            return units.MISSING
        case bool():
            return "yes" if value else "no"
        case int() | float() if column.unit == "ns":
            return units.duration(value)
        case int() | float() if column.unit == "bytes":
            return units.size(value)
        case int() | float() if column.unit == "bytes/s":
            return units.MISSING if (scaled := units.size(value)) == units.MISSING else f"{scaled}/s"
        case float() if name.endswith("_ratio"):
            return units.percent(value)
        case float():
            return f"{units.significant(value)} {column.unit or ''}".rstrip()
        case int() if name.endswith("_count"):
            return units.count(value)
        case _:
            return str(value)
