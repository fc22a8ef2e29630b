"""The optimizer of one step: gradients reduced over their replicas, parameters updated and gathered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from traceview.synth import kernels
from traceview.synth.costs import PCIE_BYTES_PER_NS, memory_ns
from traceview.synth.timeline import Message
from traceview.synth.traffic import all_gather, all_reduce, reduce_scatter
from traceview.synth.transports import nccl_collective

if TYPE_CHECKING:
    from traceview.synth.machine import Machine
    from traceview.synth.topology import Group, Topology
    from traceview.synth.workload import Workload


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Adam, each replica updating its share of the parameters.

    Attributes:
        machine: Where it runs.
        workload: Sizes.
        groups: Who holds replicas of what.
        reduced: The gradient reductions so far, which the update waits for.
    """

    machine: Machine
    workload: Workload
    groups: Topology
    reduced: list[int] = field(default_factory=list)

    def reduce_layer(self) -> None:
        """Reduce the gradients of the layer whose backward was launched last, beside what follows."""
        ready = self.machine.last_op
        for group, parameters in self._replicated():
            traffic = reduce_scatter(group, -(-parameters // group.size), "Float")
            message = Message(group, traffic, "nccl")
            self.reduced.append(nccl_collective(self.machine, message, after=[ready]))

    def update(self) -> None:
        """Norm of all gradients, update, and the new parameters to all replicas."""
        machine, world = self.machine, self.groups.world
        layers = self.workload.layers // self.workload.pipeline_parallel
        with machine.within(phase="optimizer"), machine.annotate("Optimizer.step#Adam.step"):
            shares = [-(-size // group.size) for group, size in self._parameters()]
            owned = layers * sum(shares)
            machine.launch(kernels.GRADIENT_NORM, memory_ns(owned, passes=2), after=self.reduced)
            norm = Message(world, all_reduce(world, 1, "Float"), "nccl")
            summed = nccl_collective(machine, norm, after=[machine.last_op])
            machine.launch(kernels.TO_HOST, 4 / PCIE_BYTES_PER_NS, size=4, after=[summed])
            machine.synchronize()
            for share in shares:
                machine.launch(kernels.ADAM, memory_ns(layers * share, passes=14))
            updated = machine.last_op
            if self.workload.gather_parameters:
                for group, size in self._replicated():
                    traffic = all_gather(group, layers * -(-size // group.size), "BFloat16")
                    nccl_collective(machine, Message(group, traffic, "nccl"), after=[updated])

    def _parameters(self) -> tuple[tuple[Group, int], ...]:
        """Parameters per layer on one rank, with the group that replicates them: dense, then experts."""
        work, h = self.workload, self.workload.hidden
        dense = h * (4 * h // work.tensor_parallel + work.experts + 3 * work.expert_hidden)
        experts = work.experts // work.expert_parallel * 3 * h * work.expert_hidden
        return (self.groups.data, dense), (self.groups.expert_data, experts)

    def _replicated(self) -> list[tuple[Group, int]]:
        return [(group, size) for group, size in self._parameters() if group.size > 1]
