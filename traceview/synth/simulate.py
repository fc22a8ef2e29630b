"""The training step: which part of which layer is launched when, and the run that results.

Range names follow Megatron Core (``layer_3f``, ``moe_dispatch forward``) and TorchTitan (``PP:0F1``); steps
are PyTorch's ``ProfilerStep#N``. Forward work is launched by the main thread, backward work by autograd's.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from traceview.synth import kernels
from traceview.synth.costs import PCIE_BYTES_PER_NS, matmul_ns, memory_ns
from traceview.synth.layer import Layer
from traceview.synth.machine import Machine
from traceview.synth.routing import route
from traceview.synth.timeline import Message
from traceview.synth.topology import topology
from traceview.synth.traffic import all_gather, all_reduce, reduce_scatter
from traceview.synth.transports import nccl_collective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Phase, Timeline
    from traceview.synth.topology import Group, Topology
    from traceview.synth.workload import Workload

T = TypeVar("T")

_HOSTILE_NAMES = (
    'evil "name": {"ph": "X", "cat": "kernel", "dur": 1}',
    "close }, {",
    "back\\slash\\",
    "line\nfeed\tand ]}",
    "unicodé ✓ \U0001f680",
)


def simulate(workload: Workload) -> Timeline:
    """Run ``workload`` on all its ranks.

    Args:
        workload: The plan.

    Returns:
        What happened, in true time; the same workload always gives the same timeline.
    """
    groups = topology(workload)
    routings = tuple(route(workload, groups.expert))
    machine = Machine(workload, groups)
    by_place = {(r.step, r.microbatch, r.layer): r for r in routings}
    for step in range(workload.first_step, workload.first_step + workload.steps):
        with machine.within(step=step), machine.annotate(f"ProfilerStep#{step}"):
            _Step(machine, workload, groups, step, by_place).run()
    machine.synchronize_device()
    return machine.timeline(routings)


@dataclass(slots=True)
class _Step:
    """One training step; ``reduced`` collects the gradient reductions the optimizer waits for."""

    machine: Machine
    workload: Workload
    groups: Topology
    step: int
    routings: dict[tuple[int, int, int], Routing]
    reduced: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Every microbatch forward and backward, then the optimizer."""
        if self.workload.traps:
            self._hostile_rows()
        last = self.workload.microbatches - 1
        if self.workload.overlap == "1f1b":
            self._forward(0)
            for microbatch in range(1, last + 1):
                self._forward_beside_backward(microbatch)
            self._backward(last)
        else:
            for microbatch in range(last + 1):
                self._forward(microbatch)
                self._backward(microbatch)
        self._optimize()

    def _forward(self, microbatch: int) -> None:
        with self.machine.annotate(f"PP:0F{microbatch}"):
            self._begin_forward(microbatch)
            for index in range(self.workload.layers):
                with self.machine.annotate(f"layer_{index}f"):
                    self._layer_forward(self._layer(microbatch, index))
            self._end_forward(microbatch)

    def _backward(self, microbatch: int) -> None:
        with self.machine.on("autograd"), self.machine.annotate(f"PP:0B{microbatch}"):
            self._begin_backward(microbatch)
            for index in reversed(range(self.workload.layers)):
                with self.machine.annotate(f"layer_{index}b"):
                    self._layer_backward(self._layer(microbatch, index))
                    self._reduce_gradients(microbatch, index)
            self._end_backward(microbatch)

    def _forward_beside_backward(self, microbatch: int) -> None:
        """One microbatch's forward and its predecessor's backward, part by part in turn."""
        machine, before, top = self.machine, microbatch - 1, self.workload.layers - 1
        with (
            machine.annotate(f"PP:0F{microbatch}", "main"),
            machine.annotate(f"PP:0B{before}", "autograd"),
        ):
            self._begin_forward(microbatch)
            self._begin_backward(before)
            for index in range(self.workload.layers):
                with (
                    machine.annotate(f"layer_{index}f", "main"),
                    machine.annotate(f"layer_{top - index}b", "autograd"),
                ):
                    self._pair(self._layer(microbatch, index), self._layer(before, top - index))
                    self._reduce_gradients(before, top - index)
            self._end_backward(before)
            self._end_forward(microbatch)

    def _layer_forward(self, layer: Layer) -> None:
        beside_dispatch = self.workload.overlap == "shared"
        sent = self._node("pre_dispatch_computation", "forward", layer, layer.attention_forward)
        arrived = self._node("moe_dispatch", "forward", layer, lambda: layer.dispatch_forward(sent))
        if beside_dispatch:
            self._node("shared_expert", "forward", layer, layer.shared_forward)
        worked = self._node("mlp", "forward", layer, lambda: layer.experts_forward(arrived))
        returned = self._node("moe_combine", "forward", layer, lambda: layer.combine_forward(worked))
        if not beside_dispatch:
            self._node("shared_expert", "forward", layer, lambda: layer.shared_forward([returned]))
        self._node("post_combine", "forward", layer, lambda: layer.merge_forward(returned))

    def _layer_backward(self, layer: Layer) -> None:
        beside_combine = self.workload.overlap == "shared"
        sent = self._node("post_combine", "backward", layer, layer.merge_backward)
        arrived = self._node("moe_combine", "backward", layer, lambda: layer.combine_backward(sent))
        if beside_combine:
            self._node("shared_expert", "backward", layer, layer.shared_backward)
        worked = self._node("mlp", "backward", layer, lambda: layer.experts_backward(arrived))
        returned = self._node("moe_dispatch", "backward", layer, lambda: layer.dispatch_backward(worked))
        if not beside_combine:
            self._node("shared_expert", "backward", layer, lambda: layer.shared_backward([returned]))
        self._node("pre_dispatch_computation", "backward", layer, lambda: layer.attention_backward(returned))

    def _pair(self, ahead: Layer, behind: Layer) -> None:
        """Each exchange of one microbatch runs beside the other's compute.

        Order of launches: Megatron Core's combined forward-backward schedule for expert parallelism.
        """
        sent_b = self._node("post_combine", "backward", behind, behind.merge_backward)
        arrived_b = self._node("moe_combine", "backward", behind, lambda: behind.combine_backward(sent_b))
        sent_f = self._node("pre_dispatch_computation", "forward", ahead, ahead.attention_forward)
        arrived_f = self._node("moe_dispatch", "forward", ahead, lambda: ahead.dispatch_forward(sent_f))
        worked_b = self._node("mlp", "backward", behind, lambda: behind.experts_backward(arrived_b))
        returned_b = self._node(
            "moe_dispatch", "backward", behind, lambda: behind.dispatch_backward(worked_b)
        )
        self._node("shared_expert", "backward", behind, behind.shared_backward)
        worked_f = self._node("mlp", "forward", ahead, lambda: ahead.experts_forward(arrived_f))
        returned_f = self._node("moe_combine", "forward", ahead, lambda: ahead.combine_forward(worked_f))
        self._node("shared_expert", "forward", ahead, ahead.shared_forward)
        self._node(
            "pre_dispatch_computation", "backward", behind, lambda: behind.attention_backward(returned_b)
        )
        self._node("post_combine", "forward", ahead, lambda: ahead.merge_forward(returned_f))

    def _node(self, name: str, phase: Phase, layer: Layer, launch: Callable[[], T]) -> T:
        """Launch one part of a layer from its thread, in its range, for its place in the step."""
        place = self._place(phase, layer.routing.microbatch, layer.routing.layer)
        with place, self.machine.annotate(f"{name} {phase}"):
            return launch()

    @contextmanager
    def _place(self, phase: Phase, microbatch: int, layer: int | None = None) -> Iterator[None]:
        with (
            self.machine.on("autograd" if phase == "backward" else "main"),
            self.machine.within(phase=phase, microbatch=microbatch, layer=layer),
        ):
            yield

    def _begin_forward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("forward", microbatch), self.machine.annotate("pre_process forward"):
            size = 8 * work.tokens
            self.machine.launch(kernels.TO_DEVICE, size / PCIE_BYTES_PER_NS, size=size)
            self.machine.launch(kernels.EMBEDDING, memory_ns(work.tokens * work.hidden, passes=2))

    def _end_forward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("forward", microbatch), self.machine.annotate("post_process forward"):
            self.machine.launch(kernels.LOGITS, matmul_ns(work.tokens, work.vocabulary, work.hidden))
            self.machine.launch(kernels.LOSS, memory_ns(work.tokens * work.vocabulary, passes=2))

    def _begin_backward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("backward", microbatch), self.machine.annotate("post_process backward"):
            self.machine.launch(kernels.LOSS_BACKWARD, memory_ns(work.tokens * work.vocabulary, passes=2))
            self.machine.launch(kernels.LOGITS, matmul_ns(2 * work.tokens, work.vocabulary, work.hidden))

    def _end_backward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("backward", microbatch), self.machine.annotate("pre_process backward"):
            self.machine.launch(kernels.EMBEDDING_BACKWARD, memory_ns(work.tokens * work.hidden, passes=3))

    def _reduce_gradients(self, microbatch: int, index: int) -> None:
        """Once the last microbatch has added its gradients, reduce them beside the remaining backward."""
        if microbatch < self.workload.microbatches - 1:
            return
        with self._place("backward", microbatch, index):
            ready = self.machine.last_op
            for group, parameters in self._replicated_parameters():
                traffic = reduce_scatter(group, -(-parameters // group.size), "Float")
                message = Message(group, traffic, "nccl")
                self.reduced.append(nccl_collective(self.machine, message, after=[ready]))

    def _optimize(self) -> None:
        work, machine = self.workload, self.machine
        with machine.within(phase="optimizer"), machine.annotate("Optimizer.step#Adam.step"):
            shares = [-(-size // group.size) for group, size in self._parameters()]
            owned = work.layers * sum(shares)
            machine.launch(kernels.GRADIENT_NORM, memory_ns(owned, passes=2), after=self.reduced)
            norm = Message(self.groups.world, all_reduce(self.groups.world, 1, "Float"), "nccl")
            summed = nccl_collective(machine, norm, after=[machine.last_op])
            machine.launch(kernels.TO_HOST, 4 / PCIE_BYTES_PER_NS, size=4, after=[summed])
            machine.synchronize()
            for share in shares:
                machine.launch(kernels.ADAM, memory_ns(work.layers * share, passes=14))
            updated = machine.last_op
            if work.gather_parameters:
                for group, size in self._replicated_parameters():
                    traffic = all_gather(group, work.layers * -(-size // group.size), "BFloat16")
                    nccl_collective(machine, Message(group, traffic, "nccl"), after=[updated])

    def _parameters(self) -> tuple[tuple[Group, int], ...]:
        """Parameters per layer on one rank, with the group that replicates them: dense, then experts."""
        work, h = self.workload, self.workload.hidden
        dense = h * (4 * h + work.experts + 3 * work.expert_hidden)
        experts = work.experts // work.expert_parallel * 3 * h * work.expert_hidden
        return (self.groups.data, dense), (self.groups.expert_data, experts)

    def _replicated_parameters(self) -> list[tuple[Group, int]]:
        return [(group, size) for group, size in self._parameters() if group.size > 1]

    def _layer(self, microbatch: int, index: int) -> Layer:
        routing = self.routings[self.step, microbatch, index]
        return Layer(self.machine, self.workload, self.groups.expert, routing)

    def _hostile_rows(self) -> None:
        """Host rows whose names try to break out of a reader's text or look like device work."""
        with self.machine.frame("train.py(41): train_step"), self.machine.frame("nn.Module: MoELayer_0"):
            for name in _HOSTILE_NAMES:
                with self.machine.operator(name):
                    pass
        with self.machine.annotate(_HOSTILE_NAMES[0]):
            pass
