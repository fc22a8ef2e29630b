"""What traces cannot say about a job, as its owner would write it beside them: ``run.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.synth.workload import Workload


def recipe(workload: Workload) -> str:
    """The text of ``run.toml``."""
    shards = workload.tensor_parallel * workload.context_parallel
    replicas = workload.ranks // (shards * workload.pipeline_parallel)
    return f"""gpus = {workload.ranks}
seq_len = {workload.tokens}
global_batch_size = {replicas * workload.microbatches}
tokens_per_step = {workload.tokens_per_step}

[parallel]
tp = {workload.tensor_parallel}
cp = {workload.context_parallel}
pp = {workload.pipeline_parallel}
dp = {replicas}
ep = {workload.expert_parallel}
"""
