"""A file written whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(text: str, path: Path) -> int:
    """Writes ``text`` to ``path`` and returns the bytes written; an earlier file stays until all is there."""
    data = text.encode("utf-8", "replace")
    if path.exists() and not path.is_file():  # a pipe or a device: nothing to replace
        path.write_bytes(data)
        return len(data)
    target = path.resolve()
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with scratch.open("xb") as file:
            file.write(data)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return len(data)
