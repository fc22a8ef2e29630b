"""The shapes a contributor fills: a `Parser` per format, an `Analysis` per question.

Each lives in one module of its package and is declared there as ``PARSER`` or ``ANALYSIS``;
`traceview.registry` finds it, so there is no list to edit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from traceview.schema import Table
    from traceview.source import Source
    from traceview.trace import Trace


class Parser(Protocol):
    """One trace format: bytes to canonical tables, nothing else.

    Attributes:
        name: Short name, as shown in the column "format".
        description: What the format is, in one line.
        url: Where its producer documents it.
        version: Raised when the tables for the same bytes change; part of cache keys.
    """

    name: str
    description: str
    url: str
    version: int

    def sniff(self, source: Source) -> bool:
        """Whether ``source.head`` looks like this format. Reads no more than the head; never raises."""

    def parse(self, source: Source) -> list[Trace]:
        """One trace per rank found in the file, with the tables of `schema` as parsed.

        Raises:
            UnknownFormatError: The file is something else after all; the message says what.
            ParseError: The file is of this format and nothing in it can be used.
        """


@dataclass(frozen=True, slots=True)
class Options:
    """What every analysis may be asked; frozen, made once by the caller.

    Attributes:
        steps: "auto" (complete steady steps, else everything), "all" (first to last device op), or a
            half-open range of step numbers.
        by: Columns of the result's grain.
    """

    steps: str | range = "auto"
    by: tuple[str, ...] = ("rank",)

    def columns(self, grains: Mapping[str, tuple[str, ...]]) -> list[str]:
        """What ``by`` stands for in an analysis with these ``grains``: columns, each once."""
        return list(dict.fromkeys(column for grain in self.by for column in grains[grain]))


@dataclass(frozen=True, slots=True)
class Analysis:
    """One question about a run.

    ``map`` looks at one rank and returns a small partial table; ``reduce`` turns the concatenated partials
    of all ranks into the result. One rank is the same code with one partial, and no step ever needs the
    raw events of all ranks in one memory.

    Attributes:
        name: Verb and result key.
        question: What it answers, in one line.
        needs: Tables `map` reads.
        partial: The table `map` returns.
        grains: Legal values of ``Options.by``, each with the columns it stands for.
        maps_by: Grains that `map` looks at, None: all; questions that differ in others share partials.
        result: The table `reduce` returns, before columns outside the grain are dropped.
    """

    name: str
    question: str
    needs: tuple[str, ...]
    partial: Table
    result: Table
    map: Callable[[Trace, Options], pl.DataFrame]
    reduce: Callable[[pl.DataFrame, Options], pl.DataFrame]
    grains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    maps_by: tuple[str, ...] | None = None

    def mapped(self, by: tuple[str, ...]) -> tuple[str, ...]:
        """What `map` looks at of ``by``."""
        return by if self.maps_by is None else tuple(grain for grain in by if grain in self.maps_by)
