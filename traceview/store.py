"""Prepared traces on disk: one folder per trace, one Parquet file per table.

A folder is written under a temporary name and renamed when it is whole, so a killed run leaves nothing
that looks finished, and two processes writing the same trace do no harm. What is stored is what analyses
read: never the environment, the command line, or anything else a trace may carry.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import polars as pl

from traceview.schema import DIAGNOSTICS, VERSION
from traceview.trace import Facts, Trace

_FACTS, _DIAGNOSTICS = "facts.json", "diagnostics"


class StoredTables(Mapping[str, pl.DataFrame]):
    """The tables of a stored trace, read when asked for and not kept: memory stays bounded over ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = sorted(path.stem for path in folder.glob("*.parquet") if path.stem != _DIAGNOSTICS)

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        return pl.read_parquet(self._folder / f"{name}.parquet")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def default_folder() -> Path:
    """Where prepared traces go when nobody says otherwise: the user's cache folder.

    The one place below the commands that reads the environment: notebooks and the command line must find each
    other's tables, and ``XDG_CACHE_HOME`` is where a user says that home has no room for them.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "traceview"


def key(path: Path, *versions: object) -> str:
    """Name of the stored form of ``path``: changes with the file and with anything that shaped the tables."""
    # a folder does not change when a file in it is written anew
    files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    stats = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    identity = [str(path.resolve()), stats, VERSION, *map(str, versions)]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def write(trace: Trace, folder: Path) -> Trace:
    """Stores ``trace`` as ``folder``, and returns it reading from there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for name, frame in trace.tables.items():
            frame.write_parquet(scratch / f"{name}.parquet", compression="zstd", compression_level=1)
        trace.diagnostics.write_parquet(scratch / f"{_DIAGNOSTICS}.parquet")
        (scratch / _FACTS).write_text(json.dumps(asdict(trace.facts)))
        try:
            scratch.replace(folder)
        except OSError:
            if not (folder / _FACTS).exists():  # not merely another process that was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return read(folder)


def read(folder: Path) -> Trace:
    """The trace stored as ``folder``."""
    facts = Facts(**json.loads((folder / _FACTS).read_text()))
    diagnostics = DIAGNOSTICS.conform(pl.read_parquet(folder / f"{_DIAGNOSTICS}.parquet"))
    return Trace(facts, StoredTables(folder), diagnostics)


def is_whole(folder: Path) -> bool:
    """Whether ``folder`` holds a stored trace."""
    return (folder / _FACTS).exists()
