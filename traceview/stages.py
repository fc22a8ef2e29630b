"""NVTX ranges around traceview's own stages: ``nsys profile traceview ...`` then shows where its time goes.

Off unless `enable` was called: a stage is then an empty context manager, and nvtx is not imported.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Name = Literal["read", "parse", "prepare", "map", "reduce", "render"]
DOMAIN = "traceview"

_OFF: AbstractContextManager[object] = nullcontext()
_nvtx: Any = None


def enable() -> None:
    """Marks the stages of this process from now on."""
    global _nvtx  # noqa: PLW0603 - one switch for the process, thrown once by whoever starts it
    import nvtx  # noqa: PLC0415 - nobody else pays for it

    _nvtx = nvtx


def enabled() -> bool:
    """Whether stages are marked; worker processes are told to do the same."""
    return _nvtx is not None


def stage(name: Name, detail: str = "") -> AbstractContextManager[object]:
    """A range around one stage; ``detail`` says of what, and is never read from a trace."""
    if _nvtx is None:
        return _OFF
    entered: AbstractContextManager[object] = _nvtx.annotate(f"{name} {detail}".rstrip(), domain=DOMAIN)
    return entered
