"""What a communication op is, by the best evidence there is, and which evidence that was."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceview.collectives import recorded_collective, resolve
from traceview.schema import COMM_CALLS, GROUPS, OPS, RANGES


def op(category: str, klass: str = "comm", **more: Any) -> dict[str, Any]:
    return {"rank": 0, "device": 0, "ts_ns": 1000, "dur_ns": 10, "name": "k", "kind": "kernel", "rule_id": "r",
            "category": category, "class": klass, "launch_ts_ns": 50, "launch_pid": 1, "launch_tid": 1} | more  # fmt: skip


def ops(*rows: dict[str, Any]) -> pl.DataFrame:
    frame = pl.DataFrame([{"op": n} | row for n, row in enumerate(rows)])
    extra = frame.select(pl.col("launch_pid", "launch_tid").cast(pl.Int64))
    return OPS.frame(frame).with_columns(extra)


def calls(*rows: dict[str, Any]) -> pl.DataFrame:
    return COMM_CALLS.frame(pl.DataFrame(rows)) if rows else COMM_CALLS.empty()


def around(*rows: dict[str, Any]) -> pl.DataFrame:
    """Ranges that contain the launch of every op above."""
    base = {"rank": 0, "pid": 1, "tid": 1, "ts_ns": 0, "dur_ns": 100, "name": "n", "raw_name": "n"}
    return RANGES.frame(pl.DataFrame([base | row for row in rows])) if rows else RANGES.empty()


def resolved(
    one: dict[str, Any], *, call: dict[str, Any] | None = None, ranges: pl.DataFrame | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    recorded = calls({"op": 0, "source": "kernel_args"} | call) if call else calls()
    changed, collectives = resolve(
        ops(one), recorded, around() if ranges is None else ranges, GROUPS.empty(), world_size=8
    )
    return changed.row(0, named=True), collectives.row(0, named=True)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("all_to_all", "all_to_all"), ("all_to_allv", "all_to_all"), ("ALLTOALL_BASE", "all_to_all"),
        ("_allgather_base", "all_gather"), ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"), ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("allreduce", "all_reduce"), ("allreduce_coalesced", "all_reduce"), ("all_reduce_barrier", "barrier"),
        ("broadcast", "broadcast"), ("send", "send_recv"), ("recv 0<-1", "send_recv"), ("irecv", "send_recv"),
        ("reduce", "reduce"), ("scatter", "scatter"), ("gather", "gather"), ("wait", None), ("init", None),
    ],
)  # fmt: skip
def test_recorded_names_mean_what_process_groups_mean_by_them(name: str, collective: str | None) -> None:
    assert pl.select(recorded_collective(pl.lit(name))).item() == collective


def test_recorded_metadata_decides_and_carries_sizes() -> None:
    call = {"collective_name": "all_to_allv", "dtype": "Float8_e4m3fn", "in_elements": 100, "out_elements": 60,
            "in_splits": [1, 3], "splits_complete": True, "group_name": "7", "group_ranks": [0, 1], "group_size": 2}  # fmt: skip
    changed, row = resolved(op("p2p_or_a2a"), call=call, ranges=around({"kind": "comm", "part": "send"}))
    assert (row["collective"], row["resolved_by"], row["confidence"]) == ("all_to_all", "kernel_args", 1.0)
    assert (row["in_bytes"], row["out_bytes"], row["in_splits"]) == (100, 60, [1, 3])
    assert (changed["category"], changed["class"]) == ("all_to_all", "comm")


def test_an_unknown_dtype_gives_no_bytes_rather_than_wrong_ones() -> None:
    _, row = resolved(
        op("all_gather", collective="all_gather"),
        call={"collective_name": "allgather", "dtype": "Odd9", "in_elements": 5},
    )
    assert row["in_bytes"] is None


def test_an_annotation_decides_where_nothing_was_recorded() -> None:
    changed, row = resolved(op("p2p_or_a2a"), ranges=around({"kind": "comm", "part": "all_to_all"}))
    assert (row["collective"], row["resolved_by"], row["confidence"]) == ("all_to_all", "annotation", 0.9)
    assert changed["category"] == "all_to_all"


def test_a_clear_kernel_name_is_enough_and_beats_an_annotation() -> None:
    kernel = op("reduce_scatter", collective="reduce_scatter")
    _, row = resolved(kernel, ranges=around({"kind": "comm", "part": "all_gather"}))
    assert (row["collective"], row["resolved_by"]) == ("reduce_scatter", "name")


@pytest.mark.parametrize(
    ("part", "collective", "role"), [("dispatch", "all_to_all", "dispatch"), ("pp_send", "send_recv", None)]
)
def test_a_framework_range_is_the_last_resort(part: str, collective: str, role: str | None) -> None:
    _, row = resolved(op("p2p_or_a2a"), ranges=around({"kind": "moe_part", "part": part}))
    assert (row["collective"], row["role"], row["resolved_by"], row["confidence"]) == (
        collective,
        role,
        "range",
        0.7,
    )


def test_without_evidence_it_stays_unresolved_and_keeps_its_category() -> None:
    changed, row = resolved(op("p2p_or_a2a"))
    assert (row["collective"], row["resolved_by"], row["confidence"]) == ("unknown", "unresolved", 0.0)
    assert (changed["category"], changed["class"]) == ("p2p_or_a2a", "comm")


def test_a_device_copy_inside_a_library_call_is_communication_and_others_are_not() -> None:
    copy = op("memory", "copy", kind="memcpy", copy_kind="DtoD")
    inside = around({"kind": "comm", "part": "all_to_all"})
    changed, row = resolved(copy, ranges=inside)
    assert (changed["class"], changed["category"], row["collective"]) == ("comm", "all_to_all", "all_to_all")
    for other, ranges in ((copy, around()), (copy | {"copy_kind": "HtoD"}, inside)):
        untouched, collectives = resolve(ops(other), calls(), ranges, GROUPS.empty(), world_size=8)
        assert untouched["class"].to_list() == ["copy"]
        assert collectives.is_empty()


def test_compute_is_never_touched() -> None:
    changed, collectives = resolve(
        ops(op("gemm", "compute")),
        calls(),
        around({"kind": "comm", "part": "all_to_all"}),
        GROUPS.empty(),
        world_size=8,
    )
    assert changed.select("category", "class").row(0) == ("gemm", "compute")
    assert collectives.is_empty()


def test_an_expert_exchange_is_on_the_expert_axis_whatever_its_group_is_called() -> None:
    _, row = resolved(op("dispatch", collective="all_to_all", role="dispatch"))
    assert row["axis"] == "ep"
    _, row = resolved(
        op("all_reduce", collective="all_reduce"),
        call={"collective_name": "allreduce", "group_desc": "mesh_tp"},
    )
    assert row["axis"] == "tp"


def test_the_backward_of_a_combine_carries_tokens_the_way_a_dispatch_does() -> None:
    for phase, part, role in (
        ("forward", "combine", "combine"),
        ("backward", "combine", "dispatch"),
        ("backward", "dispatch", "combine"),
    ):
        _, row = resolved(op("p2p_or_a2a", phase=phase), ranges=around({"kind": "moe_part", "part": part}))
        assert row["role"] == role


def test_an_exchange_without_metadata_takes_the_only_group_on_its_axis() -> None:
    kernel = op("dispatch", collective="all_to_all", role="dispatch")
    one = [{"rank": 0, "group_name": "4", "axis": "ep", "group_size": 2, "group_ranks": [0, 4]}]
    two = [*one, {"rank": 0, "group_name": "5", "axis": "ep", "group_size": 2, "group_ranks": [0, 1]}]
    alone = [{"rank": 0, "group_name": "9", "axis": "ep", "group_size": 1, "group_ranks": [0]}]
    for groups, members in ((one + alone, [0, 4]), (two, None)):
        _, collectives = resolve(
            ops(kernel), calls(), around(), GROUPS.frame(pl.DataFrame(groups)), world_size=8
        )
        assert collectives["group_ranks"].to_list() == [members]
