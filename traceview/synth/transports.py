"""How dispatch, combine and the other collectives reach the device, library by library.

A transport is one function with the signature of `Transport`; adding one is adding it to `TRANSPORTS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from traceview.synth import kernels
from traceview.synth.costs import memory_ns
from traceview.synth.timeline import Message
from traceview.synth.traffic import all_to_all, barrier, distinct_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from traceview.synth.layer import Layer
    from traceview.synth.machine import Machine
    from traceview.synth.timeline import Role
    from traceview.synth.traffic import Traffic

STREAMS = {"world": 23, "dp": 27, "edp": 31, "ep": 35}
"""Stream of each axis; NCCL gives every communicator its own."""

_NCCL_OPERATORS = {
    "all_to_all": ("c10d::alltoall_base_", "nccl:all_to_all"),
    "all_gather": ("c10d::_allgather_base_", "nccl:_all_gather_base"),
    "reduce_scatter": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base"),
    "all_reduce": ("c10d::allreduce_", "nccl:all_reduce"),
}
_DEEP_EP_OPERATORS = {"dispatch": "deepep::dispatch", "combine": "deepep::combine"}


class Transport(Protocol):
    """Carries the rows of one MoE layer to its experts, or back."""

    def __call__(self, layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
        """Launch the exchange; the device op that completes it comes back.

        Args:
            layer: The layer, with its group, its tokens and the machine.
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
        machine.operator(operator),
        machine.operator(kernel.host_op, exchange=row),
        machine.annotate(annotation, exchange=row),
    ):
        return machine.meet(kernel, message, stream=STREAMS[message.group.axis], after=after)


def _nccl(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """One all-to-all-v: a copy of the row per chosen expert."""
    rows = (layer.routing.rows_out, layer.routing.rows_in)
    traffic = _rows(layer, rows, role)
    return nccl_collective(layer.machine, Message(layer.group, traffic, "nccl", role, part), after=after)


def _deepep(layer: Layer, *, role: Role, part: Role, after: Sequence[int]) -> int:
    """A notification in which the ranks wait for each other, then one copy of the row per chosen rank."""
    machine, group, work = layer.machine, layer.group, layer.workload
    names = kernels.DEEP_EP_INTERNODE if group.crosses_hosts.any() else kernels.DEEP_EP_INTRANODE
    payload = _rows(layer, distinct_rows(layer.routing, work.tokens), role)
    stream, ready = STREAMS[group.axis], list(after)
    is_new = role == "dispatch" and machine.scope.phase == "forward"
    with machine.operator(_DEEP_EP_OPERATORS[role]):
        if is_new:
            ready.append(
                machine.launch(kernels.DEEP_EP_LAYOUT, memory_ns(work.tokens * work.top_k, passes=8))
            )
        notify = names["notify_dispatch" if is_new else f"cached_notify_{role}"]
        greeting = Message(group, barrier(group), "deep_ep", role, part)
        notified = machine.meet(notify, greeting, stream=stream, after=ready)
        if is_new:
            machine.spin(notified)  # the host needs the row counts to size the receive buffer
        return machine.meet(names[role], Message(group, payload, "deep_ep", role, part), stream=stream)


def _rows(layer: Layer, rows: tuple[NDArray[np.int64], NDArray[np.int64]], role: Role) -> Traffic:
    """The all-to-all of ``rows`` (out and in, as a dispatch sends them) in the direction of ``role``."""
    rows_out, rows_in = rows if role == "dispatch" else rows[::-1]
    # Only activations on their way to the experts are quantised.
    is_quantised = role == "dispatch" and layer.machine.scope.phase == "forward"
    dtype = layer.workload.dispatch_dtype if is_quantised else "BFloat16"
    return all_to_all(layer.group, rows_out, rows_in, layer.workload.hidden, dtype)


TRANSPORTS: dict[str, Transport] = {"nccl": _nccl, "deepep": _deepep}
"""Transports by name."""
