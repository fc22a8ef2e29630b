"""What happened, in true time: facts that all ranks share as rows, times as one matrix per table.

The program is the same on every rank, so a row is an event of the program and a matrix column is a rank.
Times are int64 nanoseconds since the run began; clocks, files and formats come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.routing import Routing
    from traceview.synth.topology import Group, Topology
    from traceview.synth.traffic import Traffic
    from traceview.synth.workload import Workload

Thread = Literal["main", "autograd"]
Phase = Literal["forward", "backward", "optimizer"]
Role = Literal["dispatch", "combine"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the training step that something belongs to; None where it belongs to no one part."""

    step: int | None = None
    microbatch: int | None = None
    layer: int | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HostSpan:
    """Something a host thread did.

    Attributes:
        kind: ``annotation`` (named range), ``operator``, ``call`` (runtime or driver) or ``frame`` (Python).
        name: Name of the range, operator, call or frame.
        thread: Thread that did it.
        operator: Innermost operator around it, as a row of the same table.
        annotation: Innermost annotation around it on its thread, as a row of the same table.
        sequence: Number that ties a forward operator to its backward.
        exchange: Communication call it describes, as a row of `Timeline.exchanges`.
        dims: Shapes of its tensor inputs; a size that differs per rank is an array of shape (ranks,).
    """

    kind: Literal["annotation", "operator", "call", "frame"]
    name: str
    thread: Thread
    operator: int | None = None
    annotation: int | None = None
    sequence: int | None = None
    exchange: int | None = None
    dims: tuple[tuple[int | NDArray[np.int64], ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOp:
    """One piece of device work.

    Attributes:
        kernel: What runs.
        stream: Stream it runs on.
        call: Host call that launched it, as a row of `Timeline.spans`.
        scope: Part of the step it belongs to.
        size: Bytes copied or set; 0 for kernels.
        exchange: Communication call it carries out, as a row of `Timeline.exchanges`; None for local work.
    """

    kernel: Kernel
    stream: int
    call: int
    scope: Scope
    size: int = 0
    exchange: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A communication call as the program asks for it.

    Attributes:
        group: Process group.
        traffic: What it moves.
        library: ``nccl`` leaves metadata with the profiler, ``deep_ep`` does not.
        role: Direction of an expert exchange: ``dispatch`` carries rows to experts, ``combine`` carries them
            back. The backward of a combine is a dispatch.
        part: Part of the MoE layer whose forward or backward it is; None for other communication.
    """

    group: Group
    traffic: Traffic
    library: Literal["nccl", "deep_ep"]
    role: Role | None = None
    part: Role | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One communication call: on every set of its group, one instance of a collective.

    Attributes:
        op: Device op that carries it out, as a row of `Timeline.ops`.
        message: What was asked.
        sequence: Number of the call among those on its group, from 1.
        transfer_ns: Time from a set's last arrival to its end, shape (ranks,).
    """

    op: int
    message: Message
    sequence: int
    transfer_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The whole run.

    Attributes:
        workload: Plan it came from.
        topology: Process groups.
        routings: Tokens routed, one per (step, microbatch, layer).
        spans: Host side, in the order the host began them.
        span_start_ns: Shape (spans, ranks).
        span_end_ns: Shape (spans, ranks).
        ops: Device side, in launch order.
        op_start_ns: Shape (ops, ranks).
        op_end_ns: Shape (ops, ranks).
        exchanges: Communication calls, in launch order.
    """

    workload: Workload
    topology: Topology
    routings: tuple[Routing, ...]
    spans: tuple[HostSpan, ...]
    span_start_ns: NDArray[np.int64]
    span_end_ns: NDArray[np.int64]
    ops: tuple[DeviceOp, ...]
    op_start_ns: NDArray[np.int64]
    op_end_ns: NDArray[np.int64]
    exchanges: tuple[Exchange, ...]
