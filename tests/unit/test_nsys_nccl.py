"""What NCCL's payloads in Nsight Systems reports tell of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from nsys_reports import (
    ALL_GATHER,
    COMM_ID,
    COMM_INIT,
    ENTRIES,
    RECV,
    SEND,
    Row,
    Strings,
    kernel,
    launch,
    nccl,
    parse,
    report,
)

if TYPE_CHECKING:
    from pathlib import Path


def _exchange(tmp_path: Path, ranges: list[Row], ranks: int = 4) -> list[Row]:
    """`COMM_CALLS` of one NCCL kernel that was launched at 50, within ``ranges``."""
    names = Strings()
    created = nccl(0, 9, "ncclCommInitRank", COMM_INIT, COMM_ID, ranks, 1, 0)
    tables = report(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(names, 100, 200, name="ncclDevKernel_X")],
        CUPTI_ACTIVITY_KIND_RUNTIME=[launch(names, 50)],
        NVTX_EVENTS=[created, *ranges],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=ENTRIES,
        StringIds=names.rows(),
    )
    return parse(tables, tmp_path).table("comm_calls").to_dicts()


def test_a_call_tells_its_bytes_and_its_communicator(tmp_path: Path) -> None:
    [call] = _exchange(tmp_path, [nccl(45, 60, "ncclAllGather", ALL_GATHER, COMM_ID, 1000)])
    assert call["collective_name"] == "AllGather"
    assert (call["in_elements"], call["out_elements"], call["dtype"]) == (1000, 4000, "byte")
    assert (call["group_size"], call["comm_id"]) == (4, str(COMM_ID))
    assert call["source"] == "host_op"


def _group(sends: list[tuple[int, int]], receives: list[tuple[int, int]]) -> list[Row]:
    """A group of sends and receives of (peer, bytes); its end is where the kernel is launched."""
    before = [nccl(20, 21, "ncclGroupStart")]
    inside = [
        nccl(22 + n, 23 + n, "ncclSend", SEND, COMM_ID, size, peer) for n, (peer, size) in enumerate(sends)
    ]
    inside += [nccl(35, 36, "ncclRecv", RECV, COMM_ID, size, peer) for peer, size in receives]
    return [*before, *inside, nccl(48, 56, "ncclGroupEnd")]


@pytest.mark.parametrize(
    ("ranks", "peers", "name"),
    [(4, range(4), "all_to_all"), (4, [0, 2, 3], "all_to_all"), (2, [0, 1], "all_to_all"), (2, [0], None),
     (4, [2], None)],
)  # fmt: skip
def test_a_group_of_sends_is_an_all_to_all_if_it_reaches_everyone(
    tmp_path: Path, ranks: int, peers: list[int], name: str | None
) -> None:
    sends = [(peer, 100 + peer) for peer in peers]
    [call] = _exchange(tmp_path, _group(sends, [(peer, 7) for peer in peers]), ranks)
    assert call["collective_name"] == name
    assert call["in_elements"] == sum(size for _, size in sends)
    assert call["out_elements"] == 7 * len(sends)


def test_bytes_per_peer_stand_in_the_order_of_the_communicator(tmp_path: Path) -> None:
    sends, receives = [(3, 30), (0, 5), (2, 7), (3, 1)], [(1, 11), (0, 2)]
    [call] = _exchange(tmp_path, _group(sends, receives))
    # PyTorch leaves out what is empty, so a peer that is not named got nothing
    assert (call["in_splits"], call["out_splits"]) == ([5, 0, 7, 31], [2, 11, 0, 0])
    assert (call["splits_complete"], call["group_rank"]) == (True, 1)


@pytest.mark.parametrize(
    ("ranks", "sends"),
    [(4, [(2, 9)]), (4, [(1, 9), (4, 9)]), (4, [(1, 9), (-1, 9)]), (2**31 - 1, [(1, 9), (0, 9)])],
    ids=["one peer", "a peer beyond the group", "a peer below 0", "a group too large to be true"],
)
def test_transfers_that_make_no_list_keep_their_sums(
    tmp_path: Path, ranks: int, sends: list[tuple[int, int]]
) -> None:
    [call] = _exchange(tmp_path, _group(sends, []), ranks)
    assert (call["in_splits"], call["out_splits"], call["splits_complete"]) == (None, None, None)
    assert call["in_elements"] == 9 * len(sends)


def test_a_report_that_begins_inside_of_a_group_still_tells_the_next_ones_apart(tmp_path: Path) -> None:
    cut = [nccl(10, 11, "ncclSend", SEND, COMM_ID, 1, 2), nccl(12, 14, "ncclGroupEnd")]
    nested = [nccl(21, 22, "ncclGroupStart"), nccl(40, 41, "ncclGroupEnd")]
    whole = sorted([*_group([(peer, 10) for peer in range(4)], []), *nested], key=lambda row: row["start"])
    [call] = _exchange(tmp_path, [*cut, *whole])
    assert (call["collective_name"], call["in_elements"]) == ("all_to_all", 40)


def test_a_group_of_several_kinds_or_an_empty_payload_tells_nothing(tmp_path: Path) -> None:
    mixed = _group([(0, 5)], [])
    mixed.insert(1, nccl(21, 22, "ncclAllGather", ALL_GATHER, COMM_ID, 1000))
    assert _exchange(tmp_path, mixed) == []
    (tmp_path / "bare").mkdir()
    assert _exchange(tmp_path / "bare", [nccl(45, 60, "ncclAllGather")]) == []
    (tmp_path / "cut").mkdir()
    short = nccl(45, 60, "ncclAllGather", ALL_GATHER, COMM_ID, 1000)
    assert _exchange(tmp_path / "cut", [short | {"binaryData": short["binaryData"][:41]}]) == []


def test_payloads_in_tables_of_their_own_are_asked_for_as_blobs(tmp_path: Path) -> None:
    bare = report(NVTX_EVENTS=[nccl(45, 60, "ncclAllGather")], NVTX_EVENTS_PAYLOAD_SCHEMAS=[{"eventId": 1}])
    found = parse(bare, tmp_path).diagnostics.filter(pl.col("code") == "nsys.payload_tables")
    assert found["count"].to_list() == [1]
    assert "--include-blobs" in found["text"][0]
