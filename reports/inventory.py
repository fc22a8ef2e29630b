"""What lies in a run's traces, before any analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.reports import coverage
from traceview.reports.about import About
from traceview.reports.evidence import EVIDENCE, missing
from traceview.reports.notices import Notice, notices
from traceview.reports.printable import printable
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from traceview.recipe import Recipe
    from traceview.reports.coverage import Coverage
    from traceview.run import Run
    from traceview.trace import Trace

_STR, _COUNT = pl.String(), pl.Int64()

INVENTORY = Table(
    "inventory",
    "One row per rank: what its trace holds and what it lacks.",
    {
        "rank": Column(pl.Int32(), "global rank"),
        "rank_source": Column(_STR, "evidence for the rank"),
        "format": Column(_STR, "trace format"),
        "world_size": Column(_COUNT, "ranks of the job", nullable=True),
        "host": Column(_STR, "host name", nullable=True),
        "device_name": Column(_STR, "marketing name of the device", nullable=True),
        "device_count": Column(_COUNT, "devices with work"),
        "stream_count": Column(_COUNT, "streams with work, over devices"),
        "step_count": Column(_COUNT, "steps found, incomplete ones included"),
        "op_count": Column(_COUNT, "pieces of device work"),
        "collective_count": Column(_COUNT, "pieces of device work that communicate"),
        "group_count": Column(_COUNT, "process groups recorded"),
        "event_count": Column(_COUNT, "events in the file"),
        "span_ns": Column(_COUNT, "first start to last end of device work", "ns"),
        "clock": Column(_STR, "what the trace's clock counts from"),
        "missing": Column(pl.List(pl.String()), "codes of missing evidence"),
        "path": Column(_STR, "file"),
    },
)

GAPS = Table(
    "missing",
    "One row per kind of evidence that some ranks lack.",
    {
        "code": Column(_STR, "kind of evidence"),
        "consequence": Column(_STR, "what cannot be told without it"),
        "remedy": Column(_STR, "how to record it"),
        "rank_count": Column(_COUNT, "ranks without it"),
    },
)

GROUPS = ("axis", "group_name", "group_desc", "group_size")


@dataclass(frozen=True, slots=True)
class Inventory:
    """One run's contents.

    Attributes:
        about: Which run.
        rows: `INVENTORY`.
        groups: One row per distinct process group (columns `GROUPS`), and how many ranks named it.
        gaps: `GAPS`.
        notices: Diagnostics, grouped.
        recipe: What ``run.toml`` beside it says.
        coverage: What device work was taken for.
    """

    about: About
    rows: pl.DataFrame
    groups: pl.DataFrame
    gaps: pl.DataFrame
    notices: tuple[Notice, ...]
    recipe: Recipe
    coverage: Coverage


def take(run: Run) -> Inventory:
    """What ``run`` holds; every rank's tables are looked at once."""
    looked_at = [_look(trace.held()) for trace in run.traces]
    found = [row for row, _ in looked_at]
    rows = INVENTORY.conform(pl.DataFrame(found, schema=INVENTORY.schema()))
    texts = [pl.col(name).cast(pl.String) for name in GROUPS[:3]]
    groups = run.table("groups").select(*texts, "group_size", "rank").collect()
    return Inventory(
        about=About.of(run),
        rows=rows,
        groups=groups.group_by(GROUPS).agg(rank_count=pl.col("rank").n_unique()).sort(GROUPS),
        gaps=_gaps(rows),
        notices=tuple(notices(run.diagnostics)),
        recipe=run.recipe,
        coverage=coverage.merged([part for _, part in looked_at]),
    )


def _look(trace: Trace) -> tuple[dict[str, Any], Coverage]:
    return _row(trace), coverage.of_rank(trace)


def _row(trace: Trace) -> dict[str, Any]:
    facts, ops = trace.facts, trace.table("ops")
    return {
        "rank": facts.rank,
        "rank_source": facts.rank_source,
        "format": facts.format,
        "world_size": facts.world_size,
        "host": facts.host,
        "device_name": facts.device_name,
        "device_count": ops["device"].n_unique(),
        "stream_count": len(ops.select("device", "stream").unique()),
        "step_count": len(trace.table("steps")),
        "op_count": len(ops),
        "collective_count": len(trace.table("collectives")),
        "group_count": len(trace.table("groups")),
        "event_count": facts.event_count,
        "span_ns": facts.end_ns - facts.start_ns,
        "clock": facts.clock,
        "missing": missing(trace),
        "path": printable(facts.path),  # a file name may be no Unicode at all
    }


def _gaps(rows: pl.DataFrame) -> pl.DataFrame:
    lacking = rows["missing"].explode().drop_nulls().value_counts(name="rank_count")
    counts = dict(lacking.iter_rows())
    found = [
        {
            "code": evidence.code,
            "consequence": evidence.consequence,
            "remedy": evidence.remedy,
            "rank_count": counts[evidence.code],
        }
        for evidence in EVIDENCE
        if evidence.code in counts
    ]
    return GAPS.conform(pl.DataFrame(found, schema=GAPS.schema()))
