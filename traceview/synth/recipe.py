"""``run.toml`` of a synthetic run: what an owner would say about the job that its traces do not record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.synth.workload import Workload

FILE = "run.toml"

_GPUS = {"cuda": "H100", "rocm": "MI300X"}


def write(workload: Workload, directory: Path) -> Path:
    """Writes the file beside the traces in ``directory``."""
    path = directory / FILE
    path.write_text(document(workload), encoding="utf-8")
    return path


def document(workload: Workload) -> str:
    """The text of the file.

    The model is the one whose products the kernels last as long as: every head has its own keys and values,
    together as wide as the model, and every MLP is gated. The number of heads costs nothing, so it is one.
    """
    work = workload
    shards = work.tensor_parallel * work.context_parallel * work.pipeline_parallel
    replicas = work.ranks // shards
    return f"""\
seq_len = {work.tokens}
global_batch_size = {replicas * work.microbatches}
gpu = "{_GPUS[work.platform]}"
gpus = {work.ranks}
precision = "bf16"

[parallel]
tp = {work.tensor_parallel}
cp = {work.context_parallel}
pp = {work.pipeline_parallel}
dp = {replicas}
ep = {work.expert_parallel}
edp = {work.ranks // (work.expert_parallel * work.pipeline_parallel)}

[model]
name = "synthetic"
source = "traceview synth"
layers = {work.layers}
hidden = {work.hidden}
vocabulary = {work.vocabulary}
experts = {work.experts}
top_k = {work.top_k}
expert_ffn = {work.expert_hidden}
shared_ffn = {work.expert_hidden}
grouped_query = {{ heads = 1, kv_heads = 1, head_dim = {work.hidden} }}
"""
