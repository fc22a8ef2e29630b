"""What PyTorch records about a communication call, as Kineto prints it.

Source: ``record_param_comms`` and the kernel arguments of NCCL kernels in traces of PyTorch 2.9.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.synth.timeline import Exchange, Timeline

_LIST_LIMIT = 30  # PyTorch cuts split and rank lists here
_COLLECTIVE_NAMES = {
    "all_to_all": "all_to_allv",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_reduce": "allreduce",
}
TYPE_NAMES = {"BFloat16": "c10::BFloat16", "Float": "float", "Float8_e4m3fn": "c10::Float8_e4m3fn"}
"""C++ names of element types, by PyTorch's own."""


class CallTexts:
    """The recorded calls of one rank, as arguments of its rows."""

    def __init__(self, timeline: Timeline, rank: int) -> None:
        self._rank = rank
        self._capture = timeline.workload.capture
        groups = timeline.topology.groups()
        self._name = {group.desc: group.names[group.set_of(rank)] for group in groups}
        self._ranks: dict[str, list[int]] = {group.desc: group.ranks_of(rank).tolist() for group in groups}

    def on_kernel(self, exchange: Exchange) -> str:
        """What is copied to the call's kernel; nothing, for libraries PyTorch does not know."""
        message, capture = exchange.message, self._capture
        if message.library != "nccl" or not capture.metadata:
            return ""
        traffic, group = message.traffic, message.group
        into, out = self._splits(exchange)
        seq = f', "Seq": {exchange.sequence}' if capture.sequence_numbers else ""
        return (
            f', "Collective name": "{self._collective(exchange)}"'
            f', "In msg nelems": {traffic.in_elements[self._rank]}'
            f', "Out msg nelems": {traffic.out_elements[self._rank]}'
            f', "Group size": {group.size}, "dtype": "{traffic.dtype}"'
            f', "In split size": "{into}", "Out split size": "{out}"'
            f', "Process Group Name": "{self._name[group.desc]}", "Process Group Description": "{group.desc}"'
            f', "Process Group Ranks": "{_listed(self._ranks[group.desc])}"{self._peers(exchange)}{seq}'
        )

    def on_host(self, exchange: Exchange) -> str:
        """The arguments of ``record_param_comms``, in the order PyTorch's hash map leaves them."""
        capture = self._capture
        if not capture.metadata:
            return ""
        traffic, group = exchange.message.traffic, exchange.message.group
        into, out = self._splits(exchange)
        ranks = self._ranks[group.desc]
        stride = ranks[1] - ranks[0] if group.size > 1 else 1
        blanks = ", []" * 10
        concrete = ["", "", "", "0", "", into, out, "0", "1", str(group.size), "False"]
        types = [TYPE_NAMES[traffic.dtype], "", "", "Scalar", "", "ScalarList", "ScalarList"]
        types += ["Scalar"] * 4
        seq = f'"Seq": {exchange.sequence}, ' if capture.sequence_numbers else ""
        return (
            f'"Process Group Name": "{self._name[group.desc]}", '
            f'"In split size": "{into}", "Out split size": "{out}", '
            f'"Out msg nelems": {traffic.out_elements[self._rank]}, '
            f'"Process Group Ranks": "{_listed(ranks)}", "Group size": {group.size}, '
            f'"Input Strides": [[1]{blanks}], "Global rank stride": {stride}, '
            f'"Input type": {json.dumps(types)}, {seq}'
            f'"Concrete Inputs": {json.dumps(concrete)}, "Is asynchronized op": 0, '
            f'"Collective name": "{self._collective(exchange)}", '
            f'"Process Group Description": "{group.desc}", "dtype": "{traffic.dtype}", "Rank": {self._rank}, '
            f'"In msg nelems": {traffic.in_elements[self._rank]}, '
            f'"Input Dims": [[{traffic.in_elements[self._rank]}]{blanks}], "Global rank start": {ranks[0]}, '
        )

    def range_name(self, name: str, exchange: Exchange) -> str:
        """The name of a range around a call: around a transfer it says who, and which way."""
        if exchange.message.pair is None:
            return name
        places = self._ranks[exchange.message.group.desc]
        source, target = (places.index(rank) for rank in self._ends(exchange))
        if self._collective(exchange) == "send":
            return name.format(flow=f"send {source}->{target}", stage=source, act="SEND")
        return name.format(flow=f"recv {target}<-{source}", stage=target, act="RECV")

    def _collective(self, exchange: Exchange) -> str:
        if exchange.message.pair is None:
            return _COLLECTIVE_NAMES[exchange.message.traffic.collective]
        return "send" if self._rank == self._ends(exchange)[0] else "recv"

    def _peers(self, exchange: Exchange) -> str:
        if exchange.message.pair is None:
            return ""
        source, target = self._ends(exchange)
        return f', "Src Rank": {source}, "Dst Rank": {target}'

    def _ends(self, exchange: Exchange) -> tuple[int, int]:
        """Sender and receiver of a transfer, as global ranks."""
        source, target = exchange.message.meeting.ranks_of(self._rank).tolist()
        return source, target

    def _splits(self, exchange: Exchange) -> tuple[str, str]:
        """Rows sent and received per peer, as text; empty lists when the call has none."""
        traffic = exchange.message.traffic
        if traffic.rows_out is None or traffic.rows_in is None:
            return "[]", "[]"
        return (
            _listed(traffic.rows_out[self._rank].tolist()),
            _listed(traffic.rows_in[self._rank].tolist()),
        )


def _listed(values: Sequence[int]) -> str:
    shown = ", ".join(str(value) for value in values[:_LIST_LIMIT])
    return f"[{shown}, ...]" if len(values) > _LIST_LIMIT else f"[{shown}]"
