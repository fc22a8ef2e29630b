"""The plan of a synthetic run: every knob, and nothing that is computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from traceview.errors import UsageError

Transport = Literal["nccl", "copy_engine", "deepep", "deepep_low_latency", "hybridep"]
Platform = Literal["cuda", "rocm"]
Overlap = Literal["none", "shared", "1f1b"]
Family = Literal[
    "gemm", "grouped_gemm", "attention", "norm", "elementwise", "route_permute", "quantize", "optimizer"
]
Cause = Literal["slow_kernels", "more_tokens", "late_launch", "slow_link"]
GroupNames = Literal["per_axis", "per_set"]
GraphTrace = Literal["node", "graph"]

_SIZES = (
    "ranks",
    "ranks_per_host",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
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
_CHOICES = {
    "transport": Transport,
    "platform": Platform,
    "overlap": Overlap,
    "group_names": GroupNames,
}


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank that is slower than its peers, and why.

    A rank that a slow link holds up on one axis arrives late on the others: that is what lateness caused by
    an earlier exchange looks like.

    Attributes:
        rank: Global rank.
        cause: ``slow_kernels`` stretches its compute kernels by ``factor``; ``more_tokens`` makes the router
            prefer its experts ``factor`` times over; ``late_launch`` stretches the host's time between
            launches by ``factor`` and delays each launch by ``extra_ns``; ``slow_link`` stretches every
            transfer it takes part in by ``factor``.
        factor: 1 changes nothing, 2 doubles.
        extra_ns: Delay of each launch, for ``late_launch``.
        steps: Step numbers in which it is slow; None for all.
        axis: Axis whose transfers are slow, for ``slow_link``; None for all.
    """

    rank: int
    cause: Cause
    factor: float = 1.0
    extra_ns: int = 0
    steps: tuple[int, ...] | None = None
    axis: str | None = None

    def acts_in(self, step: int | None) -> bool:
        """Whether the rank is slow in ``step``; None stands for what belongs to no step."""
        return self.steps is None or step in self.steps


@dataclass(frozen=True, slots=True)
class Regression:
    """Kernels of one category that take longer on every rank: what a bad kernel or a new library does.

    Attributes:
        category: Category of the kernels, in traceview's taxonomy.
        factor: 1 changes nothing, 1.03 makes them 3 % slower.
        phase: Phase in which they are slower; None for all.
    """

    category: str
    factor: float
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """How a host's clock reads: ``stamp = true time * (1 + drift) + offset``."""

    offset_ns: int = 0
    drift_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class LateStart:
    """A rank whose profiler starts late.

    Attributes:
        rank: Global rank.
        steps: Steps it misses; 1.5 begins in the middle of the second one.
    """

    rank: int
    steps: float


@dataclass(frozen=True, slots=True)
class Capture:
    """What the profilers record of the run; the run itself is the same.

    Attributes:
        late_starts: Ranks whose file begins late.
        missing_ranks: Ranks without a file.
        recorded_ranks: Ranks whose profiler was on; None for all. Of a large job the files, and the truth,
            describe only these.
        dropped_share: Share of the device rows that a file lacks, drawn from the seed.
        metadata: PyTorch records what its communication calls are and move; where it does not, only the
            annotations around them tell.
        sequence_numbers: The metadata numbers the calls of a group.
        graph_trace: Nsight Systems records the nodes of a graph, or each replay as one opaque block.
        gpu_metrics_hz: How often Nsight Systems samples the metrics of each device; 0 for never.
    """

    late_starts: tuple[LateStart, ...] = ()
    missing_ranks: tuple[int, ...] = ()
    recorded_ranks: tuple[int, ...] | None = None
    dropped_share: float = 0.0
    metadata: bool = True
    sequence_numbers: bool = True
    graph_trace: GraphTrace = "node"
    gpu_metrics_hz: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """A few training steps of a Mixture-of-Experts model on some hosts.

    The same workload always gives the same bytes: nothing but ``seed`` feeds the random draws, and the
    clocks, the overlap and the capture never change what is routed where.

    Ranks form two grids that share only the pipeline: tensor x context x data x pipeline for attention,
    expert x expert-data x pipeline for the experts, the first axis of each running fastest.

    Attributes:
        ranks: GPUs, one process each; rank ``r`` lives on host ``r // ranks_per_host``.
        ranks_per_host: GPUs that share a host and its NVLink domain.
        tensor_parallel: Ranks that share the attention weights; between them the sequence is split.
        context_parallel: Ranks that share one sequence's attention.
        pipeline_parallel: Stages; each holds as many consecutive layers as the others.
        expert_parallel: Size of an expert-parallel group.
        group_names: Sets of ranks along one axis share a group name (``per_axis``), or have one each.
        steps: Recorded steps.
        first_step: Number of the first recorded step.
        microbatches: Microbatches per step.
        layers: Transformer layers, all of them MoE layers.
        hidden: Width of the model.
        expert_hidden: Width of one expert, and of the shared expert.
        experts: Routed experts per layer.
        top_k: Experts per token.
        tokens: Length of the one sequence in a microbatch, over its tensor- and context-parallel ranks.
        vocabulary: Rows of the embedding.
        transport: Library that carries dispatch and combine.
        platform: Vendor's software below PyTorch: CUDA with NCCL, or ROCm with RCCL.
        dispatch_dtype: Element type of dispatched rows; combined rows and gradients are BF16.
        overlap: ``none`` keeps dispatch and combine on the critical path; ``shared`` runs the shared expert
            beside them; ``1f1b`` runs one microbatch's forward beside its predecessor's backward.
        graphs: Each forward and each backward is replayed as one graph.
        host_slowdown: Factor by which all hosts are slower between launches; 1 changes nothing.
        router_item: The router reads one number back to the host, as ``tensor.item()`` does.
        gather_parameters: All-gather the updated parameters after the optimizer (ZeRO).
        expert_imbalance: Standard deviation of the experts' log popularity; 0 forces balance.
        jitter: Relative standard deviation of kernel and host times.
        ring_hop_ns: Latency that each further member adds to an all-gather, reduce-scatter or all-reduce.
        start_skew_ns: Each rank begins at a uniform random time up to this late.
        stragglers: Ranks slower than their peers.
        regressions: Kernels slower than they should be, on all ranks.
        clocks: One clock per host, or one for all.
        capture: What the profilers record.
        compact: Fuse small kernels into their neighbours and write no host operators: for very many ranks.
        traps: Also write what trips careless readers: Triton host rows with a stream, hostile names,
            Python frames.
        seed: Source of every random draw.
    """

    ranks: int = 8
    ranks_per_host: int = 8
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 8
    group_names: GroupNames = "per_axis"
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
    platform: Platform = "cuda"
    dispatch_dtype: Literal["BFloat16", "Float8_e4m3fn"] = "BFloat16"
    overlap: Overlap = "none"
    graphs: bool = False
    host_slowdown: float = 1.0
    router_item: bool = False
    gather_parameters: bool = True
    expert_imbalance: float = 0.3
    jitter: float = 0.02
    ring_hop_ns: int = 0
    start_skew_ns: int = 200_000
    stragglers: tuple[Straggler, ...] = ()
    regressions: tuple[Regression, ...] = ()
    clocks: tuple[Clock, ...] = (Clock(),)
    capture: Capture = Capture()
    compact: bool = False
    traps: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        for name in _SIZES:
            _require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        for name, choices in _CHOICES.items():
            _require(getattr(self, name) in get_args(choices), f"{name} is one of {get_args(choices)}")
        self._check_grids()
        self._check_defects()
        _require(self.host_slowdown > 0, "host_slowdown must be positive")
        _require(self.top_k <= self.experts, "top_k cannot exceed experts")
        _require(self.overlap != "1f1b" or self.microbatches > 1, "overlap 1f1b needs two microbatches")
        _require(self.overlap != "1f1b" or self.pipeline_parallel == 1, "overlap 1f1b needs a single stage")
        _require(len(self.clocks) in (1, self.hosts), f"clocks needs 1 or {self.hosts} entries, one per host")
        spreads = (self.jitter, self.expert_imbalance, self.start_skew_ns, self.ring_hop_ns)
        _require(min(spreads) >= 0, "spreads and latencies are not negative")

    def _check_grids(self) -> None:
        stages, shards = self.pipeline_parallel, self.tensor_parallel * self.context_parallel
        _require(self.ranks % (shards * stages) == 0, "tensor, context and pipeline must divide ranks")
        _require(self.ranks % (self.expert_parallel * stages) == 0, "expert and pipeline must divide ranks")
        _require(self.layers % stages == 0, "pipeline_parallel must divide layers")
        _require(self.tokens % shards == 0, "tensor and context parallelism must divide tokens")
        _require(self.experts % self.expert_parallel == 0, "expert_parallel must divide experts")
        peers = self.expert_parallel > 1 and self.ranks_per_host % self.expert_parallel == 0
        _require(self.transport != "copy_engine" or peers, "copy engines need peers, all on one host")
        _require(not self.compact or stages == 1, "a compact run has a single stage")

    def _check_defects(self) -> None:
        capture = self.capture
        named = [straggler.rank for straggler in self.stragglers]
        named += [late.rank for late in capture.late_starts] + list(capture.missing_ranks)
        named += list(capture.recorded_ranks or ())
        for rank in named:
            _require(0 <= rank < self.ranks, f"rank {rank} does not exist")
        for straggler in self.stragglers:
            _require(straggler.cause in get_args(Cause), f"a straggler's cause is one of {get_args(Cause)}")
            _require(straggler.factor > 0, "a straggler's factor must be positive")
            _require(straggler.extra_ns >= 0, "a straggler's extra_ns is not negative")
        for regression in self.regressions:
            _require(
                regression.category in get_args(Family),
                f"a regression's category is one of {get_args(Family)}",
            )
            _require(regression.factor > 0, "a regression's factor must be positive")
        for late in capture.late_starts:
            _require(0 <= late.steps < self.steps, "a late start misses some of the steps, not all")
        _require(set(self.recorded) > set(capture.missing_ranks), "some rank must have a file")
        _require(0 <= capture.dropped_share < 1, "dropped_share is a share below 1")
        _require(capture.graph_trace in get_args(GraphTrace), f"graph_trace is one of {get_args(GraphTrace)}")
        _require(0 <= capture.gpu_metrics_hz <= 200_000, "gpu_metrics_hz lies between 0 and 200000")

    @property
    def hosts(self) -> int:
        """Number of hosts; the last may be partly filled."""
        return -(-self.ranks // self.ranks_per_host)

    @property
    def recorded(self) -> tuple[int, ...]:
        """Ranks whose profiler was on, ascending."""
        chosen = self.capture.recorded_ranks
        return tuple(range(self.ranks)) if chosen is None else tuple(sorted(set(chosen)))

    @property
    def has_vast_truth(self) -> bool:
        """Whether so many ranks record so much that its truth is better kept as arrays than as text."""
        return self.compact and self.capture.recorded_ranks is None

    @property
    def tokens_per_step(self) -> int:
        """Tokens of the global batch: every data-parallel replica works through its own microbatches."""
        replicas = self.ranks // (self.tensor_parallel * self.context_parallel * self.pipeline_parallel)
        return replicas * self.microbatches * self.tokens

    @property
    def own_tokens(self) -> int:
        """Tokens of a microbatch that one rank holds, and sends to the experts."""
        return self.tokens // (self.tensor_parallel * self.context_parallel)

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
