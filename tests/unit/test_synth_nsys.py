"""Synthetic Nsight Systems exports, read with sqlite3 and struct alone, against the run they came from."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from traceview import cli
from traceview.commands.synth import synth
from traceview.errors import UsageError
from traceview.synth import WRITERS, Capture, LateStart, Workload, simulate, write
from traceview.synth.clocks import EPOCH_NS, RUN_START_NS

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Workload(
    ranks=4,
    ranks_per_host=2,
    expert_parallel=4,
    steps=2,
    layers=1,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
)
KERNELS = "SELECT k.*, value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds ON id = demangledName"
CALLS = "SELECT r.*, value AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds ON id = nameId"
NCCL = """SELECT e.*, s.value AS name FROM NVTX_EVENTS e JOIN StringIds s ON s.id = textId
WHERE domainId = (SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'NCCL') ORDER BY e.rowid"""
FIELDS = "SELECT * FROM NVTX_PAYLOAD_SCHEMA_ENTRIES WHERE schemaId = ?"
FORMATS = {5: "<i", 18: "<Q", 22: "<Q"}

Rows = list[dict[str, Any]]


class Exported:
    """A written run: its databases by rank, and its truth."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        *self.paths, known = write(workload, folder, trace_format="nsys", compress=False)
        self.truth: dict[str, Any] = json.loads(known.read_bytes())

    def rows(self, rank: int, query: str, *values: object) -> Rows:
        with closing(sqlite3.connect(self.paths[rank])) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    def tables(self, rank: int) -> set[str]:
        return {row["name"] for row in self.rows(rank, "SELECT name FROM sqlite_master")}

    def payload(self, rank: int, event: dict[str, Any]) -> dict[str, int]:
        """Fields by name, found where the report's own schema says they are."""
        blob: bytes = event["binaryData"]
        _, schema, size, offset = struct.unpack_from("<4Q", blob)
        assert offset + size == len(blob)
        fields = self.rows(rank, FIELDS, schema)
        return {
            field["name"]: struct.unpack_from(FORMATS[field["type"]], blob, offset + (field["offset"] or 0))[
                0
            ]
            for field in fields
        }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(PLAN, tmp_path_factory.mktemp("exported"))


def test_the_same_workload_gives_the_same_bytes(exported: Exported, tmp_path: Path) -> None:
    again = Exported(PLAN, tmp_path)
    assert [p.read_bytes() for p in again.paths] == [p.read_bytes() for p in exported.paths]
    assert [p.name for p in again.paths] == [f"rank{rank}_trace.sqlite" for rank in range(4)]


def test_every_database_is_sound(exported: Exported) -> None:
    for rank in range(PLAN.ranks):
        assert exported.rows(rank, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_stamps_count_from_the_start_of_the_session(exported: Exported) -> None:
    timeline = simulate(PLAN)
    for rank in range(PLAN.ranks):
        [session] = exported.rows(rank, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        kernels = exported.rows(rank, KERNELS)
        assert all(
            isinstance(row[edge], int) and row[edge] > 0 for row in kernels for edge in ("start", "end")
        )
        # the one clock of this plan reads true time
        found = {(row["start"] + session["utcEpochNs"], row["name"]) for row in kernels}
        expected = {
            (EPOCH_NS + RUN_START_NS + int(start), op.kernel.name)
            for op, start in zip(timeline.ops, timeline.op_start_ns[:, rank], strict=True)
            if op.kernel.kind == "kernel"
        }
        assert found == expected


def test_every_kernel_follows_the_one_call_that_launched_it(exported: Exported) -> None:
    calls = exported.rows(0, CALLS)
    by_number = {row["correlationId"]: row for row in calls}
    assert len(by_number) == len(calls)
    for kernel in exported.rows(0, KERNELS):
        call = by_number[kernel["correlationId"]]
        assert "Launch" in call["name"]
        assert call["end"] <= kernel["start"]
        assert call["globalTid"] >> 24 == kernel["globalPid"] >> 24


def test_runtime_calls_carry_the_version_that_introduced_them_and_driver_calls_none(
    exported: Exported,
) -> None:
    for call in exported.rows(0, CALLS):
        is_driver = call["eventClass"] == 1
        assert call["name"].startswith("cuda") != is_driver
        assert ("_v" in call["name"]) != is_driver


def test_each_rank_is_a_process_on_its_host_and_device(exported: Exported) -> None:
    processes, places = set(), []
    for rank in range(PLAN.ranks):
        processes |= {row["globalPid"] for row in exported.rows(rank, KERNELS)}
        [device] = {row["deviceId"] for row in exported.rows(rank, KERNELS)}
        query = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'"
        places.append((exported.rows(rank, query)[0]["value"], device))
    assert len(processes) == PLAN.ranks
    assert places == [("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1)]


def test_ranges_of_a_thread_nest_within_their_domain(exported: Exported) -> None:
    query = "SELECT * FROM NVTX_EVENTS WHERE eventType = 59 ORDER BY start, end DESC"
    open_ranges: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event in exported.rows(0, query):
        stack = open_ranges[event["globalTid"], event["domainId"]]
        while stack and stack[-1] <= event["start"]:
            stack.pop()
        assert not stack or event["end"] <= stack[-1]
        stack.append(event["end"])
    assert {domain for _, domain in open_ranges} == {0, 1}


def test_communicators_say_how_many_ranks_they_have_and_share_their_number(exported: Exported) -> None:
    members: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank in range(PLAN.ranks):
        for event in exported.rows(rank, NCCL):
            if event["name"] == "ncclCommInitRank":
                said = exported.payload(rank, event)
                members[said["NCCL communicator ID"]].append((said["Rank"], said["No. of ranks"]))
    for ranks in members.values():
        assert sorted(ranks) == [(position, len(ranks)) for position in range(len(ranks))]
    sizes = Counter(len(ranks) for ranks in members.values())
    # world, data and experts hold all four ranks; tensor, context, pipeline and expert data each rank alone
    assert sizes == {4: 3, 1: 16}


def test_sends_and_receives_are_what_the_routing_moved(exported: Exported) -> None:
    expected = [i for i in exported.truth["collectives"] if i["role"]]
    assert expected
    for rank in range(PLAN.ranks):
        totals: list[Counter[str]] = []
        for event in exported.rows(rank, NCCL):
            if event["name"] == "ncclGroupStart":
                totals.append(Counter())
            elif event["name"] in ("ncclSend", "ncclRecv"):
                said = exported.payload(rank, event)
                if said["Peer rank"] != rank:  # the truth counts what leaves and reaches a rank
                    totals[-1][event["name"]] += said["Message size [bytes]"]
        moved = [(total["ncclSend"], total["ncclRecv"]) for total in totals]
        assert moved == [(i["sent_bytes"][rank], i["received_bytes"][rank]) for i in expected]


def test_a_stage_sends_what_the_next_receives(tmp_path: Path) -> None:
    plan = replace(PLAN, pipeline_parallel=2, expert_parallel=2, layers=2)
    run = Exported(plan, tmp_path)
    transfers = defaultdict(list)
    for rank in (0, 2):  # the stages of one pipeline
        inside: Rows = []
        for event in run.rows(rank, NCCL):
            if event["name"] == "ncclGroupEnd" and len(inside) == 1:
                said = run.payload(rank, inside[0])
                transfers[rank, inside[0]["name"]].append((said["Peer rank"], said["Message size [bytes]"]))
            inside = [] if event["name"].startswith("ncclGroup") else [*inside, event]
    activation = plan.tokens * plan.hidden * 2
    assert transfers[0, "ncclSend"] == [(1, activation)] * plan.steps
    assert transfers[2, "ncclRecv"] == [(0, activation)] * plan.steps
    assert transfers[2, "ncclSend"] == [(0, activation)] * plan.steps
    assert transfers[0, "ncclRecv"] == [(1, activation)] * plan.steps


def test_without_metadata_no_range_has_a_payload(tmp_path: Path) -> None:
    run = Exported(replace(PLAN, capture=Capture(metadata=False)), tmp_path)
    assert {event["binaryData"] for event in run.rows(0, NCCL)} == {None}


def test_a_profiler_that_starts_late_has_not_seen_the_communicators(tmp_path: Path) -> None:
    run = Exported(replace(PLAN, capture=Capture(late_starts=(LateStart(1, 1.0),))), tmp_path)
    names = [{event["name"] for event in run.rows(rank, NCCL)} for rank in (0, 1)]
    assert names[0] - names[1] == {"ncclCommInitRank"}
    assert len(run.rows(1, KERNELS)) < len(run.rows(0, KERNELS))


def test_a_graph_replays_nodes_without_calls_to_nccl(tmp_path: Path) -> None:
    run = Exported(replace(PLAN, graphs=True), tmp_path)
    nodes = [row for row in run.rows(0, KERNELS) if row["graphNodeId"]]
    per_launch = Counter(row["correlationId"] for row in nodes)
    assert min(per_launch.values()) > 1
    assert not any(event["name"] == "ncclGroupEnd" for event in run.rows(0, NCCL))


def test_other_transports_leave_no_payload_and_copies_say_where_they_go(tmp_path: Path) -> None:
    run = Exported(replace(PLAN, ranks_per_host=4, transport="copy_engine"), tmp_path)
    query = (
        "SELECT copyKind, srcKind, dstKind, COUNT(*) AS n FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1, 2, 3"
    )
    kinds = {(row["copyKind"], row["srcKind"], row["dstKind"]): row["n"] for row in run.rows(0, query)}
    exchanges = sum(1 for instance in run.truth["collectives"] if instance["role"])
    assert kinds[10, 2, 2] == exchanges * (PLAN.expert_parallel - 1)  # a copy per peer
    assert "ncclSend" not in {event["name"] for event in run.rows(0, NCCL)}


def test_nsight_systems_does_not_trace_amd(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kineto"):
        write(replace(PLAN, platform="rocm"), tmp_path, trace_format="nsys")
    assert not list(tmp_path.iterdir())


def test_the_command_offers_every_format() -> None:
    [offered] = [option.type for option in synth.params if option.name == "trace_format"]
    assert isinstance(offered, click.Choice)
    assert list(offered.choices) == list(WRITERS)


def test_the_command_writes_them_compressed(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.main, ["synth", "ep8-nccl", "--format", "nsys", "-o", str(tmp_path)])
    assert result.exit_code == 0
    assert {p.name for p in tmp_path.iterdir()} == {f"rank{r}_trace.sqlite.gz" for r in range(8)} | {
        "run.toml",
        "truth.json",
    }
