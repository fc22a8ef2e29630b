"""Published training runs: what others reached, to hold a run of one's own against.

The facts are ``data/references.toml``, each with its source.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One published run; rates per GPU, TFLOP/s in the convention of Megatron-LM.

    Attributes:
        model: Name of the model, as in `models`.
        framework: Who trained: "megatron", or "own".
        gpu: Short name of the GPU, as in `hardware`.
        gpus: Size of the job, where somebody says.
        seq_len: Tokens per sequence.
        mtp_layers: Layers of multi-token prediction.
        tokens_per_s_per_gpu: Throughput.
        tflops_per_gpu: The same in arithmetic, as published.
        source: Where it was published.
        precision: That of most matmuls, where somebody says.
        release: Version of the software.
        detail: What else is known, such as the parallel sizes.
    """

    model: str
    framework: str
    gpu: str
    seq_len: int
    mtp_layers: int
    tokens_per_s_per_gpu: float
    tflops_per_gpu: float
    source: str
    gpus: int | None = None
    precision: str | None = None
    release: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRetention:
    """What is left of the tokens per second and GPU when a job grows, its batch growing with it.

    Attributes:
        model: Name of the model, as in `models`.
        framework: Who trained: "megatron", "torchtitan" or "maxtext".
        from_gpus: Size of the small job.
        to_gpus: Size of the large one.
        ratio: Throughput per GPU of the large one, of that of the small one.
        source: Where it was published.
        gpu: Short name of the GPU, as in `hardware`, where somebody says.
    """

    model: str
    framework: str
    from_gpus: int
    to_gpus: int
    ratio: float
    source: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class References:
    """Everything published, each kind in the order of the file."""

    runs: tuple[PublishedRun, ...]
    retentions: tuple[PublishedRetention, ...]


@cache
def references() -> References:
    """The published figures that come with traceview."""
    document = tomllib.loads((files("traceview.data") / "references.toml").read_text(encoding="utf-8"))
    return References(
        tuple(PublishedRun(**row) for row in document["run"]),
        tuple(PublishedRetention(**row) for row in document["retention"]),
    )


def best_run(model: str, gpu: str) -> PublishedRun | None:
    """The published run of ``model`` on ``gpu`` with the most tokens per second; None if there is none."""
    fitting = [run for run in references().runs if (run.model, run.gpu) == (model, gpu)]
    return max(fitting, key=lambda run: run.tokens_per_s_per_gpu, default=None)
