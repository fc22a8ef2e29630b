"""One training step: which part of which layer is launched when.

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
from traceview.synth.optimizer import Optimizer
from traceview.synth.schedule import Action, one_f_one_b
from traceview.synth.timeline import Message
from traceview.synth.traffic import send_recv
from traceview.synth.transports import nccl_collective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from traceview.synth.machine import Machine
    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Phase
    from traceview.synth.topology import Topology
    from traceview.synth.workload import Workload

T = TypeVar("T")

_HOSTILE_NAMES = (
    'evil "name": {"ph": "X", "cat": "kernel", "dur": 1}',
    "close }, {",
    "back\\slash\\",
    "line\nfeed\tand ]}",
    "unicodé ✓ \U0001f680",
)


@dataclass(slots=True)
class Step:
    """One training step.

    Attributes:
        machine: Where it runs.
        workload: Sizes.
        groups: Who exchanges with whom.
        step: Its number.
        routings: Tokens by (step, microbatch, layer).
        optimizer: What ends it.
        outputs: The last op of each action so far.
    """

    machine: Machine
    workload: Workload
    groups: Topology
    step: int
    routings: dict[tuple[int, int, int], Routing]
    optimizer: Optimizer = field(init=False)
    outputs: dict[Action, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.optimizer = Optimizer(self.machine, self.workload, self.groups)

    def run(self) -> None:
        """Every microbatch forward and backward, then the optimizer."""
        if self.workload.traps:
            self._hostile_rows()
        if self.workload.overlap == "1f1b":
            self._beside_each_other()
        else:
            for ready in one_f_one_b(self.workload.pipeline_parallel, self.workload.microbatches):
                arrived = {action: self._receive(action) for action in ready}
                for action in ready:
                    with self.machine.only(self._stage_ranks(action.stage)):
                        run = self._forward if action.phase == "forward" else self._backward
                        run(action, arrived[action])
                        self.outputs[action] = self.machine.last_op
        self.optimizer.update()

    # --- microbatches ---------------------------------------------------------------------------------

    def _beside_each_other(self) -> None:
        """The forward of each microbatch but the first beside its predecessor's backward."""
        last = self.workload.microbatches - 1
        self._forward(Action(0, "forward", 0))
        for microbatch in range(1, last + 1):
            self._forward_beside_backward(microbatch)
        self._backward(Action(0, "backward", last))

    def _forward(self, action: Action, after: Sequence[int] = ()) -> None:
        stage, microbatch = action.stage, action.microbatch
        with self.machine.annotate(f"PP:{stage}F{microbatch}"), self._as_graph(0):
            if stage == 0:
                self._begin_forward(microbatch)
            for index in self._layers(stage):
                with self.machine.annotate(f"layer_{index}f"):
                    self._layer_forward(self._layer(microbatch, index), after)
                    after = ()
            if stage == self.workload.pipeline_parallel - 1:
                self._end_forward(microbatch)

    def _backward(self, action: Action, after: Sequence[int] = ()) -> None:
        stage, microbatch = action.stage, action.microbatch
        with (
            self.machine.on("autograd"),
            self.machine.annotate(f"PP:{stage}B{microbatch}"),
            self._as_graph(1),
        ):
            if stage == self.workload.pipeline_parallel - 1:
                self._begin_backward(microbatch)
            for index in reversed(self._layers(stage)):
                with self.machine.annotate(f"layer_{index}b"):
                    self._layer_backward(self._layer(microbatch, index), after)
                    self._reduce_gradients(microbatch, index)
                    after = ()
            if stage == 0:
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

    def _receive(self, action: Action) -> list[int]:
        """Bring the neighbouring stage's output over; the op to wait for, if there is a neighbour."""
        source = action.needs(self.workload.pipeline_parallel)
        if source is None:
            return []
        pair = self.groups.pipeline.between(source.stage, action.stage)
        traffic = send_recv(pair, self.workload.own_tokens * self.workload.hidden, "BFloat16")
        message = Message(self.groups.pipeline, traffic, "nccl", pair=pair)
        both = self._stage_ranks(source.stage) | self._stage_ranks(action.stage)
        letter = "F" if action.phase == "forward" else "B"
        with (
            self.machine.only(both),
            self._place(action.phase, action.microbatch),
            self.machine.annotate(
                f"PP:{{stage}}{{act}}_{letter}{action.microbatch}", exchange=self.machine.next_exchange
            ),
        ):
            return [nccl_collective(self.machine, message, after=[self.outputs[source]])]

    @contextmanager
    def _as_graph(self, number: int) -> Iterator[None]:
        """Replay what is launched inside as a graph, if the workload wants that."""
        if not self.workload.graphs:
            yield
            return
        with self.machine.replay(number + 1):
            yield

    # --- layers ---------------------------------------------------------------------------------------

    def _layer_forward(self, layer: Layer, after: Sequence[int]) -> None:
        beside_dispatch = self.workload.overlap == "shared"
        sent = self._node(
            "pre_dispatch_computation", "forward", layer, lambda: layer.attention_forward(after)
        )
        arrived = self._node("moe_dispatch", "forward", layer, lambda: layer.dispatch_forward(sent))
        if beside_dispatch:
            self._node("shared_expert", "forward", layer, layer.shared_forward)
        worked = self._node("mlp", "forward", layer, lambda: layer.experts_forward(arrived))
        returned = self._node("moe_combine", "forward", layer, lambda: layer.combine_forward(worked))
        if not beside_dispatch:
            self._node("shared_expert", "forward", layer, lambda: layer.shared_forward([returned]))
        self._node("post_combine", "forward", layer, lambda: layer.merge_forward(returned))

    def _layer_backward(self, layer: Layer, after: Sequence[int]) -> None:
        beside_combine = self.workload.overlap == "shared"
        sent = self._node("post_combine", "backward", layer, lambda: layer.merge_backward(after))
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
            size = 8 * work.own_tokens
            self.machine.launch(kernels.TO_DEVICE, size / PCIE_BYTES_PER_NS, size=size)
            self.machine.launch(kernels.EMBEDDING, memory_ns(work.own_tokens * work.hidden, passes=2))

    def _end_forward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("forward", microbatch), self.machine.annotate("post_process forward"):
            self.machine.launch(kernels.LOGITS, matmul_ns(work.own_tokens, work.vocabulary, work.hidden))
            self.machine.launch(kernels.LOSS, memory_ns(work.own_tokens * work.vocabulary, passes=2))

    def _begin_backward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("backward", microbatch), self.machine.annotate("post_process backward"):
            self.machine.launch(kernels.LOSS_BACKWARD, memory_ns(work.own_tokens * work.vocabulary, passes=2))
            self.machine.launch(kernels.LOGITS, matmul_ns(2 * work.own_tokens, work.vocabulary, work.hidden))

    def _end_backward(self, microbatch: int) -> None:
        work = self.workload
        with self._place("backward", microbatch), self.machine.annotate("pre_process backward"):
            self.machine.launch(
                kernels.EMBEDDING_BACKWARD, memory_ns(work.own_tokens * work.hidden, passes=3)
            )

    def _reduce_gradients(self, microbatch: int, index: int) -> None:
        """Once the last microbatch has added its gradients, reduce them beside the remaining backward."""
        if microbatch == self.workload.microbatches - 1:
            with self._place("backward", microbatch, index):
                self.optimizer.reduce_layer()

    def _layer(self, microbatch: int, index: int) -> Layer:
        routing = self.routings[self.step, microbatch, index]
        return Layer(self.machine, self.workload, self.groups, routing)

    def _layers(self, stage: int) -> range:
        """Layers that a stage holds."""
        per_stage = self.workload.layers // self.workload.pipeline_parallel
        return range(stage * per_stage, (stage + 1) * per_stage)

    def _stage_ranks(self, stage: int) -> NDArray[np.bool_]:
        return self.groups.in_stage(stage)

    def _hostile_rows(self) -> None:
        """Host rows whose names try to break out of a reader's text or look like device work."""
        with self.machine.frame("train.py(41): train_step"), self.machine.frame("nn.Module: MoELayer_0"):
            for name in _HOSTILE_NAMES:
                with self.machine.operator(name):
                    pass
        with self.machine.annotate(_HOSTILE_NAMES[0]):
            pass
