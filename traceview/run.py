"""`Run`: the ranks of one job, recorded together. Which files belong together is decided here.

Two recordings in one folder must never be mixed, so a trace joins a run only if its rank is not taken
there, its job has the same size, and, where the rank was not recorded, its window overlaps the others'.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.errors import UsageError
from traceview.recipe import Recipe
from traceview.schema import DIAGNOSTICS, TABLES
from traceview.trace import Trace, diagnostic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_RANK_FOLDER = re.compile(r"^(?:global_?)?(?:rank|proc|worker|process)[-_]?\d+$", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Run:
    """The traces of one job, one per rank, ordered by rank.

    Canonical tables over all ranks are attributes: ``run.ops``, ``run.collectives``, ``run.steps`` ... are
    LazyFrames with the columns of `traceview.schema`. ``recipe`` is what its owner says about the job.
    """

    name: str
    traces: tuple[Trace, ...]
    notes: pl.DataFrame = field(default_factory=DIAGNOSTICS.empty)
    recipe: Recipe = field(default_factory=Recipe)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Ranks present, ascending."""
        return tuple(trace.facts.rank or 0 for trace in self.traces)

    @cached_property
    def world_size(self) -> int | None:
        """Ranks of the job as recorded, or None."""
        return max((t.facts.world_size for t in self.traces if t.facts.world_size), default=None)

    @property
    def folder(self) -> Path:
        """The folder that holds its traces."""
        return _folder(self.traces[0])

    @cached_property
    def diagnostics(self) -> pl.DataFrame:
        """Everything that was assumed, repaired or left out, over all ranks; most severe first."""
        rows = pl.concat([self.notes, *(trace.diagnostics for trace in self.traces)])
        return rows.sort(pl.col("severity").to_physical(), "code", "rank", descending=[True, False, False])

    def table(self, name: str) -> pl.LazyFrame:
        """Table ``name`` of all ranks that recorded it."""
        if name == "diagnostics":
            return self.diagnostics.lazy()
        frames = [trace.table(name) for trace in self.traces if name in trace.tables]
        return pl.concat(frames).lazy() if frames else TABLES[name].empty().lazy()

    def __getattr__(self, name: str) -> pl.LazyFrame:
        """Canonical tables as attributes."""
        if name in TABLES:
            return self.table(name)
        message = f"'Run' has no attribute or table '{name}'; tables: {', '.join(TABLES)}"
        raise AttributeError(message)

    def __repr__(self) -> str:
        """One line: name, ranks, device, steps."""
        facts = self.traces[0].facts
        steps = len(self.traces[0].tables["steps"]) if "steps" in self.traces[0].tables else 0
        of = f" of {self.world_size}" if self.world_size and self.world_size != len(self.ranks) else ""
        device = f", {_plain(facts.device_name)}" if facts.device_name else ""
        name = _plain(self.name)
        return f"<Run '{name}': {len(self.ranks)}{of} ranks, {facts.format}{device}, {steps} steps>"

    def _repr_html_(self) -> str:
        """What a notebook shows; reads two small tables of one rank and analyses nothing."""
        # by name, as contributors' modules are found: reports know runs, and not the other way round
        shown: str = importlib.import_module("traceview.reports.notebook").run(self)
        return shown


def only_ranks(run: Run, ranks: Collection[int]) -> Run:
    """The run reduced to some of its ranks.

    Raises:
        UsageError: None of them is present.
    """
    kept = tuple(trace for trace in run.traces if trace.facts.rank in ranks)
    if not kept:
        message = f"run '{run.name}' has none of the ranks asked for; it has {_listed(run.ranks)}."
        raise UsageError(message)
    return replace(run, traces=kept)


def group(traces: Iterable[Trace]) -> list[Run]:
    """Traces as runs, by folder, then by rank and time."""
    by_folder = sorted(
        traces, key=lambda trace: (_folder(trace).parts, trace.facts.start_ns, trace.facts.path)
    )
    return [run for folder, found in groupby(by_folder, key=_folder) for run in _runs_of(folder, list(found))]


def _folder(trace: Trace) -> Path:
    """The folder that holds the job; folders named after one rank are looked through."""
    parent = Path(trace.facts.path).parent
    return parent.parent if _RANK_FOLDER.match(parent.name) else parent


def _runs_of(folder: Path, traces: list[Trace]) -> Iterator[Run]:
    batches: list[list[Trace]] = []
    for trace in traces:
        home = next((batch for batch in reversed(batches) if _belongs(trace, batch)), None)
        if home is None:
            batches.append([trace])
        else:
            home.append(trace)
    label = folder.name or "run"
    for number, batch in enumerate(batches, start=1):
        single = (
            Path(batch[0].facts.path).name.split(".")[0] if len(batch) == 1 and len(batches) > 1 else None
        )
        yield _run(single or (label if len(batches) == 1 else f"{label}#{number}"), batch)


def _belongs(trace: Trace, batch: list[Trace]) -> bool:
    facts, others = trace.facts, [member.facts for member in batch]
    if facts.world_size != others[0].world_size or facts.format != others[0].format:
        return False
    if facts.rank is not None and all(other.rank is not None for other in others):
        return facts.rank not in {other.rank for other in others}
    # ranks that nobody recorded: only windows that overlap were recorded together
    begin, end = min(other.start_ns for other in others), max(other.end_ns for other in others)
    return facts.start_ns < end and begin < facts.end_ns


def _run(name: str, traces: list[Trace]) -> Run:
    taken = {trace.facts.rank for trace in traces} - {None}
    free = (rank for rank in range(len(traces) + len(taken)) if rank not in taken)
    notes = []
    numbered = []
    for trace in sorted(traces, key=lambda trace: (trace.facts.path, trace.facts.pid or 0)):
        if trace.facts.rank is None:
            numbered.append(trace.with_rank(next(free), "assumed"))
        else:
            numbered.append(trace)
    assumed = [trace for trace in numbered if trace.facts.rank_source == "assumed"]
    if assumed:
        text = f"{units.plural(len(assumed), 'file')} name no rank; numbered in order of file name"
        severity = "warning" if len(numbered) > 1 else "info"
        notes.append(diagnostic(severity, "run.rank_assumed", text, count=len(assumed)))
    run = Run(name, tuple(sorted(numbered, key=lambda trace: trace.facts.rank or 0)))
    if run.world_size and len(run.ranks) < run.world_size:
        text = f"{len(run.ranks)} of {run.world_size} ranks are here; figures describe these ranks only"
        notes.append(diagnostic("info", "run.ranks_missing", text, count=run.world_size - len(run.ranks)))
    nameless = [trace for trace in run.traces if trace.facts.host is None]
    if nameless and len(run.ranks) > 1:
        text = (
            f"{units.plural(len(nameless), 'file')} name no host; such ranks share a clock only as far as "
            "the ends of their collectives agree"
        )
        notes.append(diagnostic("info", "run.host_unknown", text, count=len(nameless)))
    return replace(run, notes=pl.concat([run.notes, *notes]))


def _plain(name: str) -> str:
    """A recorded name on one short line."""
    return "".join(letter if letter.isprintable() else " " for letter in name[:80])


def _listed(ranks: Collection[int]) -> str:
    text = ", ".join(map(str, list(ranks)[:16]))
    return text + (" ..." if len(ranks) > 16 else "")
