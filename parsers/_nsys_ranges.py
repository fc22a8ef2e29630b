"""NVTX ranges of an Nsight Systems report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers import _nsys_ids, _nsys_mpi
from traceview.parsers._nsys_export import Only
from traceview.parsers._nsys_ids import NAMES, Names

if TYPE_CHECKING:
    from traceview.parsers._nsys_export import Export

_PUSH_POP, _START_END, _PUSH_POP_IMPORTED, _START_END_IMPORTED = 59, 60, 70, 71
_RANGE_TYPES = (_PUSH_POP, _START_END, _PUSH_POP_IMPORTED, _START_END_IMPORTED)
_DOMAIN_CREATE = 75

DEFAULT_DOMAIN = "default"
NCCL_DOMAIN = "NCCL"
_NCCL_CALL = r"^nccl[A-Z]"

KEPT_OPERATORS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_mm",
    "aten::_grouped_mm",
    "aten::_scaled_grouped_mm",
    "aten::item",
    "aten::nonzero",
    "aten::_local_scalar_dense",
)
"""ATen operators that later stages read: for their shapes, or since the host waits in them."""

# PyTorch's emit_nvtx appends running numbers, which would make every name unique
_NUMBERED = r"^(.*?), (?:seq|op_id) = "
_SIZES = r", sizes = (\[.*?\])(?:, \w+ = |$)"
_MAX_SHAPES = 4096


def ranges(export: Export) -> pl.DataFrame:
    """Ranges in order of their start, MPI's calls among them.

    Returns:
        ``process, pid, tid, domain, start, end, name, shapes, payload``. ``end`` is null for a
        range left open; ``tid`` is null for one that another thread ended; ``name`` has no running numbers;
        ``shapes`` are those that emit_nvtx recorded; ``payload`` is the extended payload as exported.
    """
    rows = export.table("NVTX_EVENTS", Only("eventType", [*_RANGE_TYPES, _DOMAIN_CREATE]))
    read = (
        Names(export)
        .add(rows, "textId", alias="registered")
        .with_columns(
            process=_nsys_ids.process("globalTid"),
            full_name=pl.coalesce(_nsys_ids.clean("text"), pl.col("registered").cast(pl.String)).fill_null(
                ""
            ),
            domain_id=pl.col("domainId").fill_null(0),
        )
    )
    events = read.filter(pl.col("eventType").is_in(_RANGE_TYPES))
    moved = pl.col("endGlobalTid").is_not_null() & (pl.col("endGlobalTid") != pl.col("globalTid"))
    crossing = pl.col("eventType").is_in([_START_END, _START_END_IMPORTED]) & moved
    named = events.join(_domains(read), on=["process", "domain_id"], how="left", maintain_order="left")
    told = named.select(
        "start",
        "end",
        "process",
        "domain",
        pid=_nsys_ids.pid("globalTid"),
        tid=pl.when(~crossing).then(_nsys_ids.tid("globalTid")),
        name=pl.coalesce(pl.col("full_name").str.extract(_NUMBERED), "full_name").cast(NAMES),
        shapes=pl.col("full_name").str.extract(_SIZES).str.slice(0, _MAX_SHAPES),
        payload="binaryData",
    )
    return pl.concat([told, _nsys_mpi.calls(export)]).sort("start", maintain_order=True)


def _domains(events: pl.DataFrame) -> pl.DataFrame:
    """Name of each domain of each process; its creation may lie outside of the report."""
    created = (
        events.filter(pl.col("eventType") == _DOMAIN_CREATE)
        .unique(["process", "domain_id"], keep="first", maintain_order=True)
        .select("process", "domain_id", created="full_name")
    )
    used = events.group_by("process", "domain_id").agg(
        calls_nccl=pl.col("full_name").str.contains(_NCCL_CALL).any()
    )
    name = (
        pl.when(pl.col("created").str.len_chars() > 0)
        .then("created")
        .when(pl.col("domain_id") == 0)
        .then(pl.lit(DEFAULT_DOMAIN))
        .when("calls_nccl")
        .then(pl.lit(NCCL_DOMAIN))
        .otherwise(pl.format("domain{}", "domain_id"))
    )
    both = used.join(created, on=["process", "domain_id"], how="left")
    return both.select("process", "domain_id", domain=name.cast(NAMES))


def is_operator() -> pl.Expr:
    """ATen operators: every one of them is a range under emit_nvtx, and few mean anything later."""
    return pl.col("name").cast(pl.String).str.starts_with("aten::")


def is_kept_operator() -> pl.Expr:
    """Of those, the ones that become host operators."""
    name = pl.col("name").cast(pl.String)
    return pl.any_horizontal(name.str.starts_with(prefix) for prefix in KEPT_OPERATORS)
