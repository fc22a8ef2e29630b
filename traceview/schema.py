"""Every table of traceview, once: names, types, units, meaning.

From a `Table` come the polars schema, the Arrow schema (docs and units as field metadata), the empty
frame and the reference page. Parsers and analyzers meet only here. Times are int64 nanoseconds, sizes
are bytes, ratios run from 0 to 1; a null means "not known", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

VERSION = 3
"""Version of the tables; written into saved traces and checked when they are read."""

COMM_CATEGORIES = (
    "dispatch",
    "combine",
    "ep_sync",
    "all_to_all",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "send_recv",
    "p2p_or_a2a",
    "p2p_copy",
    "comm_unknown",
)
"""Categories of device work that moves bytes between ranks, or waits to."""

COMPUTE_CATEGORIES = (
    "gemm",
    "grouped_gemm",
    "attention",
    "norm",
    "elementwise",
    "route_permute",
    "quantize",
    "optimizer",
    "graph",
    "other",
)
"""Categories of device work that computes; ``other`` is counted here and reported as unmatched."""

CLASS_OF_CATEGORY: dict[str, str] = (
    dict.fromkeys(COMPUTE_CATEGORIES, "compute")
    | dict.fromkeys(COMM_CATEGORIES, "comm")
    | {"fused_comm_compute": "fused", "memory": "copy", "sync": "sync"}
)
"""Coarse class of each category; the only place that decides what counts as communication."""

CATEGORIES = tuple(CLASS_OF_CATEGORY)
CLASSES = ("compute", "comm", "fused", "copy", "sync", "other")
AXES = ("ep", "tp", "etp", "dp", "edp", "pp", "cp", "world", "unknown")
ROLES = ("dispatch", "combine")
PHASES = ("forward", "backward", "recompute", "optimizer")
SUBROLES = ("payload", "local_epilogue", "barrier", "metadata", "ambiguous")
STEP_STATUSES = ("complete", "partial", "warmup")
HOLDS = ("before", "after")
SEVERITIES = ("info", "warning", "error")
COLLECTIVES = (
    "all_to_all",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "send_recv",
    "barrier",
    "gather",
    "scatter",
    "unknown",
)

_I64, _I32, _STR, _F64, _BOOL = pl.Int64(), pl.Int32(), pl.String(), pl.Float64(), pl.Boolean()
_NAME = pl.Categorical()  # strings that repeat: names of kernels, calls, ranges
_RANKS = pl.List(pl.Int32())
_COUNTS = pl.List(pl.Int64())


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, its meaning, its unit, and whether null is a legal answer."""

    dtype: pl.DataType
    doc: str
    unit: str | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, its grain, and its columns in order."""

    name: str
    doc: str
    columns: Mapping[str, Column] = field(repr=False)

    def only(self, *names: str) -> Table:
        """The same table with some of its columns: what a stage before the last one fills."""
        return Table(self.name, self.doc, {name: self.columns[name] for name in names})

    def schema(self) -> pl.Schema:
        """The polars schema, in column order."""
        return pl.Schema({name: column.dtype for name, column in self.columns.items()})

    def empty(self) -> pl.DataFrame:
        """A frame with these columns and no row."""
        return pl.DataFrame(schema=self.schema())

    def frame(self, data: pl.DataFrame | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """A frame from columns or rows; columns that are absent become null where null is legal."""
        given = pl.DataFrame(data) if not isinstance(data, pl.DataFrame) else data
        absent = [
            pl.lit(None, dtype=column.dtype).alias(name)
            for name, column in self.columns.items()
            if column.nullable and name not in given.columns
        ]
        return self.conform(given.with_columns(absent))

    def admit(self, frame: pl.DataFrame) -> pl.DataFrame:
        """As `frame`, for what strangers' files hold: a number too large for a nullable column is null."""
        narrowed = [
            pl.col(name).cast(column.dtype, strict=False)
            for name, column in self.columns.items()
            if column.nullable and name in frame.columns
        ]
        return self.frame(frame.with_columns(narrowed))

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``frame`` with exactly these columns, in this order and of these types.

        Raises:
            SchemaError: A column is missing, or holds a value outside its type.
        """
        missing = [name for name in self.columns if name not in frame.columns]
        if missing:
            raise SchemaError.missing(self.name, missing, frame.columns)
        try:
            return frame.select(pl.col(name).cast(column.dtype) for name, column in self.columns.items())
        except pl.exceptions.PolarsError as error:
            message = f"table '{self.name}' has a value outside its type: {error}"
            raise SchemaError(message) from error

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema, with each column's doc and unit as field metadata."""
        fields = []
        for arrow_field, column in zip(self.empty().to_arrow().schema, self.columns.values(), strict=True):
            facts = {"doc": column.doc} | ({"unit": column.unit} if column.unit else {})
            # polars' own metadata stays: it tells an Enum from other dictionaries
            fields.append(arrow_field.with_metadata({**(arrow_field.metadata or {}), **facts}))
        import pyarrow as pa  # noqa: PLC0415 - heavy, and only exports need it

        return pa.schema(fields, metadata={"table": self.name, "doc": self.doc, "version": str(VERSION)})


def _enum(values: Iterable[str]) -> pl.Enum:
    return pl.Enum(list(values))


def _rank() -> Column:
    return Column(_I32, "global rank of the process")


def _ts(what: str) -> Column:
    return Column(_I64, f"start of {what}, on the rank's own clock", "ns")


def _dur(what: str) -> Column:
    return Column(_I64, f"duration of {what}; never negative", "ns")


_OP_KEY = Column(_I64, "row number of the device op in this rank's `ops`")
_DEVICE = Column(_I32, "device index on its host")
_STREAM = Column(_I64, "stream (or queue) on the device", nullable=True)
_PID = Column(_I64, "host process", nullable=True)
_TID = Column(_I64, "host thread", nullable=True)
_STEP = Column(_I64, "training step the launch belongs to", nullable=True)
_LAYER = Column(_I32, "layer, as numbered by the framework", nullable=True)
_MICROBATCH = Column(_I32, "microbatch", nullable=True)
_PHASE = Column(_enum(PHASES), "phase of the step", nullable=True)
_AXIS = Column(_enum(AXES), "parallelism axis of the group")
_ROLE = Column(_enum(ROLES), "MoE role of an expert-parallel exchange", nullable=True)

OPS = Table(
    "ops",
    "One row per piece of device work (kernel, copy, memset, opaque graph).",
    {
        "op": _OP_KEY,
        "rank": _rank(),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": _ts("the work on the device"),
        "dur_ns": _dur("the work on the device"),
        "name": Column(_NAME, "name as the profiler wrote it (bounded)"),
        "kind": Column(_enum(("kernel", "memcpy", "memset", "graph")), "what the device did"),
        "category": Column(_enum(CATEGORIES), "taxonomy of traceview.classify"),
        "class": Column(_enum(CLASSES), "coarse class, derived from the category"),
        "collective": Column(_enum(COLLECTIVES), "collective this op carries, if it is one", nullable=True),
        "role": _ROLE,
        "subrole": Column(_enum(SUBROLES), "payload, waiting or local part of a transport", nullable=True),
        "rule_id": Column(_NAME, "rule that named the category"),
        "correlation": Column(_I64, "links the op to the host call that launched it", nullable=True),
        "graph_node_id": Column(_I64, "node of the graph that launched it", nullable=True),
        "bytes": Column(_I64, "bytes copied or set", "bytes", nullable=True),
        "copy_kind": Column(_NAME, "HtoD, DtoH, DtoD, PtoP", nullable=True),
        "grid_blocks": Column(_I64, "thread blocks in the launch grid", nullable=True),
        "launch_ts_ns": Column(_I64, "start of the host call that launched it", "ns", nullable=True),
        "step": _STEP,
        "microbatch": _MICROBATCH,
        "layer": _LAYER,
        "phase": _PHASE,
        "module": Column(_NAME, "innermost module or MoE part around the launch", nullable=True),
    },
)

PARSED_OPS = OPS.only(
    "op",
    "rank",
    "device",
    "stream",
    "ts_ns",
    "dur_ns",
    "name",
    "kind",
    "correlation",
    "graph_node_id",
    "bytes",
    "copy_kind",
    "grid_blocks",
)
"""What a parser writes of `OPS`; `traceview.prepare` adds the rest, the same for every format."""

COMM_CALLS = Table(
    "comm_calls",
    "One row per device op for which the profiler recorded communication metadata, as recorded.",
    {
        "op": _OP_KEY,
        "collective_name": Column(_NAME, "name as recorded, e.g. all_to_allv", nullable=True),
        "dtype": Column(_NAME, "element type as recorded", nullable=True),
        "in_elements": Column(_I64, "elements sent by this rank", nullable=True),
        "out_elements": Column(_I64, "elements received by this rank", nullable=True),
        "group_name": Column(_NAME, "process group name", nullable=True),
        "group_desc": Column(_NAME, "process group description", nullable=True),
        "group_ranks": Column(_RANKS, "members, when recorded whole", nullable=True),
        "group_size": Column(_I32, "members of the group", nullable=True),
        "group_rank": Column(_I32, "own position in the group, as recorded", nullable=True),
        "in_splits": Column(_COUNTS, "sent to each peer, in rows of dimension 0, or in bytes", nullable=True),
        "out_splits": Column(_COUNTS, "received from each peer, in the same unit", nullable=True),
        "splits_complete": Column(_BOOL, "false when the profiler cut a list short", nullable=True),
        "src_rank": Column(_I32, "sending peer of a point-to-point op", nullable=True),
        "dst_rank": Column(_I32, "receiving peer of a point-to-point op", nullable=True),
        "seq": Column(_I64, "sequence number within the group", nullable=True),
        "comm_id": Column(_NAME, "communicator id", nullable=True),
        "source": Column(_enum(("kernel_args", "host_op")), "where the metadata stood"),
    },
)

COLLECTIVE_OPS = Table(
    "collectives",
    "One row per communication op of a rank, resolved: what it is, for whom, how many bytes.",
    {
        "op": _OP_KEY,
        "rank": _rank(),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": _ts("the op"),
        "dur_ns": _dur("the op"),
        "collective": Column(_enum(COLLECTIVES), "what kind of exchange it is"),
        "role": _ROLE,
        "subrole": Column(_enum(SUBROLES), "payload, waiting or local part", nullable=True),
        "axis": _AXIS,
        "group_name": Column(_NAME, "process group name", nullable=True),
        "group_desc": Column(_NAME, "process group description", nullable=True),
        "group_ranks": Column(_RANKS, "members of the group, global ranks", nullable=True),
        "group_size": Column(_I32, "members of the group", nullable=True),
        "group_rank": Column(_I32, "own position in the group, as recorded", nullable=True),
        "seq": Column(_I64, "sequence number within the group", nullable=True),
        "comm_id": Column(_NAME, "communicator id", nullable=True),
        "dtype": Column(_NAME, "element type as recorded", nullable=True),
        "in_bytes": Column(_I64, "bytes this rank puts in, its own slice included", "bytes", nullable=True),
        "out_bytes": Column(_I64, "bytes this rank gets out, its own slice included", "bytes", nullable=True),
        "in_splits": Column(_COUNTS, "rows (or bytes) sent to each peer", nullable=True),
        "out_splits": Column(_COUNTS, "rows (or bytes) received from each peer", nullable=True),
        "splits_complete": Column(_BOOL, "false when the profiler cut a list short", nullable=True),
        "src_rank": Column(_I32, "sending peer", nullable=True),
        "dst_rank": Column(_I32, "receiving peer", nullable=True),
        "step": _STEP,
        "microbatch": _MICROBATCH,
        "layer": _LAYER,
        "phase": _PHASE,
        "resolved_by": Column(
            _enum(("kernel_args", "host_op", "annotation", "range", "peers", "name", "unresolved")),
            "evidence that named the collective",
        ),
        "confidence": Column(_F64, "0..1: 1 recorded by the library, 0.9 annotation, less by inference"),
    },
)

RANGES = Table(
    "ranges",
    "One row per annotation (record_function, NVTX, JAX scope) on a host thread.",
    {
        "rank": _rank(),
        "pid": _PID,
        "tid": _TID,
        "domain": Column(_NAME, "annotation domain", nullable=True),
        "ts_ns": _ts("the range"),
        "dur_ns": _dur("the range"),
        "name": Column(_NAME, "name without its fields"),
        "raw_name": Column(_NAME, "name as recorded (bounded)"),
        "kind": Column(_enum(("step", "layer", "phase", "moe_part", "schedule", "comm", "other")), "meaning"),
        "step": _STEP,
        "layer": _LAYER,
        "microbatch": _MICROBATCH,
        "stage": Column(_I32, "pipeline stage", nullable=True),
        "tokens": Column(_I64, "tokens (rows) it says this rank sends or receives", nullable=True),
        "experts": Column(_I32, "experts of this rank it says take part", nullable=True),
        "phase": _PHASE,
        "part": Column(_NAME, "attention, mlp, router, dispatch, expert, combine ...", nullable=True),
    },
)

PARSED_RANGES = RANGES.only("rank", "pid", "tid", "domain", "ts_ns", "dur_ns", "raw_name")
"""What a parser writes of `RANGES`."""

HOST_OPS = Table(
    "host_ops",
    "One row per kept host operator: those that name a phase, a module or a shape the analyses use.",
    {
        "rank": _rank(),
        "pid": _PID,
        "tid": _TID,
        "ts_ns": _ts("the operator"),
        "dur_ns": _dur("the operator"),
        "name": Column(_NAME, "operator name"),
        "shapes": Column(_STR, "input shapes as recorded, JSON text (bounded)", nullable=True),
        "dtypes": Column(_STR, "input types as recorded, JSON text (bounded)", nullable=True),
    },
)

LAUNCHES = Table(
    "launches",
    "One row per host runtime or driver call that can start device work.",
    {
        "rank": _rank(),
        "pid": _PID,
        "tid": _TID,
        "ts_ns": _ts("the call"),
        "dur_ns": _dur("the call"),
        "name": Column(_NAME, "call name"),
        "correlation": Column(_I64, "links the call to device ops", nullable=True),
    },
)

SYNCS = Table(
    "syncs",
    "One row per synchronisation the profiler recorded; never device work.",
    {
        "rank": _rank(),
        "device": Column(_I32, "device", nullable=True),
        "stream": Column(_I64, "stream waited for; null at device level", nullable=True),
        "ts_ns": _ts("the wait"),
        "dur_ns": _dur("the wait"),
        "name": Column(_NAME, "kind of synchronisation"),
        "correlation": Column(_I64, "links to the host call", nullable=True),
    },
)

OVERHEADS = Table(
    "overheads",
    "One row per stretch in which the profiler itself kept the host busy: buffer flushes, instrumentation.",
    {
        "rank": _rank(),
        "ts_ns": _ts("the overhead"),
        "dur_ns": _dur("the overhead"),
        "name": Column(_NAME, "what the profiler did"),
    },
)

COUNTERS = Table(
    "counters",
    "One row per counter sample.",
    {
        "rank": _rank(),
        "device": Column(_I32, "device", nullable=True),
        "ts_ns": Column(_I64, "instant of the sample", "ns"),
        "metric": Column(_NAME, "metric name"),
        "unit": Column(_NAME, "unit of the value"),
        "value": Column(_F64, "value"),
        "holds": Column(
            _enum(HOLDS),
            "time the value stands for: before the sample (a mean) or after it (a level)",
            nullable=True,
        ),
    },
)

GROUPS = Table(
    "groups",
    "One row per process group this rank belongs to.",
    {
        "rank": _rank(),
        "group_name": Column(_NAME, "name"),
        "group_desc": Column(_NAME, "description", nullable=True),
        "axis": _AXIS,
        "backend": Column(_NAME, "backend", nullable=True),
        "group_size": Column(_I32, "members", nullable=True),
        "group_ranks": Column(_RANKS, "members, global ranks", nullable=True),
    },
)

PARSED_GROUPS = GROUPS.only("rank", "group_name", "group_desc", "backend", "group_size", "group_ranks")
"""What a parser writes of `GROUPS`."""

DEVICES = Table(
    "devices",
    "One row per device the profiler described.",
    {
        "rank": _rank(),
        "device": _DEVICE,
        "name": Column(_NAME, "marketing name", nullable=True),
        "memory_bytes": Column(_I64, "device memory", "bytes", nullable=True),
        "sm_count": Column(_I32, "multiprocessors or compute units", nullable=True),
        "compute_capability": Column(_STR, "major.minor", nullable=True),
    },
)

STEPS = Table(
    "steps",
    "One row per step of a rank: its host range, and its device window (windows tile the timeline).",
    {
        "rank": _rank(),
        "step": Column(_I64, "step number"),
        "ts_ns": _ts("the device window: the first op launched in the step"),
        "dur_ns": _dur("the device window"),
        "host_ts_ns": Column(_I64, "start of the host range", "ns", nullable=True),
        "host_dur_ns": Column(_I64, "duration of the host range", "ns", nullable=True),
        "op_count": Column(_I64, "device ops launched in the step"),
        "status": Column(_enum(STEP_STATUSES), "complete; partial (work is missing); warmup (not steady)"),
        "source": Column(_NAME, "what marked the step"),
    },
)

DIAGNOSTICS = Table(
    "diagnostics",
    "One row per fact about the data that traceview had to assume, repair or leave out.",
    {
        "rank": Column(_I32, "rank, null for the whole run", nullable=True),
        "severity": Column(_enum(SEVERITIES), "info, warning or error"),
        "code": Column(_STR, "stable identifier, e.g. kineto.truncated"),
        "text": Column(_STR, "one sentence with numbers"),
        "count": Column(_I64, "how many rows or files it concerns"),
    },
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        OPS,
        COLLECTIVE_OPS,
        COMM_CALLS,
        RANGES,
        HOST_OPS,
        LAUNCHES,
        SYNCS,
        OVERHEADS,
        COUNTERS,
        GROUPS,
        DEVICES,
        STEPS,
        DIAGNOSTICS,
    )
}
"""Canonical tables by name; results of analyzers declare their own `Table` beside the analyzer."""
