"""The page of ``traceview traffic``: who sends how many bytes to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 24
_KEYS = ("rank", "peer", "node", "peer_node", "step", "axis", "role")
NONE = "No op recorded both its peers and its bytes, so there is no matrix to show."
REMEDY = (
    "Bytes per peer need NCCL all-to-alls with split sizes: PyTorch 2.3 or newer with ProfilerActivity.CPU, "
    "in groups of at most 30 ranks (the profiler cuts longer lists). DeepEP and the like record none."
)


def page(
    about: About, rows: pl.DataFrame, found: Sequence[Notice], *, every_notice: bool = False
) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        rows: Its `traffic` in the grain asked for.
        found: Diagnostics, grouped.
        every_notice: Show all of them.
    """
    blocks: list[Block] = [Facts(tuple(margins.facts(about)))]
    known = rows.drop_nulls("sent_bytes").sort(-pl.col("sent_bytes"), *_KEYS)
    if len(known):
        keys = [key for key in _KEYS if known[key].count()]
        heads = (*keys, "ops", "sent", "within the scale-up domain %", "bytes are")
        lines = tuple(_cells(row, keys) for row in known.head(ROWS).iter_rows(named=True))
        blocks.append(Grid("bytes sent to other ranks", heads, lines, label_count=len(keys)))
    blocks += margins.more_rows(len(known), ROWS)
    blocks += _gaps(rows)
    return [*blocks, *margins.foot(about, found, sentence(rows), every_notice=every_notice)]


def sentence(rows: pl.DataFrame) -> str:
    """The one line to remember about a `traffic` result of any grain."""
    known = rows.drop_nulls("sent_bytes")
    sent, near = int(known["sent_bytes"].sum()), int(known["scale_up_bytes"].sum())
    if not sent:
        return NONE
    text = f"{units.size(sent)} sent, {units.percent(near / sent)} of it within the scale-up domain"
    if known["peer"].count() and known["rank"].count():
        most = known.sort(-pl.col("sent_bytes"), "rank", "peer").row(0, named=True)
        mean = sent / len(known)
        text += (
            f"; most from rank {most['rank']} to rank {most['peer']}: "
            f"{units.significant(most['sent_bytes'] / mean)} times the mean of a pair"
        )
    return f"{text}."


def _cells(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    share = row["scale_up_bytes"] / row["sent_bytes"] if row["sent_bytes"] else None
    return (
        *("" if row[key] is None else str(row[key]) for key in keys),
        units.count(row["op_count"]),
        units.size(row["sent_bytes"]),
        units.percent_value(share),
        str(row["bytes_method"]),
    )


def _gaps(rows: pl.DataFrame) -> Iterator[Note]:
    silent = int(rows.filter(pl.col("sent_bytes").is_null())["op_count"].sum())
    if silent:
        yield Note(f"of {units.plural(silent, 'op')} peers or bytes were not recorded. {REMEDY}", "missing")
