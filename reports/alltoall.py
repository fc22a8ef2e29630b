"""Latency and bandwidth of exchanges as blocks of text; `alltoall` and `collectives` share the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers._latency_table import KEYS, NONE
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS = 24
"""Rows shown; the rest is counted."""

_HEADS = (
    "ops",
    "p50 ms",
    "p99 ms",
    "wait %",
    "transfer p50 ms",
    "exposed ms",
    "of it wait ms",
    "sync ms",
    "sync exposed ms",
    "sent",
    "max/mean",
    "GB/s",
    "expected",
    "%",
)


def page(
    about: About, rows: pl.DataFrame, found: Sequence[Notice], *, every_notice: bool = False
) -> list[Block]:
    """The page of ``traceview alltoall`` or ``traceview collectives`` about one run.

    Args:
        about: Which run.
        rows: Result of `alltoall` or `collectives`.
        found: Diagnostics, grouped.
        every_notice: Show all of them.
    """
    cost = pl.col("exposed_ns") + pl.col("sync_exposed_ns")
    ranked = rows.sort(cost, "dur_ns", descending=True, maintain_order=True)
    return [
        Facts((*margins.facts(about), *margins.recorded(about))),
        *_grid(ranked),
        *_gaps(rows),
        *margins.foot(about, found, " ".join(_sentences(ranked)), every_notice=every_notice),
    ]


# --- table -------------------------------------------------------------------------------------------


def _grid(ranked: pl.DataFrame) -> Iterator[Block]:
    if not len(ranked):
        return
    keys = [key for key in KEYS if ranked[key].count()]
    shown = ranked.head(ROWS)
    lines = tuple(
        (*(_key_text(key, row[key]) for key in keys), *_cells(row)) for row in shown.iter_rows(named=True)
    )
    title = "exchanges; exposed and sync times are per rank and window"
    yield Grid(title, (*keys, *_HEADS), lines, label_count=len(keys))
    yield from margins.more_rows(len(ranked), len(shown))


def _key_text(key: str, value: Any) -> str:  # noqa: ANN401 - a cell of any key
    if value is None or value == NONE:
        return ""
    return units.size(value) if key == "size_bytes" else str(value)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        units.count(row["op_count"]),
        units.milliseconds(row["dur_p50_ns"]),
        units.milliseconds(row["dur_p99_ns"]),
        units.percent_value(row["wait_ratio"]),
        units.milliseconds(row["transfer_p50_ns"]),
        units.milliseconds(_per_window(row, "exposed_ns")),
        units.milliseconds(_per_window(row, "exposed_wait_ns")),
        units.milliseconds(_per_window(row, "sync_ns")),
        units.milliseconds(_per_window(row, "sync_exposed_ns")),
        units.size(row["sent_bytes"]),
        units.MISSING if row["bytes_imbalance"] is None else units.significant(row["bytes_imbalance"]),
        _giga(row["busbw_bytes_per_s"]),
        _giga(row["expected_bytes_per_s"]),
        units.percent_value(row["expected_ratio"]),
    )


def _per_window(row: Mapping[str, Any], name: str) -> float | None:
    return row[name] / row["window_count"] if row["window_count"] and row[name] is not None else None


def _giga(value: float | None) -> str:
    return units.MISSING if value is None else units.significant(value / 1e9)


# --- what is missing ---------------------------------------------------------------------------------


def _gaps(rows: pl.DataFrame) -> Iterator[Note]:
    counts = ("instance_count", "complete_count")
    silent = pl.col("op_count").filter(pl.col("sent_bytes").is_null())
    found = rows.select(
        pl.col(*counts).sum(), silent=silent.sum(), uncertainty_ns=pl.col("uncertainty_ns").max()
    ).row(0, named=True)
    if found["silent"]:
        text = (
            f"bytes are not known of every op in rows with {units.plural(found['silent'], 'op')} "
            "(transports such as DeepEP record no sizes), so neither is what they sent"
        )
        yield Note(text, "missing")
    if lacking := found["instance_count"] - found["complete_count"]:
        text = (
            f"{lacking:,} of {units.plural(found['instance_count'], 'exchange')} lack a rank's record: "
            "their waiting cannot be told from moving bytes"
        )
        yield Note(text, "missing")
    if found["uncertainty_ns"]:
        within = units.duration(found["uncertainty_ns"])
        text = f"hosts' clocks agree within {within} (95 %): ± that much on every wait and transfer"
        yield Note(text, "info")


# --- sentences ---------------------------------------------------------------------------------------


def _sentences(ranked: pl.DataFrame) -> Iterator[str]:
    if not len(ranked):
        yield "No such exchange was recorded."
        return
    row = ranked.row(0, named=True)
    exposed, sync = row["exposed_ns"], row["sync_exposed_ns"]
    if not exposed + sync:
        yield "None of it is exposed while nothing else communicates."
        return
    yield f"Most exposed: {_name(row)}, {_cost(row, exposed + sync)}; {_cause(row)}."
    yield from _speed(row)


def _name(row: Mapping[str, Any]) -> str:
    words = (_key_text(key, row[key]) for key in KEYS if key not in {"rank", "step", "layer"})
    numbers = (f"{key} {row[key]}" for key in ("rank", "step", "layer") if row[key] is not None)
    return " ".join(word for word in (*words, *numbers) if word) or "everything"


def _cost(row: Mapping[str, Any], exposed_ns: int) -> str:
    windows, length = row["window_count"], row["window_ns"]
    if not windows:
        return f"{units.duration(exposed_ns)} in all"
    share = units.percent(exposed_ns / length if length else None)
    return f"{units.duration(exposed_ns / windows)} per rank and window ({share} of it)"


def _cause(row: Mapping[str, Any]) -> str:
    """Waiting or moving bytes, as far as it can be told."""
    wait, transfer, sync = row["exposed_wait_ns"], row["exposed_transfer_ns"], row["sync_exposed_ns"]
    total = row["exposed_ns"] + sync
    if wait is None:
        barrier = f"{units.percent(sync / total)} of that is barriers, which move nothing; " if sync else ""
        return f"{barrier}waiting and moving bytes cannot be told apart without all ranks"
    if wait + sync > transfer:
        return f"{units.percent((wait + sync) / total)} of that is waiting for other ranks"
    return f"{units.percent(transfer / total)} of that is moving bytes"


def _speed(row: Mapping[str, Any]) -> Iterator[str]:
    """How far from what can be expected."""
    rate, expected, ratio = (
        row[name] for name in ("busbw_bytes_per_s", "expected_bytes_per_s", "expected_ratio")
    )
    if rate is None:
        return
    text = f"Once all are there it moves {_giga(rate)} GB/s"
    if ratio is not None:
        text += f", {units.percent(ratio)} of {_giga(expected)} GB/s: {row['expected_source']}"
    yield f"{text}."
