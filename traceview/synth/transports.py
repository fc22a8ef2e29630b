"""How dispatch, combine and the other collectives reach the device, library by library.

A transport is one function with the signature of `Transport`; adding one is adding it to `TRANSPORTS`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import numpy as np

from traceview.synth import kernels, transport_kernels
from traceview.synth.costs import memory_ns
from traceview.synth.timeline import Message
from traceview.synth.traffic import ITEM_BYTES, all_to_all, barrier, distinct_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.layer import Layer
    from traceview.synth.machine import Machine
    from traceview.synth.timeline import Role
    from traceview.synth.traffic import Rows, Traffic

STREAMS = {"world": 23, "dp": 27, "edp": 31, "ep": 35, "tp": 39, "cp": 43, "pp": 47}
"""Stream of each axis; NCCL gives every communicator its own."""

# Operator and range around each collective; sender and receiver of a transfer name theirs differently.
_NCCL_OPERATORS: dict[str, tuple[str | None, str]] = {
    "all_to_all": ("c10d::alltoall_base_", "nccl:all_to_all"),
    "all_gather": ("c10d::_allgather_base_", "nccl:_all_gather_base"),
    "reduce_scatter": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base"),
    "all_reduce": ("c10d::allreduce_", "nccl:all_reduce"),
    "send_recv": (None, "nccl:{flow}"),
}
_DEEP_EP_OPERATORS = {"dispatch": "deepep::dispatch", "combine": "deepep::combine"}
_HYBRID_EP_OPERATORS = {"dispatch": "hybridep::dispatch", "combine": "hybridep::combine"}


class Transport(Protocol):
    """Carries the rows of one MoE layer to its experts, or back."""

    def __call__(self, layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
        """Launch the exchange; the device op that completes it comes back.

        Args:
            layer: The layer, with its groups, its tokens and the machine.
            role: ``dispatch`` to the experts, ``combine`` back from them.
            part: Part of the layer whose forward or backward this is.
            after: Device ops that produce the rows.
        """
        ...


def nccl_collective(machine: Machine, message: Message, *, after: Sequence[int]) -> int:
    """Launch one NCCL collective as `torch.distributed` does; the device op comes back."""
    operator, annotation = _NCCL_OPERATORS[message.traffic.collective]
    kernel = kernels.NCCL[message.traffic.collective]
    row = machine.next_exchange
    with (
        machine.operator(operator) if operator else nullcontext(),
        machine.operator(kernel.host_op, exchange=row),
        machine.annotate(annotation, exchange=row),
    ):
        return machine.meet(kernel, message, stream=STREAMS[message.group.axis], after=after)


def _nccl(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """One all-to-all-v: a copy of the row per chosen expert."""
    traffic = _rows(layer, (layer.routing.rows_out, layer.routing.rows_in), role)
    return nccl_collective(layer.machine, Message(layer.group, traffic, "nccl", role, part), after=after)


def _copy_engine(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """The same all-to-all-v, but NCCL has the copy engines carry it and launches no kernel."""
    machine, group = layer.machine, layer.group
    traffic = _rows(layer, (layer.routing.rows_out, layer.routing.rows_in), role)
    row = machine.next_exchange
    with (
        machine.operator("c10d::alltoall_base_"),
        machine.operator(kernels.TO_PEER.host_op, exchange=row),
        machine.annotate("nccl:all_to_all", exchange=row),
    ):
        return machine.copy_to_peers(
            kernels.TO_PEER,
            Message(group, traffic, "nccl", role, part),
            _peer_sizes(layer, traffic),
            stream=STREAMS[group.axis],
            after=after,
        )


def _peer_sizes(layer: Layer, traffic: Traffic) -> list[NDArray[np.int64]]:
    """Bytes each rank sends to the next rank of its set, to the one after that, and so on around."""
    rows = np.asarray(traffic.rows_out, dtype=np.int64)
    row_bytes = layer.workload.hidden * ITEM_BYTES[traffic.dtype]
    own, size = layer.group.position, layer.group.size
    ranks = np.arange(len(rows))
    return [rows[ranks, (own + distance) % size] * row_bytes for distance in range(1, size)]


def _deepep(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """A notification in which the ranks wait for each other, then one copy of the row per chosen rank."""
    machine, group, work = layer.machine, layer.group, layer.workload
    is_near = not group.crosses_hosts.any()
    names = transport_kernels.DEEP_EP_INTRANODE if is_near else transport_kernels.DEEP_EP_INTERNODE
    ready = list(after)
    is_new = role == "dispatch" and machine.scope.phase == "forward"
    with machine.operator(_DEEP_EP_OPERATORS[role]):
        if is_new:
            layout = memory_ns(work.own_tokens * work.top_k, passes=8)
            ready.append(machine.launch(transport_kernels.DEEP_EP_LAYOUT, layout))
        notified = _greet(
            layer, names["notify_dispatch" if is_new else f"cached_notify_{role}"], role, part, ready
        )
        if is_new:
            machine.spin(notified)  # the host needs the row counts to size the receive buffer
        return _carry(layer, names, role, part, after=())


def _deepep_low_latency(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """One kernel per direction that sends, waits for the others and receives."""
    with layer.machine.operator(_DEEP_EP_OPERATORS[role]):
        return _carry(layer, transport_kernels.DEEP_EP_LOW_LATENCY, role, part, after=after)


def _hybridep(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """A barrier on the device, then the payload; the host never waits."""
    machine, work = layer.machine, layer.workload
    ready = list(after)
    with machine.operator(_HYBRID_EP_OPERATORS[role]):
        if role == "dispatch" and machine.scope.phase == "forward":
            scan = memory_ns(work.own_tokens * work.experts, passes=1)
            ready.append(machine.launch(transport_kernels.HYBRID_EP_SCAN, scan))
        _greet(layer, transport_kernels.HYBRID_EP["sync"], role, part, ready)
        return _carry(layer, transport_kernels.HYBRID_EP, role, part, after=())


def _greet(layer: Layer, kernel: Kernel, role: Role, part: Role, after: Sequence[int]) -> int:
    """Launch the kernel in which the ranks of a set wait for each other."""
    message = Message(layer.group, barrier(layer.group), "ep", role, part)
    return layer.machine.meet(kernel, message, stream=STREAMS[layer.group.axis], after=after)


def _carry(layer: Layer, names: Mapping[str, Kernel], role: Role, part: Role, *, after: Sequence[int]) -> int:
    """Launch the kernel that moves one copy of each row per chosen rank."""
    payload = _rows(layer, distinct_rows(layer.routing, layer.workload.own_tokens), role)
    message = Message(layer.group, payload, "ep", role, part)
    return layer.machine.meet(names[role], message, stream=STREAMS[layer.group.axis], after=after)


def _rows(layer: Layer, rows: tuple[Rows, Rows], role: Role) -> Traffic:
    """The all-to-all of ``rows`` (out and in, as a dispatch sends them) in the direction of ``role``."""
    rows_out, rows_in = rows if role == "dispatch" else rows[::-1]
    # Only activations on their way to the experts are quantised.
    is_quantised = role == "dispatch" and layer.machine.scope.phase == "forward"
    dtype = layer.workload.dispatch_dtype if is_quantised else "BFloat16"
    return all_to_all(layer.group, rows_out, rows_in, layer.workload.hidden, dtype)


TRANSPORTS: dict[str, Transport] = {
    "nccl": _nccl,
    "copy_engine": _copy_engine,
    "deepep": _deepep,
    "deepep_low_latency": _deepep_low_latency,
    "hybridep": _hybridep,
}
"""Transports by name."""
