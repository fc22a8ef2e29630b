"""From what a parser read to what analyzers need: the same stages for every format.

classify every distinct name → read the ranges' names → attribute ops through their launch → steps →
resolve collectives. Whatever could not be told is a diagnostics row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.attribution import with_context, with_launch
from traceview.axes import with_axis
from traceview.classify import unmatched
from traceview.collectives import resolve
from traceview.schema import GROUPS, OPS, RANGES
from traceview.steps import device_steps, host_steps, step_of_launch
from traceview.trace import diagnostic
from traceview.vocabulary import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.classify import Classifier
    from traceview.trace import Trace

UNMATCHED_SHARE = 0.02
"""A larger share of kernel time in category ``other`` is worth a warning."""

ORPHAN_SHARE = 0.01


def prepare(trace: Trace, classifier: Classifier) -> Trace:
    """The trace with complete `OPS`, `RANGES`, `GROUPS`, and with `STEPS` and `COLLECTIVE_OPS`."""
    launches = trace.table("launches")
    ranges, operators = _with_meaning(trace.table("ranges"), trace.table("host_ops"))
    host = host_steps(ranges)
    ops = with_launch(classifier.annotate(trace.table("ops")), launches)
    ops = ops.with_columns(step_of_launch(host, ops["launch_ts_ns"]))
    ops = with_context(ops, pl.concat([ranges, operators]))
    world_size = trace.facts.world_size
    groups = with_axis(
        trace.table("groups"), desc="group_desc", name="group_name", size="group_size", world_size=world_size
    )
    ops, collectives = resolve(ops, trace.table("comm_calls"), ranges, groups, world_size=world_size)
    prepared = trace.with_tables(
        ops=OPS.conform(ops),
        collectives=collectives,
        ranges=RANGES.conform(ranges),
        groups=GROUPS.conform(groups),
        steps=device_steps(host, ops, launches),
    )
    return prepared.with_diagnostics(*_notes(prepared))


def _with_meaning(ranges: pl.DataFrame, host_ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The ranges beside what their names mean; and, as further ranges, the operators whose names tell any.

    Each distinct name is read once.
    """
    domain = pl.lit("operator").cast(RANGES.columns["domain"].dtype)
    operators = host_ops.rename({"name": "raw_name"}).with_columns(domain=domain)
    meaning = parse(pl.concat([ranges["raw_name"], operators["raw_name"]]).unique())
    named, told = (
        frame.join(meaning, on="raw_name", how="left", maintain_order="left") for frame in (ranges, operators)
    )
    tells = pl.col("phase").is_not_null() | pl.col("part").is_not_null()
    return named, told.filter(tells).select(named.columns)


def _notes(trace: Trace) -> Iterator[pl.DataFrame]:
    rank, ops, steps = trace.facts.rank or 0, trace.table("ops"), trace.table("steps")
    share, names = unmatched(ops)
    if share > UNMATCHED_SHARE:
        listed = ", ".join(name[:60] for name in names[:5])
        text = f"{units.percent(share)} of kernel time has names no rule knows (counted as compute): {listed}"
        yield diagnostic("warning", "classify.unmatched", text, count=len(names), rank=rank)
    unresolved = trace.table("collectives").filter(pl.col("resolved_by") == "unresolved")
    if len(unresolved):
        text = (
            f"{units.plural(len(unresolved), 'communication op')} "
            f"({units.duration(int(unresolved['dur_ns'].sum()))}) could not be told apart"
        )
        yield diagnostic("warning", "collectives.unresolved", text, count=len(unresolved), rank=rank)
    orphans = ops["launch_ts_ns"].null_count()
    if len(ops) and orphans / len(ops) > ORPHAN_SHARE:
        text = f"{orphans} of {len(ops)} device ops have no recorded launch, hence no step, layer or phase"
        yield diagnostic("info", "ops.without_launch", text, count=orphans, rank=rank)
    if not len(ops):
        yield diagnostic("warning", "ops.none", "no device work was recorded", count=0, rank=rank)
    if len(ops) and not len(steps):
        text = "nothing marks training steps; the whole device window is one window"
        yield diagnostic("info", "steps.none", text, count=0, rank=rank)
    left_out = steps.filter(pl.col("status") != "complete")
    if len(left_out):
        listed = ", ".join(
            f"{step} ({status})" for step, status in left_out.select("step", "status").iter_rows()
        )
        text = f"steps left out by default: {listed}"
        yield diagnostic("info", "steps.left_out", text, count=len(left_out), rank=rank)
