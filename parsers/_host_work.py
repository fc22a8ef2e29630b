"""Runs without any accelerator: the host is the device, and its innermost operators stand for kernels.

PyTorch's profiler writes no device rows for a run on CPUs. Then every operator that contains no other (but
those that only make views or allocate) is a piece of work of the thread it runs on, and every exchange of
Gloo, MPI or UCC (``gloo:all_to_all``, on threads of the backend) is communication. What calls itself
``c10d::`` only queues such an exchange, as a launch does; calls and exchanges are paired in order, by kind. A
blocked thread runs no operator, so it counts as idle or, while its exchange runs, as exposed communication:
the definitions stay those of a GPU.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import schema
from traceview.parsers._json_events import COMM_SCHEMA
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE_NAME = "CPU (host operators)"
_CALL = "c10d::"
_WHOLE = r"^(?:aten|mkldnn)::_?(?:\w*mm|\w*mv|\w*convolution\w*|\w*_attention\w*|\w*_norm\w*)$"
"""Operators that are one piece of work whatever they call: a product may copy its bias first."""
_NO_WORK = (
    r"^aten::(?:_?resolve_(?:conj|neg)|as_strided_?|view(?:_as)?|_unsafe_view|_reshape_alias|reshape|alias|t|transpose_?"
    r"|permute|expand(?:_as)?|(?:un)?squeeze_?|select|slice|narrow|split\w*|chunk|unbind|flatten|detach_?|lift_fresh"
    r"|empty\w*|new_empty\w*|resize_|set_|result_type|item|is_\w+)$|^detach$"
)
_EXCHANGE = r"^(?:gloo|mpi|ucc):"


def work(
    operators: pl.DataFrame, annotations: pl.DataFrame | None, groups: pl.DataFrame, rank: int
) -> tuple[pl.DataFrame, pl.DataFrame, list[pl.DataFrame]]:
    """Host operators and exchanges as ops (with the columns of `COMM_SCHEMA`), their launches, and notes."""
    is_call = pl.col("name").cast(pl.String).str.starts_with(_CALL)
    leaves = _leaves(operators).filter(~is_call).with_row_index("correlation")
    exchanges = _exchanges(annotations, operators)
    calls, exchanges = _paired(operators.filter(is_call), exchanges, first=len(leaves))
    described = exchanges.join(_described(calls, groups), on="correlation", how="left", maintain_order="left")
    ops = (
        pl.concat([leaves.with_columns(pl.col("correlation").cast(pl.Int64)), described], how="diagonal")
        .sort("ts_ns", maintain_order=True)
        .with_row_index("op")
        .with_columns(
            rank=pl.lit(rank),
            device=pl.lit(0),
            stream="tid",
            kind=pl.lit("kernel"),
            external_id=pl.lit(None, pl.Int64),
        )
    )
    launches = pl.concat([leaves, calls], how="diagonal_relaxed").with_columns(
        rank=pl.lit(rank), external_id=pl.lit(None, pl.Int64)
    )
    parsed = schema.PARSED_OPS.admit(ops)
    metadata = [
        pl.col(name) if name in ops.columns else pl.lit(None, kind).alias(name)
        for name, kind in COMM_SCHEMA.items()
    ]
    notes = [*_notes(ops, exchanges, calls)]
    return (
        parsed.with_columns(ops.select(*metadata, "external_id")),
        schema.LAUNCHES.admit(launches).with_columns(launches["external_id"]),
        notes,
    )


def _leaves(operators: pl.DataFrame) -> pl.DataFrame:
    """Operators that contain no other of their thread; what waits for an exchange contains its call."""
    name, end = pl.col("name").cast(pl.String), pl.col("ts_ns") + pl.col("dur_ns")
    working = operators.filter(~name.str.contains(_NO_WORK))
    ordered = working.sort("pid", "tid", "ts_ns", -pl.col("dur_ns"), maintain_order=True)
    whole_until = pl.when(name.str.contains(_WHOLE)).then(end).cum_max().shift(1).over("pid", "tid")
    ordered = ordered.filter(
        (whole_until.forward_fill().over("pid", "tid") <= pl.col("ts_ns")).fill_null(value=True)
    )
    following = pl.col("ts_ns").shift(-1).over("pid", "tid")
    is_leaf = following.is_null() | (following >= end)
    return (
        ordered.filter(is_leaf)
        .select("name", "pid", "tid", "ts_ns", "dur_ns")
        .sort("ts_ns", maintain_order=True)
    )


def _exchanges(annotations: pl.DataFrame | None, operators: pl.DataFrame) -> pl.DataFrame:
    """Exchanges of a host backend, among the annotations."""
    columns = ("name", "pid", "tid", "ts_ns", "dur_ns")
    if annotations is None:
        return operators.select(columns).clear()
    return annotations.filter(pl.col("name").cast(pl.String).str.contains(_EXCHANGE)).select(columns)


def _paired(calls: pl.DataFrame, exchanges: pl.DataFrame, *, first: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with the ``correlation`` (from ``first``) that ties the n-th call of a kind to its n-th exchange.

    Kinds of which the file does not hold equally many calls and exchanges are not tied.
    """
    numbered = [
        frame.sort("ts_ns", maintain_order=True)
        .with_columns(kind=_kind())
        .with_columns(place=pl.int_range(pl.len()).over("kind"))
        for frame in (calls, exchanges)
    ]
    counts = [frame.group_by("kind").len() for frame in numbered]
    even = counts[0].join(counts[1], on=["kind", "len"]).select("kind")
    pairs = (
        numbered[0]
        .join(even, on="kind", how="semi", maintain_order="left")
        .select("kind", "place")
        .with_row_index("correlation", offset=first)
        .with_columns(pl.col("correlation").cast(pl.Int64))
    )
    tied = [frame.join(pairs, on=["kind", "place"], how="left", maintain_order="left") for frame in numbered]
    return tied[0].drop("place"), tied[1].drop("place").rename({"kind": "collective_name"})


def _kind() -> pl.Expr:
    """``alltoall`` for ``c10d::alltoall_base_`` and for ``gloo:all_to_all``."""
    bare = pl.col("name").cast(pl.String).str.replace(rf"{_EXCHANGE}|^{_CALL}", "")
    return bare.str.to_lowercase().str.replace_all(r"_base|_into_tensor|_coalesced|[^a-z]", "")


def _described(calls: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """``correlation``, and the group and sizes of `COMM_SCHEMA` as far as the calls recorded them.

    The group is known only where the job has just one: a call does not name it.
    """
    only = groups.row(0, named=True) if len(groups) == 1 else {}
    rows = [
        {"correlation": correlation} | _sizes(kind, arguments) | _group(only)
        for correlation, kind, arguments in calls.select("correlation", "kind", "arguments").iter_rows()
        if correlation is not None
    ]
    columns = {name: kind for name, kind in COMM_SCHEMA.items() if name != "collective_name"}
    return pl.DataFrame(rows, schema={"correlation": pl.Int64, **columns})


def _group(only: dict[str, Any]) -> dict[str, Any]:
    return {name: only.get(name) for name in ("group_name", "group_desc", "group_size")}


def _sizes(kind: str, arguments: str | None) -> dict[str, Any]:
    """Elements, splits and element type of a call: its first two tensors are the output and the input.

    An all-reduce works in place: what is its output is its input too.
    """
    dims, types, values = _arguments(arguments)
    tensors = [_elements(dim) for dim in dims[:2]]
    if not tensors or tensors[0] is None:
        return {}
    out, into = tensors[0], tensors[0] if len(tensors) < 2 or tensors[1] is None else tensors[1]
    dtype = types[0] if types and types[0] not in {"", "TensorList"} else None
    found: dict[str, Any] = {"out_elements": out, "in_elements": into, "dtype": dtype}
    if kind == "alltoall" and len(values) > 4:
        found |= {"out_splits": values[3], "in_splits": values[4]}
    return found


def _arguments(text: str | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Shapes, types and plain values of a call's arguments; empty where they were not recorded."""
    recorded = json.loads(text) if text else []
    lists = [part if isinstance(part, list) else [] for part in recorded]
    return (lists[0], lists[1], lists[2]) if len(lists) == 3 else ([], [], [])


def _elements(dims: object) -> int | None:
    """Elements of a tensor of these dimensions, or of all tensors of a list; None if it is neither."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(dim, list) for dim in dims):
        parts = [_elements(dim) for dim in dims]
        return sum(part for part in parts if part is not None) if any(parts) else None
    total = 1
    for dim in dims:
        if not isinstance(dim, int) or dim < 0:
            return None
        total *= dim
    return total if total < 1 << 62 else None


def _notes(ops: pl.DataFrame, exchanges: pl.DataFrame, calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    text = f"no accelerator was recorded; {len(ops)} host operators and exchanges stand for device work"
    yield diagnostic("info", "kineto.host_only", text, count=len(ops))
    loose = exchanges["correlation"].null_count()
    if loose:
        queued = calls["correlation"].null_count()
        text = f"{loose} exchanges and {queued} calls could not be paired: no launch, size or layer"
        yield diagnostic("warning", "kineto.exchange_unpaired", text, count=loose)
