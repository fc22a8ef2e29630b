"""Synthetic MoE training traces whose breakdown, overlap and skew are known exactly.

A `Workload` is the plan, `simulate` turns it into a `Timeline` of true times, `truth` says what an analysis
must find in it, and a writer puts it down in a profiler's format.

Example:
    >>> import tempfile
    >>> from traceview.synth import Workload, write
    >>> tiny = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=1, microbatches=1, layers=1)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     [path.name for path in write(tiny, directory)]
    ['rank0_trace.json.gz', 'rank1_trace.json.gz', 'truth.json']
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import UsageError
from traceview.synth import kineto
from traceview.synth.presets import PRESETS
from traceview.synth.simulate import simulate
from traceview.synth.timeline import Timeline
from traceview.synth.truth import truth
from traceview.synth.workload import Clock, Straggler, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRESETS", "WRITERS", "Clock", "Straggler", "Timeline", "Workload", "simulate", "truth", "write"]

WRITERS: dict[str, Callable[[Timeline, int], str]] = {"kineto": kineto.document}
"""Writers by format: the text of one rank's trace."""


def write(
    workload: Workload | str,
    directory: Path | str,
    *,
    trace_format: str = "kineto",
    compress: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Simulate ``workload`` and write one trace per rank, and ``truth.json`` beside them.

    The same workload gives the same bytes, and a file appears only when it is whole.

    Args:
        workload: The plan, or the name of a preset.
        directory: Where to write; made if it is not there.
        trace_format: Format of the traces, one of `WRITERS`.
        compress: Write ``.json.gz`` instead of ``.json``.
        progress: Called with the ranks written so far and the ranks in all.

    Returns:
        The traces in rank order, then the truth.

    Raises:
        UsageError: There is no such preset or format.
    """
    plan = _preset(workload) if isinstance(workload, str) else workload
    if trace_format not in WRITERS:
        message = f"no format '{trace_format}'; there are: {', '.join(WRITERS)}."
        raise UsageError(message)
    timeline = simulate(plan)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    suffix = ".json.gz" if compress else ".json"
    paths = [directory / f"rank{rank}_trace{suffix}" for rank in range(plan.ranks)]
    for rank, path in enumerate(paths):
        text = WRITERS[trace_format](timeline, rank).encode()
        _replace(path, gzip.compress(text, compresslevel=9, mtime=0) if compress else text)
        if progress:
            progress(rank + 1, plan.ranks)
    known = truth(timeline, {rank: path.name for rank, path in enumerate(paths)})
    _replace(directory / "truth.json", json.dumps(known, separators=(",", ":")).encode())
    return [*paths, directory / "truth.json"]


def _preset(name: str) -> Workload:
    if name not in PRESETS:
        message = f"no preset '{name}'; there are: {', '.join(PRESETS)}."
        raise UsageError(message)
    return PRESETS[name]


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
