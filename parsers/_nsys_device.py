"""Device work of an Nsight Systems report, the host calls that started it, and the waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import schema
from traceview.parsers import _nsys_ids
from traceview.parsers._nsys_ids import NAMES, Names, matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.parsers._nsys_export import Export

_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array",
    4: "Managed", 5: "Device Static", 6: "Managed Static", 7: "Unknown",
}  # fmt: skip
"""Where memory lies, by number."""
_SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_NO_STREAM = (1 << 32) - 1  # event and context synchronisations

_SPELLINGS = ("demangledName", "shortName", "mangledName")  # the first of them that is known
_KINDS = schema.OPS.columns["kind"].dtype

_LAUNCHING = r"(?i)launch|memcpy|memset|sync|wait|graph"
_CALL = dict.fromkeys(("process", "pid", "tid", "start", "end", "correlation"), pl.Int64()) | {"name": NAMES}
_COMMON = ("process", "start", "end", "device", "stream", "kind", "name", "correlation")


def work(export: Export) -> pl.DataFrame:
    """Kernels, copies, fills and opaque graphs: ``process, start, end`` and the columns of `PARSED_OPS`."""
    parts = [*_kernels(export), _copies(export), _fills(export), _graphs(export)]
    # row order says nothing in an export
    return pl.concat(parts, how="diagonal").sort("start", "end", "device", "stream", maintain_order=True)


def _common(kind: str) -> dict[str, pl.Expr | str]:
    return {
        "process": _nsys_ids.process("globalPid"),
        "device": pl.col("deviceId").cast(pl.Int32, strict=False),
        "stream": pl.col("streamId"),
        "kind": pl.lit(kind, _KINDS),
        "correlation": _nonzero("correlationId"),
    }


def _nonzero(column: str) -> pl.Expr:
    """The id; 0 means none."""
    return pl.when(pl.col(column) != 0).then(column)


def _kernels(export: Export) -> Iterator[pl.DataFrame]:
    """Kernels, in batches without what they no longer need: there may be tens of millions."""
    names = Names(export)
    grid_blocks = pl.col("gridX") * pl.col("gridY") * pl.col("gridZ")
    named = pl.coalesce(*(f"{spelling}_text" for spelling in _SPELLINGS), pl.lit("(unnamed kernel)", NAMES))
    for batch in export.batches("CUPTI_ACTIVITY_KIND_KERNEL"):
        rows = batch
        for spelling in _SPELLINGS:
            rows = names.add(rows, spelling, alias=f"{spelling}_text")
        yield rows.with_columns(
            **_common("kernel"), name=named, graph_node_id=_nonzero("graphNodeId"), grid_blocks=grid_blocks
        ).select(*_COMMON, "graph_node_id", "grid_blocks")


def _copies(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_MEMCPY")
    copy_kind = _label("copyKind", _COPY_KINDS)
    ends = pl.format(" ({} -> {})", _label("srcKind", MEMORY_KINDS), _label("dstKind", MEMORY_KINDS))
    name = pl.concat_str(pl.lit("Memcpy "), copy_kind.fill_null("of unknown kind"), ends.fill_null(""))
    return rows.with_columns(
        **_common("memcpy"), name=name.cast(NAMES), graph_node_id=_nonzero("graphNodeId"), copy_kind=copy_kind
    ).select(*_COMMON, "graph_node_id", "bytes", "copy_kind")


def _fills(export: Export) -> pl.DataFrame:
    rows = export.table("CUPTI_ACTIVITY_KIND_MEMSET")
    name = pl.format("Memset ({})", _label("memKind", MEMORY_KINDS)).fill_null("Memset")
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
    empty = pl.DataFrame(schema=_CALL)
    calls = pl.concat([empty, *_calls(export, correlations)], rechunk=True)
    return calls.sort("start", "end", maintain_order=True)


def _calls(export: Export, correlations: pl.DataFrame) -> Iterator[pl.DataFrame]:
    names = Names(export)
    for batch in export.batches("CUPTI_ACTIVITY_KIND_RUNTIME"):
        calls = names.add(batch, "nameId", alias="name").select(
            "start",
            "end",
            process=_nsys_ids.process("globalTid"),
            pid=_nsys_ids.pid("globalTid"),
            tid=_nsys_ids.tid("globalTid"),
            name=pl.col("name").fill_null("(unnamed call)"),
            correlation=_nonzero("correlationId"),
        )
        launching = matches(calls["name"], _LAUNCHING)
        others = calls.filter(~launching)
        # few numbers are left to look for
        near = correlations.filter(pl.col("correlation").is_in(others["correlation"].unique().implode()))
        linked = others.join(near, on=["process", "correlation"], how="semi", maintain_order="left")
        kept = pl.concat([calls.filter(launching), linked])
        yield kept.with_columns(_unversioned(kept["name"])).select(*_CALL)


def _unversioned(names: pl.Series) -> pl.Series:
    """Names of calls without the version of the API that brought them; a driver's ``_v2`` is its own."""
    different = names.unique().drop_nulls()
    plain = different.cast(pl.String).str.replace(r"_v\d{4,}$", "").cast(NAMES)
    return names.replace_strict(different, plain, return_dtype=NAMES)


def overheads(export: Export) -> pl.DataFrame:
    """What the profiler itself did on the host: ``process, start, end`` and the columns of `OVERHEADS`."""
    rows = Names(export).add(export.table("PROFILER_OVERHEAD"), "nameId", alias="name")
    unnamed = pl.lit("(unnamed overhead)", NAMES)
    return rows.select(
        "start", "end", process=_nsys_ids.process("globalTid"), name=pl.coalesce("name", unnamed)
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
