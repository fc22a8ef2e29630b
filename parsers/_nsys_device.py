"""Device work of an Nsight Systems report, the host calls that started it, and the waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers import _nsys_ids
from traceview.parsers._nsys_ids import NAMES

if TYPE_CHECKING:
    from traceview.parsers._nsys_export import Export

_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
_MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array",
    4: "Managed", 5: "Device Static", 6: "Managed Static", 7: "Unknown",
}  # fmt: skip
_SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_NO_STREAM = (1 << 32) - 1  # event and context synchronisations

_LAUNCHING = r"(?i)launch|memcpy|memset|sync|wait|graph"
_COMMON = ("process", "start", "end", "device", "stream", "kind", "name", "correlation")


def work(export: Export) -> pl.DataFrame:
    """Kernels, copies, fills and opaque graphs: ``process, start, end`` and the columns of `PARSED_OPS`."""
    parts = [_kernels(export), _copies(export), _fills(export), _graphs(export)]
    # row order says nothing in an export
    return pl.concat(parts, how="diagonal").sort("start", "end", "device", "stream", maintain_order=True)


def _common(kind: str) -> dict[str, pl.Expr | str]:
    return {
        "process": _nsys_ids.process("globalPid"),
        "device": pl.col("deviceId"),
        "stream": pl.col("streamId"),
        "kind": pl.lit(kind),
        "correlation": _nonzero("correlationId"),
    }


def _nonzero(column: str) -> pl.Expr:
    """The id; 0 means none."""
    return pl.when(pl.col(column) != 0).then(column)


def _kernels(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    spellings = ("demangledName", "shortName", "mangledName")
    known = _nsys_ids.names(export, [rows[spelling] for spelling in spellings])
    for spelling in spellings:
        rows = _nsys_ids.with_name(rows, spelling, known, alias=f"{spelling}_text")
    name = pl.coalesce(*(f"{spelling}_text" for spelling in spellings), pl.lit("(unnamed kernel)", NAMES))
    grid_blocks = pl.col("gridX") * pl.col("gridY") * pl.col("gridZ")
    return rows.with_columns(
        **_common("kernel"), name=name, graph_node_id=_nonzero("graphNodeId"), grid_blocks=grid_blocks
    ).select(*_COMMON, "graph_node_id", "grid_blocks")


def _copies(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_MEMCPY")
    copy_kind = _label("copyKind", _COPY_KINDS)
    ends = pl.format(" ({} -> {})", _label("srcKind", _MEMORY_KINDS), _label("dstKind", _MEMORY_KINDS))
    name = pl.concat_str(pl.lit("Memcpy "), copy_kind.fill_null("of unknown kind"), ends.fill_null(""))
    return rows.with_columns(
        **_common("memcpy"), name=name.cast(NAMES), graph_node_id=_nonzero("graphNodeId"), copy_kind=copy_kind
    ).select(*_COMMON, "graph_node_id", "bytes", "copy_kind")


def _fills(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_MEMSET")
    name = pl.format("Memset ({})", _label("memKind", _MEMORY_KINDS)).fill_null("Memset")
    return rows.with_columns(
        **_common("memset"), name=name.cast(NAMES), graph_node_id=_nonzero("graphNodeId")
    ).select(*_COMMON, "graph_node_id", "bytes")


def _graphs(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    name = pl.format("CUDA graph {}", pl.col("graphId")).fill_null("CUDA graph")
    return rows.with_columns(**_common("graph"), name=name.cast(NAMES)).select(*_COMMON)


def _label(column: str, labels: dict[int, str]) -> pl.Expr:
    return pl.col(column).replace_strict(labels, default=None, return_dtype=pl.String)


def launches(export: Export, correlations: pl.DataFrame) -> pl.DataFrame:
    """Host calls that start device work or wait for it.

    Args:
        export: The report.
        correlations: ``process, correlation`` of the device work; whatever its name, a call that is here
            started some.

    Returns:
        ``process, pid, tid, start, end, name, correlation``.
    """
    rows = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    known = _nsys_ids.names(export, [rows["nameId"]])
    # the runtime's names carry the API version that introduced them; a driver's `_v2` is part of its name
    plain = known.with_columns(pl.col("name").cast(pl.String).str.replace(r"_v\d{4,}$", "").cast(NAMES))
    launching = plain.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCHING))["id"]
    calls = _nsys_ids.with_name(rows, "nameId", plain, alias="name").select(
        "start",
        "end",
        process=_nsys_ids.process("globalTid"),
        pid=_nsys_ids.pid("globalTid"),
        tid=_nsys_ids.tid("globalTid"),
        name=pl.col("name").fill_null("(unnamed call)"),
        correlation=_nonzero("correlationId"),
        named=pl.col("nameId").is_in(launching.implode()),
    )
    linked = correlations.drop_nulls().unique().with_columns(linked=pl.lit(value=True))
    marked = calls.join(linked, on=["process", "correlation"], how="left", maintain_order="left")
    kept = marked.filter(pl.col("named") | pl.col("linked").fill_null(value=False))
    return kept.drop("named", "linked").sort("start", "end", maintain_order=True)


def overheads(export: Export) -> pl.DataFrame:
    """What the profiler itself did on the host: ``process, start, end`` and the columns of `OVERHEADS`."""
    rows = export.table("PROFILER_OVERHEAD")
    named = _nsys_ids.with_name(rows, "nameId", _nsys_ids.names(export, [rows["nameId"]]), alias="name")
    return named.select(
        "start",
        "end",
        process=_nsys_ids.process("globalTid"),
        name=pl.col("name").fill_null("(unnamed overhead)"),
    ).sort("start", "end", maintain_order=True)


def syncs(export: Export) -> pl.DataFrame:
    """Waits of the host or of a stream: ``process, start, end`` and the columns of `SYNCS`."""
    rows = export.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    return rows.select(
        "start",
        "end",
        process=_nsys_ids.process("globalPid"),
        device="deviceId",
        stream=pl.when(pl.col("streamId") != _NO_STREAM).then("streamId"),
        name=_label("syncType", _SYNC_KINDS).fill_null("Sync").cast(NAMES),
        correlation=_nonzero("correlationId"),
    ).sort("start", "end", maintain_order=True)
