"""Recording with the PyTorch profiler what traceview's questions need: few steady steps, one file per rank.

>>> import traceview as tv
>>> with tv.profile_steps("traces/") as profiler:        # doctest: +SKIP
...     for batch in batches:
...         train_step(batch)
...         profiler.step()
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def profile_steps(
    folder: str | Path, *, skip: int = 5, warmup: int = 2, steps: int = 4, memory: bool = False
) -> Any:  # noqa: ANN401 - torch.profiler.profile; PyTorch is optional
    """A PyTorch profiler that writes ``FOLDER/rankN_trace.json.gz`` once, after its last recorded step.

    Shapes are recorded, for they tell expert loads and the work of matrix products; Python stacks are not,
    for they slow the host and are never read.

    Args:
        folder: Where the files go; made if it does not exist. Use one folder for one recording.
        skip: Steps before anything is recorded: compilation, first allocations, autotuning.
        warmup: Steps recorded and thrown away, in which the profiler itself settles.
        steps: Steps recorded. Five and more give intervals on medians.
        memory: Whether to record every allocation too, which makes files much larger.

    Returns:
        A ``torch.profiler.profile``: enter it, and call its ``step`` at the end of every training step.

    Raises:
        ImportError: PyTorch is not installed.
        ValueError: There is no step to record.
    """
    import torch  # noqa: PLC0415 - optional, and heavy

    if steps < 1 or min(skip, warmup) < 0:
        message = f"nothing to record: skip={skip}, warmup={warmup}, steps={steps}"
        raise ValueError(message)
    place = Path(folder)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=skip, warmup=warmup, active=steps, repeat=1),
        on_trace_ready=lambda profiler: _write(profiler, place),
        record_shapes=True,
        profile_memory=memory,
        with_stack=False,
    )


def _write(profiler: Any, folder: Path) -> None:  # noqa: ANN401 - torch.profiler.profile
    """Writes the file under a name of its own first, so that a killed job leaves none that looks whole."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"rank{_rank()}_trace.json.gz"
    partial = folder / f".{final.name.removesuffix('.json.gz')}.{os.getpid()}.json.gz"
    try:
        profiler.export_chrome_trace(str(partial))
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)


def _rank() -> int:
    """This process's rank in its job; 0 where no job was set up."""
    import torch.distributed as dist  # noqa: PLC0415 - optional, and heavy

    return int(dist.get_rank()) if dist.is_available() and dist.is_initialized() else 0
