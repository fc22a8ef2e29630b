"""What happened, in true time: facts that all ranks share as rows, times as one matrix per table.

The program is the same on every rank, so a row is an event of the program and a matrix column is a rank.
Times are int64 nanoseconds since the run began; clocks, files and formats come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.routing import Routing
    from traceview.synth.topology import Group, Topology
    from traceview.synth.traffic import Traffic
    from traceview.synth.workload import Workload

Thread = Literal["main", "autograd"]
SpanKind = Literal["annotation", "operator", "call", "frame"]
Phase = Literal["forward", "backward", "optimizer"]
Role = Literal["dispatch", "combine"]
Hold = Literal["host", "stream", "event", "peers"]


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
        name: Name of the range, operator, call or frame; around a transfer, with fields for what differs
            between sender and receiver.
        thread: Thread that did it.
        operator: Innermost operator around it, as a row of the same table.
        annotation: Innermost annotation around it on its thread, as a row of the same table.
        sequence: Number that ties a forward operator to its backward.
        exchange: Communication call it describes, as a row of `Timeline.exchanges`.
        dims: Shapes of its tensor inputs; a size that differs per rank is an array of shape (ranks,).
        ranks: Ranks that did it, shape (ranks,); None for all.
    """

    kind: SpanKind
    name: str
    thread: Thread
    operator: int | None = None
    annotation: int | None = None
    sequence: int | None = None
    exchange: int | None = None
    dims: tuple[tuple[int | NDArray[np.int64], ...], ...] = ()
    ranks: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOp:
    """One piece of device work.

    Attributes:
        kernel: What runs.
        stream: Stream it runs on.
        call: Host call that launched it, as a row of `Timeline.spans`.
        scope: Part of the step it belongs to.
        size: Bytes copied or set, shape (ranks,) where they differ; 0 for kernels.
        exchange: Communication call it carries out, as a row of `Timeline.exchanges`; None for local work.
        node: Graph and node within it that launched it; None for a launch of its own.
        ranks: Ranks that ran it, shape (ranks,); None for all.
        held_by: What its start waited for last, per rank: the ``host`` that launched it, its own ``stream``,
            an ``event`` of another stream, or ``peers``.
    """

    kernel: Kernel
    stream: int
    call: int
    scope: Scope
    size: int | NDArray[np.int64] = 0
    exchange: int | None = None
    node: tuple[int, int] | None = None
    ranks: NDArray[np.bool_] | None = None
    held_by: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A communication call as the program asks for it.

    Attributes:
        group: Process group.
        traffic: What it moves.
        library: ``nccl`` leaves metadata with the profiler, expert-parallel transports (``ep``) do not.
        role: Direction of an expert exchange: ``dispatch`` carries rows to experts, ``combine`` carries them
            back. The backward of a combine is a dispatch.
        part: Part of the MoE layer whose forward or backward it is; None for other communication.
        pair: The group reduced to sender and receiver; None where all its ranks take part.
    """

    group: Group
    traffic: Traffic
    library: Literal["nccl", "ep"]
    role: Role | None = None
    part: Role | None = None
    pair: Group | None = None

    @property
    def meeting(self) -> Group:
        """Those who have to be there."""
        return self.pair or self.group


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One communication call: on every set of its group, one instance of a collective.

    Attributes:
        ops: Device ops that carry it out, as rows of `Timeline.ops`: a kernel, or copies to the peers.
        message: What was asked.
        sequence: Number of the call among those on its group, from 1.
        transfer_ns: Time from a set's last arrival to its end, shape (ranks,).
    """

    ops: range
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
        op_start_ns: Shape (ops, ranks); means nothing where the rank did not run the op.
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

    def done_by(self, rows: Sequence[HostSpan] | Sequence[DeviceOp], rank: int) -> NDArray[np.bool_]:
        """Which of ``rows`` (of `spans` or `ops`) ``rank`` did."""
        return np.array([row.ranks is None or row.ranks[rank] for row in rows], dtype=bool)

    def exchange_of(self, op: int) -> Exchange | None:
        """The communication call that the device op in row ``op`` carries out."""
        row = self.ops[op].exchange
        return None if row is None else self.exchanges[row]
