"""Record a real training run without a GPU: a tiny Mixture-of-Experts model, trained by four processes.

    python examples/record_tiny_moe.py traces/tiny
    traceview summary traces/tiny

Needs PyTorch (the CPU build will do). The processes exchange tokens through Gloo. This is also how to
annotate a model of your own: ranges around the exchanges, hooks for the rest, and a profiler that records
few steps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import traceview as tv

RANKS, LAYERS, EXPERTS, HIDDEN, TOKENS = 4, 2, 8, 64, 512
SKIP, STEPS = 1, 5


class Exchange(torch.autograd.Function):
    """An all-to-all of rows whose backward is the same exchange, turned around."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], part: str, layer: int
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.part, ctx.layer = sent, received, part, layer
        with tv.annotate(part, layer=layer, phase="forward", tokens=sum(sent)):
            return _exchanged(rows, sent, received)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        with tv.annotate(ctx.part, layer=ctx.layer, phase="backward", tokens=sum(ctx.received)):
            return _exchanged(grads[0], ctx.received, ctx.sent), None, None, None, None


def _exchanged(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
    return arrived


class Experts(nn.Module):
    """The experts of this rank; rows arrive sorted by sender, and by expert within each sender."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))
            for _ in range(EXPERTS // RANKS)
        )

    def forward(self, rows: Tensor, sizes: list[int]) -> Tensor:
        parts = rows.split(sizes)
        return torch.cat([self.each[place % len(self.each)](part) for place, part in enumerate(parts)])


class MoE(nn.Module):
    """Top-1 routing over all ranks, with a skip connection."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.router = nn.Linear(HIDDEN, EXPERTS)
        self.experts = Experts()

    def forward(self, tokens: Tensor) -> Tensor:
        weight, expert = self.router(tokens).softmax(-1).max(-1)
        with tv.annotate("moe.permute", layer=self.layer):
            order = expert.argsort(stable=True)
            mine = torch.bincount(expert, minlength=EXPERTS)
            theirs = torch.empty_like(mine)
            dist.all_to_all_single(theirs, mine)
            sent, received = (counts.view(RANKS, -1).sum(1).tolist() for counts in (mine, theirs))
        rows = Exchange.apply(tokens[order], sent, received, "moe.dispatch", self.layer)
        rows = self.experts(rows, theirs.tolist())
        back = Exchange.apply(rows, received, sent, "moe.combine", self.layer)
        return tokens + weight[:, None] * torch.empty_like(back).index_copy(0, order, back)


class Model(nn.Module):
    """A stack of `MoE` layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"moe": MoE(layer)}) for layer in range(LAYERS))

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer["moe"](tokens)
        return tokens


def train(rank: int, folder: str) -> None:
    """One process: a few steps, recorded."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/.meeting", rank=rank, world_size=RANKS)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with tv.annotate_model(model), tv.profile_steps(folder, skip=SKIP, warmup=1, steps=STEPS) as profiler:
        for _ in range(SKIP + 1 + STEPS):
            with tv.annotate("forward"):
                loss = model(torch.randn(TOKENS, HIDDEN)).square().mean()
            with tv.annotate("backward"):
                loss.backward()
            with tv.annotate("grad_reduce"):
                for name, parameter in model.named_parameters():
                    if ".experts." not in name:  # every rank has experts of its own
                        dist.all_reduce(parameter.grad)
            with tv.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "traces/tiny").resolve()
    target.mkdir(parents=True, exist_ok=True)
    # forked, so that PyTorch is imported once; with CUDA use mp.spawn
    mp.start_processes(train, args=(str(target),), nprocs=RANKS, start_method="fork")
    (target / ".meeting").unlink(missing_ok=True)
