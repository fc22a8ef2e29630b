"""NVTX ranges that NCCL pushes around its calls, with their payloads.

Source: NCCL's nvtx.h and init_nvtx.h (2.27): names, numbers and fields of its payload schemas.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.synth.nsys_tables import Row
    from traceview.synth.timeline import Exchange, Timeline
    from traceview.synth.topology import Group

DOMAIN = 1
"""Number of NCCL's domain among a process's NVTX domains; 0 is the default one."""

_STATIC_SCHEMAS = 1 << 24  # NVTX counts the schemas that a library numbers itself from here
_INT32, _UINT64, _SIZE = 5, 18, 22
_COMM = ("NCCL communicator ID", _UINT64, 0)
_BYTES = ("Message size [bytes]", _SIZE, 8)
_INIT = (_COMM, ("No. of ranks", _INT32, 8), ("Rank", _INT32, 12))
_COLLECTIVE = (_COMM, _BYTES)
_TRANSFER = (_COMM, _BYTES, ("Peer rank", _INT32, 16))
_FIELDS = {0: _INIT, 4: _COLLECTIVE, 5: _COLLECTIVE, 7: _COLLECTIVE, 9: _TRANSFER, 10: _TRANSFER}
_LAYOUTS = {_INIT: "<Qii", _COLLECTIVE: "<QQ", _TRANSFER: "<QQi4x"}
_NUMBERS = {
    "ncclCommInitRank": 0,
    "ncclAllGather": 4,
    "ncclAllReduce": 5,
    "ncclReduceScatter": 7,
    "ncclSend": 9,
    "ncclRecv": 10,
}
_NAMES = {
    "all_gather": "ncclAllGather",
    "all_reduce": "ncclAllReduce",
    "reduce_scatter": "ncclReduceScatter",
}
_ENQUEUE_NS = 700  # from the opening of a group to its launch; less than an operator needs to get there
_LAUNCH_MARGIN_NS = 100


@dataclass(frozen=True, slots=True)
class Range:
    """One range: its name, its stamps, and its payload with the header that exports put before it."""

    name: str
    start: int
    end: int
    payload: bytes | None = None


class Calls:
    """The NCCL calls of one rank."""

    def __init__(self, timeline: Timeline, rank: int) -> None:
        self._timeline = timeline
        self._rank = rank
        self._with_payloads = timeline.workload.capture.metadata

    def created(self, start: int, end: int) -> Iterator[Range]:
        """The creation of every communicator, one after the other from ``start`` to ``end``."""
        groups = self._timeline.topology.groups()
        borders = np.linspace(start, end, len(groups) + 1).astype(np.int64).tolist()
        for group, begin, done in zip(groups, borders, borders[1:], strict=False):
            yield self._range("ncclCommInitRank", (begin, done), group, group.size, self._position(group))

    def around(self, exchange: Exchange, start: int, end: int) -> Iterator[Range]:
        """The ranges of a call whose kernel is launched from ``start`` to ``end``.

        An all-to-all is a group of sends and receives, a transfer between two ranks one of either.
        """
        traffic, group = exchange.message.traffic, exchange.message.group
        launch = (start - _LAUNCH_MARGIN_NS, end + _LAUNCH_MARGIN_NS)
        if name := _NAMES.get(traffic.collective):
            # the size is that of one rank's share
            share = min(int(traffic.in_bytes[self._rank]), int(traffic.out_bytes[self._rank]))
            yield self._range(name, launch, group, share)
            return
        transfers = self._transfers(exchange)
        borders = np.linspace(start - _ENQUEUE_NS, launch[0], len(transfers) + 2).astype(np.int64).tolist()
        yield Range("ncclGroupStart", borders[0], borders[1])
        for (name, peer, size), begin, done in zip(transfers, borders[1:-1], borders[2:], strict=True):
            yield self._range(name, (begin, done), group, size, peer)
        yield Range("ncclGroupEnd", *launch)

    def _transfers(self, exchange: Exchange) -> list[tuple[str, int, int]]:
        """Call, peer and bytes of every send and receive."""
        traffic, group, rank = exchange.message.traffic, exchange.message.group, self._rank
        if exchange.message.pair is not None:
            ends = exchange.message.meeting.ranks_of(rank).tolist()
            call, peer = ("ncclSend", ends[1]) if rank == ends[0] else ("ncclRecv", ends[0])
            return [(call, group.ranks_of(rank).tolist().index(peer), int(traffic.in_bytes[rank]))]
        sides = (
            ("ncclSend", traffic.rows_out, int(traffic.in_bytes[rank])),
            ("ncclRecv", traffic.rows_in, int(traffic.out_bytes[rank])),
        )
        sizes = []
        for call, rows, total in sides:
            own = np.ones(group.size, dtype=np.int64) if rows is None else rows[rank].astype(np.int64)
            row_bytes = total // max(int(own.sum()), 1)
            sizes.append([(call, peer, size) for peer, size in enumerate((own * row_bytes).tolist())])
        return [transfer for both in zip(*sizes, strict=True) for transfer in both]

    def _range(self, name: str, times: tuple[int, int], group: Group, *fields: int) -> Range:
        comm = _communicator(self._timeline.workload.seed, group, group.set_of(self._rank))
        return Range(name, *times, _payload(name, comm, *fields) if self._with_payloads else None)

    def _position(self, group: Group) -> int:
        return int(group.position[self._rank])


def schema_entries() -> Iterator[Row]:
    """Rows of ``NVTX_PAYLOAD_SCHEMA_ENTRIES``: where each field of the payloads lies."""
    for number, fields in _FIELDS.items():
        for index, (name, kind, offset) in enumerate(fields):
            yield {
                "domainId": DOMAIN,
                "schemaId": _STATIC_SCHEMAS + number,
                "idx": index,
                "type": kind,
                "name": name,
                "offset": offset or None,
            }


def _payload(name: str, *values: int) -> bytes:
    number = _NUMBERS[name]
    content = struct.pack(_LAYOUTS[_FIELDS[number]], *values)
    header = struct.pack("<4Q", DOMAIN, _STATIC_SCHEMAS + number, len(content), 32)
    return header + content


def _communicator(seed: int, group: Group, row: int) -> int:
    """NCCL's hash of a communicator: any number that its ranks share and no other group has."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{group.desc}/{row}".encode()).digest()[:8], "little")
