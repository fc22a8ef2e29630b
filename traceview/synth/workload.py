"""The plan of a synthetic run: every knob, and nothing that is computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from traceview.errors import UsageError

Transport = Literal["nccl", "deepep"]
Overlap = Literal["none", "shared", "1f1b"]
Cause = Literal["slow_kernels", "late_launch", "more_tokens"]


_SIZES = (
    "ranks",
    "ranks_per_host",
    "expert_parallel",
    "steps",
    "microbatches",
    "layers",
    "hidden",
    "expert_hidden",
    "experts",
    "top_k",
    "tokens",
    "vocabulary",
)


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank that is slower than its peers, and why.

    Attributes:
        rank: Global rank.
        cause: ``slow_kernels`` stretches its compute kernels by ``factor``; ``late_launch`` stretches the
            host's time between launches by ``factor``; ``more_tokens`` makes the router prefer its experts
            ``factor`` times over.
        factor: 1 changes nothing, 2 doubles.
    """

    rank: int
    cause: Cause
    factor: float


@dataclass(frozen=True, slots=True)
class Clock:
    """How a host's clock reads: ``stamp = true time * (1 + drift) + offset``."""

    offset_ns: int = 0
    drift_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A few training steps of a Mixture-of-Experts model on some hosts.

    The same workload always gives the same bytes: nothing but ``seed`` feeds the random draws, and the
    clocks and the overlap never change what is routed where.

    Attributes:
        ranks: GPUs, one process each; rank ``r`` lives on host ``r // ranks_per_host``.
        ranks_per_host: GPUs that share a host and its NVLink domain.
        expert_parallel: Size of an expert-parallel group; consecutive ranks form a group.
        steps: Recorded steps.
        first_step: Number of the first recorded step.
        microbatches: Microbatches per step.
        layers: Transformer layers, all of them MoE layers.
        hidden: Width of the model.
        expert_hidden: Width of one expert, and of the shared expert.
        experts: Routed experts per layer.
        top_k: Experts per token.
        tokens: Tokens per rank and microbatch; also the sequence length.
        vocabulary: Rows of the embedding.
        transport: Library that carries dispatch and combine.
        dispatch_dtype: Element type of dispatched rows; combined rows and gradients are BF16.
        overlap: ``none`` keeps dispatch and combine on the critical path; ``shared`` runs the shared expert
            beside them; ``1f1b`` runs one microbatch's forward beside its predecessor's backward.
        gather_parameters: All-gather the updated parameters after the optimizer (ZeRO).
        expert_imbalance: Standard deviation of the experts' log popularity; 0 forces balance.
        jitter: Relative standard deviation of kernel and host times.
        start_skew_ns: Each rank begins at a uniform random time up to this late.
        stragglers: Ranks slower than their peers.
        clocks: One clock per host, or one for all.
        traps: Also write what trips careless readers: Triton host rows with a stream, hostile names,
            Python frames.
        seed: Source of every random draw.
    """

    ranks: int = 8
    ranks_per_host: int = 8
    expert_parallel: int = 8
    steps: int = 4
    first_step: int = 10
    microbatches: int = 1
    layers: int = 2
    hidden: int = 2048
    expert_hidden: int = 768
    experts: int = 64
    top_k: int = 8
    tokens: int = 4096
    vocabulary: int = 32768
    transport: Transport = "nccl"
    dispatch_dtype: Literal["BFloat16", "Float8_e4m3fn"] = "BFloat16"
    overlap: Overlap = "none"
    gather_parameters: bool = True
    expert_imbalance: float = 0.3
    jitter: float = 0.02
    start_skew_ns: int = 200_000
    stragglers: tuple[Straggler, ...] = ()
    clocks: tuple[Clock, ...] = (Clock(),)
    traps: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        for name in _SIZES:
            _require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        _require(self.ranks % self.expert_parallel == 0, "expert_parallel must divide ranks")
        _require(self.experts % self.expert_parallel == 0, "expert_parallel must divide experts")
        _require(self.top_k <= self.experts, "top_k cannot exceed experts")
        _require(self.transport in get_args(Transport), f"transport is one of {get_args(Transport)}")
        _require(self.overlap in get_args(Overlap), f"overlap is one of {get_args(Overlap)}")
        _require(self.overlap != "1f1b" or self.microbatches > 1, "overlap 1f1b needs two microbatches")
        _require(len(self.clocks) in (1, self.hosts), f"clocks needs 1 or {self.hosts} entries, one per host")
        _require(min(self.jitter, self.expert_imbalance, self.start_skew_ns) >= 0, "spreads are not negative")
        for straggler in self.stragglers:
            _require(0 <= straggler.rank < self.ranks, f"straggler rank {straggler.rank} does not exist")
            _require(straggler.factor > 0, "a straggler's factor must be positive")

    @property
    def hosts(self) -> int:
        """Number of hosts; the last may be partly filled."""
        return -(-self.ranks // self.ranks_per_host)

    def host(self, rank: int) -> int:
        """Host of ``rank``."""
        return rank // self.ranks_per_host

    def device(self, rank: int) -> int:
        """Index of ``rank``'s GPU on its host."""
        return rank % self.ranks_per_host

    def clock(self, rank: int) -> Clock:
        """Clock that stamps ``rank``'s events."""
        return self.clocks[self.host(rank) if len(self.clocks) > 1 else 0]


def _require(holds: bool, why: str) -> None:  # noqa: FBT001 - the claim itself, always positional
    if not holds:
        message = f"this workload cannot be built: {why}."
        raise UsageError(message)
