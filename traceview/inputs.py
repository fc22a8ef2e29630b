"""What the user pointed at, as traces: a path, a directory, a quoted glob, or ``-`` for standard input.

A file that was named is either a trace or an error; a file merely lying in a directory may be something
else, and is then passed over.
"""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import NoTraceError, ParseError, UnknownFormatError, UsageError
from traceview.source import Source, is_export_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from traceview.contracts import Parser

LOOKED_FOR = (
    "*.json",
    "*.json.gz",
    "*.json.zst",
    "*.json.zip",
    "*.sqlite",
    "*.arrows",
    "*_pqtdir/",
    "*_arwdir/",
)
STDIN_PREFIX = "traceview-stdin-"
"""How the names of files begin that standard input is spooled to; what lies beside them is not about it."""

_NEVER_TRACE_NAMES = {"truth.json"}  # what `traceview synth` writes beside its traces
_NEVER_TRACES = {".npz", ".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".log", ".html", ".csv"}

_BINARY = (
    (
        b"\x80",
        "a Python pickle, perhaps a memory snapshot",
        "pickles are never opened; pass a profiler trace",
    ),
    (b"\xfd7zXZ\0", "an xz-compressed file", "pass the trace it was made from, or unpack it"),
    (b"\x7fELF", "a program", "pass the trace file"),
    (b"%PDF", "a PDF", "pass the trace file"),
)

_TAKES_ANY_JSON = "kineto"  # so that it can say what the other kinds are; narrower formats go first


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, or a directory that is one trace, and whether the user named it (then it must be a trace)."""

    source: Source
    named: bool

    def __str__(self) -> str:
        return str(self.source.path)


def candidates(places: Iterable[str | Path]) -> list[Candidate]:
    """Files at ``places``, each once (as named if it was named anywhere); sorted within a directory.

    Raises:
        NoTraceError: A place does not exist, or a directory or glob is empty.
    """
    found: dict[Path, Candidate] = {}
    for place in places:
        for candidate in _at(str(place)):
            path = candidate.source.path.resolve()
            if candidate.named or path not in found:
                found[path] = candidate
    return list(found.values())


def _at(place: str) -> Iterator[Candidate]:
    if place == "-":
        yield Candidate(Source(_spooled_stdin()), named=True)
        return
    if "://" in place:
        message = f"'{place}' is remote, and only local files are read.\nHint: copy the traces here first."
        raise UsageError(message)
    path = Path(place)
    if path.is_file():
        yield Candidate(Source(path), named=True)
        return
    if path.is_dir() and is_export_directory(path):
        yield Candidate(Source(path), named=True)
        return
    if path.is_dir():
        found = sorted(_within(path))
    else:
        matches = sorted(Path(match) for match in glob.glob(place, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        exports = {match for match in matches if match.is_dir() and is_export_directory(match)}
        found = [m for m in matches if m in exports or (m.is_file() and m.parent not in exports)]
    if not found:
        raise NoTraceError.at(place, LOOKED_FOR)
    yield from (Candidate(Source(file), named=False) for file in found)


def _within(root: Path) -> Iterator[Path]:
    """What may be a trace below ``root``: files, and directories that are one trace as a whole."""
    # not following links out of the directory: a trace folder is no reason to walk a whole disk
    for folder, below, files in os.walk(root):
        inside = [Path(folder, name) for name in below]
        exports = [path for path in inside if is_export_directory(path)]
        below[:] = [path.name for path in inside if path not in exports]
        plain = [path for path in (Path(folder, name) for name in files) if path.is_file()]
        yield from (path for path in [*exports, *plain] if _may_be_trace(path, root))


@cache
def _spooled_stdin() -> Path:
    """Standard input as a file, for parsers read a trace more than once; removed when the process ends."""
    handle, name = tempfile.mkstemp(prefix=STDIN_PREFIX)
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path


def _may_be_trace(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return not hidden and file.suffix.lower() not in _NEVER_TRACES and file.name not in _NEVER_TRACE_NAMES


def parser_for(source: Source, parsers: Sequence[Parser]) -> Parser:
    """The parser that recognises the file.

    Raises:
        ParseError: The file is empty.
        UnknownFormatError: None does; says what the file seems to be.
    """
    for parser in sorted(parsers, key=lambda parser: parser.name == _TAKES_ANY_JSON):
        if parser.sniff(source):
            return parser
    if not source.head:
        why = "it is empty, or nothing of it can be decompressed"
        raise ParseError.reading(
            source.path, "first bytes", why, "the profiler wrote nothing, or the copy failed"
        )
    what, hint = "an unknown format", "pass a profiler trace"
    for magic, meaning, advice in _BINARY:
        if source.head.startswith(magic):
            what, hint = meaning, advice
    raise UnknownFormatError.of(source.path, what, hint, [parser.description for parser in parsers])
