"""Head and foot of every page: which run it is about; what to know about its input, and the verdict."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from traceview import units
from traceview.reports.layout import Block, Note, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

NOTICE_LINES = 6


def facts(about: About) -> Iterator[tuple[str, str]]:
    """Which run a page is about, and how many of its ranks were read."""
    yield "run", about.name
    of = f" of {about.world_size}" if about.world_size else ""
    yield "ranks", f"{len(about.ranks)}{of} ({units.numbers(about.ranks)})"


def recorded(about: About) -> Iterator[tuple[str, str]]:
    """What recorded the run, on which devices."""
    yield "recorded", ", ".join((*about.formats, *(about.device_names or ("device unknown",))))


def more_rows(count: int, shown: int) -> Iterator[Note]:
    """That a table of ``count`` rows shows only ``shown`` of them; nothing where it shows all."""
    if count > shown:
        yield Note(f"and {units.plural(count - shown, 'more row')}; -f csv or json gives all of them")


def foot(about: About, found: Sequence[Notice], verdict: str, *, every_notice: bool) -> Iterator[Block]:
    """Diagnostics, then the one line to remember."""
    yield from notes(found, rank_count=len(about.ranks), every_notice=every_notice)
    yield Verdict(verdict)


def notes(found: Sequence[Notice], *, rank_count: int, every_notice: bool) -> Iterator[Note]:
    """Diagnostics as lines; those beyond `NOTICE_LINES` are only counted, unless every one is asked for."""
    shown = found if every_notice else found[:NOTICE_LINES]
    for notice in shown:
        yield Note(f"{_where(notice, rank_count)}{notice.text} [{notice.code}]", notice.severity)
    if rest := Counter(notice.severity for notice in found[len(shown) :]):
        kinds = ", ".join(units.plural(count, severity) for severity, count in rest.items())
        yield Note(f"and {kinds} more; -v shows all of them")


def _where(notice: Notice, rank_count: int) -> str:
    if not notice.ranks or rank_count == 1:
        return ""
    if len(notice.ranks) <= 3:
        return f"rank {units.numbers(notice.ranks)}: "
    return f"{len(notice.ranks)} of {rank_count} ranks, e.g. rank {notice.ranks[0]}: "
