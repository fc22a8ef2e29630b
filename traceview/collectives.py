"""What each communication op is: which collective, on whose behalf, how many bytes.

An NCCL send/recv kernel is an all-to-all, a pipeline transfer or a context-parallel ring, and its name
does not say. The evidence is taken in this order, and the one used is kept beside the answer:

1. ``kernel_args``: metadata the library recorded on the kernel itself (confidence 1)
2. ``host_op``: the same metadata on the host call that launched it (1)
3. ``annotation``: an enclosing ``nccl:all_to_all`` range around the launch (0.9)
4. ``name``: a kernel name that leaves no doubt (0.9)
5. ``range``: an enclosing framework range, such as a MoE dispatch or a pipeline send (0.7)
6. ``unresolved`` (0): shown as such, never guessed from the stream
"""

from __future__ import annotations

import polars as pl

from traceview.axes import with_axis
from traceview.enclosure import enclosing
from traceview.schema import CATEGORIES, COLLECTIVE_OPS, COLLECTIVES, ROLES

ITEM_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "long int": 8, "complexfloat": 8,
    "float": 4, "float32": 4, "int": 4, "int32": 4, "uint32": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2,
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes per element by PyTorch scalar type, lower case (c10/core/ScalarType.h)."""

RECORDED_NAMES = {
    "barrier": r"barrier",
    "all_to_all": r"^all_?to_?all",
    "all_gather": r"^_?all_?gather",
    "reduce_scatter": r"^_?reduce_?scatter",
    "all_reduce": r"^all_?reduce",
    "broadcast": r"^_?broadcast",
    "send_recv": r"^(?:i?send|i?recv|batch_isend_irecv|coalesced_p2p|sendrecv)",
    "reduce": r"^reduce",
    "gather": r"^gather",
    "scatter": r"^scatter",
}
"""Collective by the name that PyTorch's process groups record; the first pattern that fits counts."""

CONFIDENCE = {
    "kernel_args": 1.0,
    "host_op": 1.0,
    "annotation": 0.9,
    "name": 0.9,
    "range": 0.7,
    "peers": 0.7,
    "unresolved": 0.0,
}

_PIPELINE_PARTS = ("pp_send", "pp_recv")
_UNDECIDED = ("p2p_or_a2a", "comm_unknown")
_OWN_CATEGORY = [name for name in COLLECTIVES if name in CATEGORIES]


def recorded_collective(name: pl.Expr) -> pl.Expr:
    """The collective a recorded name stands for; null when it stands for none."""
    text = name.cast(pl.String).str.to_lowercase()
    fits = [
        pl.when(text.str.contains(pattern)).then(pl.lit(kind)) for kind, pattern in RECORDED_NAMES.items()
    ]
    return pl.coalesce(fits).cast(pl.Enum(COLLECTIVES))


def resolve(
    ops: pl.DataFrame,
    comm_calls: pl.DataFrame,
    ranges: pl.DataFrame,
    groups: pl.DataFrame,
    *,
    world_size: int | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Names every communication op.

    Args:
        ops: Classified device ops with launches and context.
        comm_calls: `COMM_CALLS`: metadata recorded for some ops.
        ranges: `RANGES` of the rank.
        groups: `GROUPS` of the rank.
        world_size: Ranks of the job, where known; tells a world group from another.

    Returns:
        ``ops`` with the resolved ``category, class, collective, role``; and `COLLECTIVE_OPS`.
    """
    known = _with_evidence(ops, comm_calls, ranges)
    is_comm = pl.col("class").is_in(["comm"]) | pl.col("copied_for").is_not_null()
    resolved = known.with_columns(
        pl.when(is_comm).then(_collective()).alias("collective"),
        pl.when(is_comm).then(_resolved_by()).alias("resolved_by"),
        pl.when(is_comm).then(pl.coalesce("role", "range_role")).alias("role"),
    ).with_columns(_category(is_comm))
    resolved = resolved.with_columns(pl.when(is_comm).then(pl.lit("comm")).otherwise("class").alias("class"))
    return resolved.select(ops.columns), _collective_ops(resolved.filter(is_comm), groups, world_size)


def _with_evidence(ops: pl.DataFrame, comm_calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Each op beside what is known of its launch: recorded call, annotation, framework range."""
    launched = ops.select(ts_ns="launch_ts_ns", pid="launch_pid", tid="launch_tid")
    library = ranges.filter(pl.col("kind") == "comm")
    annotated = library["part"].cast(pl.String).gather(enclosing(library, launched, on=("pid", "tid")))
    framework = ranges.filter(pl.col("part").cast(pl.String).is_in([*ROLES, *_PIPELINE_PARTS]))
    around = framework["part"].cast(pl.String).gather(enclosing(framework, launched, on=("pid",)))
    recorded = comm_calls.rename({"collective_name": "recorded_name", "source": "recorded_in"})
    return (
        ops.with_columns(
            annotated_as=pl.select(recorded_collective(pl.lit(annotated))).to_series(),
            range_role=pl.select(_transport_role(around, ops["phase"])).to_series(),
            range_kind=around.replace_strict(
                dict.fromkeys(ROLES, "all_to_all") | dict.fromkeys(_PIPELINE_PARTS, "send_recv"),
                default=None,
                return_dtype=pl.Enum(COLLECTIVES),
            ),
        )
        .with_columns(copied_for=pl.when(_is_peer_sized_copy()).then("annotated_as"))
        .join(recorded, on="op", how="left", maintain_order="left")
        .with_columns(recorded_as=recorded_collective(pl.col("recorded_name")))
    )


def _transport_role(part: pl.Series, phase: pl.Series) -> pl.Expr:
    """The direction tokens travel: the backward of a combine sends them out again, as a dispatch does."""
    turned = pl.lit(part).replace_strict(
        {"dispatch": "combine", "combine": "dispatch"}, default=None, return_dtype=pl.String
    )
    plain = pl.lit(part).replace(dict.fromkeys(_PIPELINE_PARTS))
    return pl.when(pl.lit(phase) == "backward").then(turned).otherwise(plain).cast(pl.Enum(ROLES))


def _is_peer_sized_copy() -> pl.Expr:
    """A device-to-device copy launched inside a library call: a copy-engine collective has no kernel."""
    return (pl.col("kind") == "memcpy") & pl.col("copy_kind").cast(pl.String).is_in(["DtoD", "PtoP"])


def _collective() -> pl.Expr:
    named = pl.when(~pl.col("category").cast(pl.String).is_in(_UNDECIDED)).then("collective")
    unknown = pl.lit("unknown", pl.Enum(COLLECTIVES))
    return pl.coalesce("recorded_as", pl.coalesce(named, "annotated_as"), "range_kind", unknown)


def _resolved_by() -> pl.Expr:
    named = pl.col("collective").is_not_null() & ~pl.col("category").cast(pl.String).is_in(_UNDECIDED)
    return (
        pl.when(pl.col("recorded_as").is_not_null())
        .then(pl.col("recorded_in").cast(pl.String))
        .when(named)
        .then(pl.lit("name"))
        .when(pl.col("annotated_as").is_not_null())
        .then(pl.lit("annotation"))
        .when(pl.col("range_kind").is_not_null())
        .then(pl.lit("range"))
        .otherwise(pl.lit("unresolved"))
    )


def _category(is_comm: pl.Expr) -> pl.Expr:
    """The category of an op that only its context could name."""
    open_question = pl.col("category").cast(pl.String).is_in(_UNDECIDED) | pl.col("copied_for").is_not_null()
    answered = pl.col("collective").cast(pl.String).is_in(_OWN_CATEGORY)
    answer = pl.col("collective").cast(pl.String).cast(pl.Enum(CATEGORIES), strict=False)
    return pl.when(is_comm & open_question & answered).then(answer).otherwise("category").alias("category")


def _collective_ops(resolved: pl.DataFrame, groups: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    dtype = pl.col("dtype").cast(pl.String).str.to_lowercase()
    item = dtype.replace_strict(ITEM_BYTES, default=None, return_dtype=pl.Int64)
    with_sizes = resolved.with_columns(
        in_bytes=pl.col("in_elements") * item,
        out_bytes=pl.col("out_elements") * item,
        confidence=pl.col("resolved_by").replace_strict(CONFIDENCE, return_dtype=pl.Float64),
    )
    placed = with_axis(
        with_sizes, desc="group_desc", name="group_name", size="group_size", world_size=world_size
    )
    # a dispatch or combine is expert-parallel whatever its group is called, and be it the whole job
    expert = pl.col("role").is_not_null() | (pl.col("category") == "ep_sync")
    axis = pl.when(pl.col("axis").is_in(["unknown", "world"]) & expert).then(
        pl.lit("ep", COLLECTIVE_OPS.columns["axis"].dtype)
    )
    named = placed.with_columns(axis.otherwise("axis").alias("axis"))
    return COLLECTIVE_OPS.conform(_with_only_group(named, groups).sort("op"))


def _with_only_group(collectives: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Members of exchanges that recorded none, where the rank has just one group on their axis.

    Transports such as DeepEP leave no metadata; the job's group table still has their group.
    """
    several = (
        groups.filter(pl.col("group_size") > 1).drop_nulls("group_ranks").unique(["axis", "group_ranks"])
    )
    only = several.filter(pl.len().over("axis") == 1).select("axis", members="group_ranks", size="group_size")
    joined = collectives.join(only, on="axis", how="left", maintain_order="left")
    silent = pl.col("group_ranks").is_null() & pl.col("group_name").is_null()
    return joined.with_columns(
        group_ranks=pl.when(silent).then("members").otherwise("group_ranks"),
        group_size=pl.when(silent & pl.col("group_size").is_null()).then("size").otherwise("group_size"),
    )
