"""One MoE transformer layer of one microbatch: what each of its parts launches, forward and backward.

The parts are the nodes that a schedule orders: attention and routing, dispatch, experts, shared expert,
combine, and the sum that ends the layer. Backward parts cost twice their forward: input and weight gradients.

Tensor-parallel ranks gather the sequence before attention and scatter it after; context-parallel ranks gather
keys and values. Router and experts work on each rank's own tokens, the shared expert on a whole copy of its
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceview.synth import kernels
from traceview.synth.costs import PCIE_BYTES_PER_NS, matmul_ns, memory_ns
from traceview.synth.timeline import Message
from traceview.synth.traffic import all_gather, reduce_scatter
from traceview.synth.transports import TRANSPORTS, nccl_collective

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from traceview.synth.kernels import Kernel
    from traceview.synth.machine import Machine
    from traceview.synth.routing import Routing
    from traceview.synth.timeline import Role
    from traceview.synth.topology import Group, Topology
    from traceview.synth.traffic import Traffic
    from traceview.synth.workload import Workload

    Exchanging = Callable[[Group, int, str], Traffic]

_SIZED_BY_HOST = ("nccl", "copy_engine")  # transports whose host needs the row counts
_PARTS = ("attention", "dispatch", "experts", "shared", "combine", "merge")
_BACKWARD_NODES = {
    "attention": "FlashAttnFuncBackward",
    "dispatch": "_AllToAllBackward",
    "experts": "_GroupedLinearBackward",
    "shared": "_LinearBackward",
    "combine": "_AllToAllBackward",
    "merge": "moe_unpermuteBackward",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of one microbatch, ready to launch.

    Attributes:
        machine: Where it launches.
        workload: Sizes.
        groups: Who exchanges with whom.
        routing: Tokens its experts receive.
    """

    machine: Machine
    workload: Workload
    groups: Topology
    routing: Routing

    @property
    def group(self) -> Group:
        """The expert-parallel group."""
        return self.groups.expert

    def attention_forward(self, after: Sequence[int] = ()) -> int:
        """Attention, router and permutation; returns the op that leaves the rows in sending order."""
        work, h = self.workload, self.workload.hidden
        rows, share = work.tokens // work.context_parallel, h // work.tensor_parallel
        with self._forward("attention"):
            self._pointwise(kernels.NORM, 2, after=after)
            gathered = self._reshard(self.groups.tensor, all_gather, work.own_tokens * h)
            self._matmul(kernels.QKV, rows, 3 * share, h, after=gathered)
            keys = self._reshard(self.groups.context, all_gather, rows * 2 * share)
            # Causal attention is half the products, and reaches about half the rate of a plain one.
            self.machine.launch(kernels.ATTENTION, matmul_ns(rows, share, 2 * work.tokens), after=keys)
            self._matmul(kernels.PROJECTION, rows, h, share)
            scattered = self._reshard(self.groups.tensor, reduce_scatter, work.own_tokens * h)
            self._pointwise(kernels.ADD, 3, after=scattered)
            self._pointwise(kernels.NORM, 2)
            self._matmul(kernels.ROUTER, work.own_tokens, work.experts, h)
            self.machine.launch(kernels.TOP_K, memory_ns(work.own_tokens * work.experts, passes=4))
            if work.router_item and not self.machine.is_replaying:
                self._read_item()
            if work.dispatch_dtype != "BFloat16":
                self._pointwise(kernels.CAST_FP8, 2)
            if work.transport in _SIZED_BY_HOST and not self.machine.is_replaying:
                return self._permute_for_splits()
            return self._pointwise(kernels.PERMUTE, 2)

    def dispatch_forward(self, after: int) -> int:
        """Send the rows to their experts."""
        return self._exchange("dispatch", role="dispatch", after=[after])

    def experts_forward(self, after: int) -> int:
        """Both grouped products of the routed experts, on the rows this rank received."""
        rows, h, width = self.routing.received, self.workload.hidden, self.workload.expert_hidden
        with self._forward("experts"):
            self.machine.launch(kernels.SORT_CHUNKS, memory_ns(rows * h, passes=2), after=[after])
            self._grouped(kernels.EXPERT_UP, rows, 2 * width, h)
            self.machine.launch(kernels.SWIGLU, memory_ns(rows * width, passes=3))
            self._grouped(kernels.EXPERT_DOWN, rows, h, width)
            return self.machine.launch(kernels.SORT_CHUNKS, memory_ns(rows * h, passes=2))

    def shared_forward(self, after: Sequence[int] = ()) -> None:
        """The shared expert, on this rank's own tokens."""
        tokens, h, width = self.workload.own_tokens, self.workload.hidden, self.workload.expert_hidden
        with self._forward("shared"):
            self._matmul(kernels.SHARED_UP, tokens, 2 * width, h, after=after)
            self.machine.launch(kernels.SWIGLU, memory_ns(tokens * width, passes=3))
            self._matmul(kernels.SHARED_DOWN, tokens, h, width)

    def combine_forward(self, after: int) -> int:
        """Send the experts' rows back."""
        return self._exchange("combine", role="combine", after=[after])

    def merge_forward(self, after: int) -> None:
        """Weigh and add what came back."""
        with self._forward("merge"):
            rows = self.workload.own_tokens * self.workload.top_k
            self.machine.launch(
                kernels.UNPERMUTE, memory_ns(rows * self.workload.hidden, passes=1), after=[after]
            )
            self._pointwise(kernels.ADD, 3)

    def merge_backward(self, after: Sequence[int] = ()) -> int:
        """Gradient of the weighted sum, in sending order."""
        with self._backward("merge"):
            elements = self.workload.own_tokens * self.workload.top_k * self.workload.hidden
            return self.machine.launch(kernels.UNPERMUTE_BACKWARD, memory_ns(elements, passes=2), after=after)

    def combine_backward(self, after: int) -> int:
        """Send the gradients to the experts: a dispatch."""
        return self._exchange("combine", role="dispatch", after=[after])

    def experts_backward(self, after: int) -> int:
        """Gradients of the routed experts."""
        rows, h, width = self.routing.received, self.workload.hidden, self.workload.expert_hidden
        with self._backward("experts"):
            self.machine.launch(kernels.SORT_CHUNKS, memory_ns(rows * h, passes=2), after=[after])
            self._grouped(kernels.EXPERT_DOWN_BACKWARD, rows, width, h)
            self._grouped(kernels.EXPERT_DOWN_BACKWARD, rows, width, h)
            self.machine.launch(kernels.SWIGLU_BACKWARD, memory_ns(rows * width, passes=5))
            self._grouped(kernels.EXPERT_UP_BACKWARD, rows, h, 2 * width)
            self._grouped(kernels.EXPERT_UP_BACKWARD, rows, h, 2 * width)
            return self.machine.launch(kernels.SORT_CHUNKS, memory_ns(rows * h, passes=2))

    def shared_backward(self, after: Sequence[int] = ()) -> None:
        """Gradients of the shared expert."""
        tokens, h, width = self.workload.own_tokens, self.workload.hidden, self.workload.expert_hidden
        with self._backward("shared"):
            self._matmul(kernels.SHARED_DOWN, 2 * tokens, h, width, after=after)
            self.machine.launch(kernels.SWIGLU_BACKWARD, memory_ns(tokens * width, passes=5))
            self._matmul(kernels.SHARED_UP, 2 * tokens, 2 * width, h)

    def dispatch_backward(self, after: int) -> int:
        """Send the experts' input gradients back: a combine."""
        return self._exchange("dispatch", role="combine", after=[after])

    def attention_backward(self, after: int) -> int:
        """Gradients of router and attention; returns the op that completes the layer's weight gradients."""
        work, h = self.workload, self.workload.hidden
        rows, share = work.tokens // work.context_parallel, h // work.tensor_parallel
        with self._backward("attention"):
            sent = work.own_tokens * work.top_k
            self.machine.launch(kernels.UNPERMUTE, memory_ns(sent * h, passes=1), after=[after])
            self.machine.launch(kernels.TOP_K_BACKWARD, memory_ns(work.own_tokens * work.experts, passes=4))
            self._matmul(kernels.ROUTER, 2 * work.own_tokens, work.experts, h)
            self._pointwise(kernels.NORM_BACKWARD, 4)
            gathered = self._reshard(self.groups.tensor, all_gather, work.own_tokens * h)
            self._matmul(kernels.PROJECTION, 2 * rows, h, share, after=gathered)
            self.machine.launch(kernels.ATTENTION_BACKWARD, matmul_ns(rows, share, 5 * work.tokens))
            keys = self._reshard(self.groups.context, reduce_scatter, rows * 2 * share)
            self._matmul(kernels.QKV, 2 * rows, 3 * share, h, after=keys)
            scattered = self._reshard(self.groups.tensor, reduce_scatter, work.own_tokens * h)
            return self._pointwise(kernels.NORM_BACKWARD, 4, after=scattered)

    def _reshard(self, group: Group, exchange: Exchanging, elements: int) -> list[int]:
        """Gather or scatter what was just computed, ``elements`` per rank; the op to wait for, if any."""
        if group.size == 1:
            return []
        message = Message(group, exchange(group, elements, "BFloat16"), "nccl")
        return [nccl_collective(self.machine, message, after=[self.machine.last_op])]

    def _permute_for_splits(self) -> int:
        """Permute, once the host knows the rows per expert: it has to size the all-to-all."""
        counts = 4 * self.workload.experts
        self.machine.launch(kernels.ZERO, memory_ns(counts, passes=1), size=counts)
        permuted = self._pointwise(kernels.PERMUTE, 2)
        self.machine.launch(kernels.TO_HOST, counts / PCIE_BYTES_PER_NS, size=counts)
        self.machine.synchronize()
        return permuted

    def _read_item(self) -> None:
        """Have the host read one number of the router, and wait for it."""
        with (
            self.machine.annotate("moe.router"),
            self.machine.operator("aten::item"),
            self.machine.operator("aten::_local_scalar_dense"),
        ):
            self.machine.launch(kernels.TO_HOST, 4 / PCIE_BYTES_PER_NS, size=4)
            self.machine.synchronize()

    def _exchange(self, part: Role, *, role: Role, after: Sequence[int]) -> int:
        forward = self.machine.scope.phase == "forward"
        with self._forward(part) if forward else self._backward(part):
            return TRANSPORTS[self.workload.transport](self, role=role, part=part, after=after)

    def _pointwise(self, kernel: Kernel, passes: int, *, after: Sequence[int] = ()) -> int:
        elements = self.workload.own_tokens * self.workload.hidden
        return self.machine.launch(kernel, memory_ns(elements, passes), after=after)

    def _matmul(
        self, kernel: Kernel, rows: int, columns: int, inner: int, *, after: Sequence[int] = ()
    ) -> None:
        self.machine.launch(kernel, matmul_ns(rows, columns, inner), after=after)

    def _grouped(self, kernel: Kernel, rows: NDArray[np.int64], columns: int, inner: int) -> None:
        local = self.workload.experts // self.workload.expert_parallel
        dims = ((rows, inner), (local, inner, columns), (local,))
        self.machine.launch(kernel, matmul_ns(rows, columns, inner), dims=dims)

    def _forward(self, part: str) -> AbstractContextManager[None]:
        return self.machine.operator(f"moe::{part}", sequence=self._sequence(part))

    def _backward(self, part: str) -> AbstractContextManager[None]:
        name = f"autograd::engine::evaluate_function: {_BACKWARD_NODES[part]}"
        return self.machine.operator(name, sequence=self._sequence(part))

    def _sequence(self, part: str) -> int:
        """Number that autograd gives this part: the same forward and backward, once per run."""
        routing, work = self.routing, self.workload
        microbatch = (routing.step - work.first_step) * work.microbatches + routing.microbatch
        return (microbatch * work.layers + routing.layer) * len(_PARTS) + _PARTS.index(part) + 1
