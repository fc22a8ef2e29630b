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
import io
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

import numpy as np

from traceview.errors import UsageError
from traceview.synth import kineto, nsys_exports
from traceview.synth.presets import PRESETS
from traceview.synth.simulate import simulate
from traceview.synth.timeline import Timeline
from traceview.synth.truth import arrays, truth
from traceview.synth.workload import Capture, Clock, LateStart, Regression, Straggler, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "PRESETS",
    "WRITERS",
    "Capture",
    "Clock",
    "LateStart",
    "Regression",
    "Straggler",
    "Timeline",
    "Workload",
    "simulate",
    "truth",
    "write",
]

TraceFormat = Literal[
    "kineto", "nsys", "nsys-sqlite", "nsys-parquetdir", "nsys-arrowdir", "nsys-arrow", "nsys-jsonlines"
]
Content = str | bytes | dict[str, bytes]
"""A file, or the files of a directory by their names."""

_Writers = TypedDict(
    "_Writers",
    {
        "kineto": "Callable[[Timeline, int], str]",
        "nsys": "Callable[[Timeline, int], bytes]",
        "nsys-sqlite": "Callable[[Timeline, int], bytes]",
        "nsys-parquetdir": "Callable[[Timeline, int], dict[str, bytes]]",
        "nsys-arrowdir": "Callable[[Timeline, int], dict[str, bytes]]",
        "nsys-arrow": "Callable[[Timeline, int], bytes]",
        "nsys-jsonlines": "Callable[[Timeline, int], bytes]",
    },
)

WRITERS: _Writers = {
    "kineto": kineto.document,
    "nsys": nsys_exports.sqlite,
    "nsys-sqlite": nsys_exports.sqlite,
    "nsys-parquetdir": nsys_exports.parquetdir,
    "nsys-arrowdir": nsys_exports.arrowdir,
    "nsys-arrow": nsys_exports.arrow,
    "nsys-jsonlines": nsys_exports.jsonlines,
}
"""Writers by format: the content of one rank's trace. ``nsys`` is short for ``nsys-sqlite``."""

_SUFFIXES: dict[TraceFormat, str] = {
    "kineto": ".json",
    "nsys": ".sqlite",
    "nsys-sqlite": ".sqlite",
    "nsys-parquetdir": "_pqtdir",
    "nsys-arrowdir": "_arwdir",
    "nsys-arrow": ".arrows",
    "nsys-jsonlines": ".jsonl",
}
_DIRECTORIES = ("nsys-parquetdir", "nsys-arrowdir")


def write(
    workload: Workload | str,
    directory: Path | str,
    *,
    trace_format: str = "kineto",
    compress: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Simulate ``workload`` and write one trace per rank, and ``truth.json`` beside them.

    The same workload gives the same bytes, and a file or directory appears only when it is whole.

    Args:
        workload: The plan, or the name of a preset.
        directory: Where to write; made if it is not there.
        trace_format: Format of the traces, one of `WRITERS`.
        compress: Write ``.json.gz`` instead of ``.json``, ``.sqlite.gz`` instead of ``.sqlite`` and so on;
            directories are written as they are.
        progress: Called with the ranks written so far and the ranks in all.

    Returns:
        The traces in rank order, less the missing ones, then the truth.

    Raises:
        UsageError: There is no such preset or format, or the format cannot hold the workload.
    """
    plan = _preset(workload) if isinstance(workload, str) else workload
    if trace_format not in WRITERS:
        message = f"no format '{trace_format}'; there are: {', '.join(WRITERS)}."
        raise UsageError(message)
    chosen = cast("TraceFormat", trace_format)
    timeline = simulate(plan)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    compress = compress and chosen not in _DIRECTORIES
    suffix = _SUFFIXES[chosen] + (".gz" if compress else "")
    ranks = [rank for rank in plan.recorded if rank not in plan.capture.missing_ranks]
    paths = {rank: directory / f"rank{rank}_trace{suffix}" for rank in ranks}
    level = 1 if plan.has_vast_truth else 9
    for done, (rank, path) in enumerate(paths.items(), start=1):
        content = WRITERS[chosen](timeline, rank)
        if isinstance(content, dict):
            _replace_directory(path, content)
        else:
            data = content.encode() if isinstance(content, str) else content
            _replace(path, gzip.compress(data, compresslevel=level, mtime=0) if compress else data)
        if progress:
            progress(done, len(paths))
    return [*paths.values(), *_write_truth(timeline, directory, paths)]


def _write_truth(timeline: Timeline, directory: Path, paths: Mapping[int, Path]) -> list[Path]:
    """``truth.json``, and where it is vast the arrays it speaks of."""
    known = truth(timeline, {rank: path.name for rank, path in paths.items()})
    _replace(directory / "truth.json", json.dumps(known, separators=(",", ":")).encode())
    if not timeline.workload.has_vast_truth:
        return [directory / "truth.json"]
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays(timeline))
    _replace(directory / "truth.npz", packed.getvalue())
    return [directory / "truth.json", directory / "truth.npz"]


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


def _replace_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a directory whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.mkdir()
    try:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        if path.is_dir():  # no file system replaces a directory that is not empty
            shutil.rmtree(path)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
