"""A file written whole or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write(text: str, path: Path) -> int:
    """Writes ``text`` to ``path`` and returns the bytes written; an earlier file stays until all is there."""
    data = text.encode("utf-8", "replace")
    with replacing(path) as file:
        file.write(data)
    return len(data)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that becomes ``path`` once all is written; after an error ``path`` is as before."""
    if path.exists() and not path.is_file():  # a pipe or a device: nothing to replace
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with scratch.open("xb") as file:
            yield file
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
