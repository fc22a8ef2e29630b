"""Finds what contributors declare: every public module of a package, and its one object.

There is no list to edit: dropping a module into `parsers` or `analyzers` registers it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceview.contracts import Analysis, Parser


@cache
def parsers() -> tuple[Parser, ...]:
    """All parsers, ordered by name."""
    return tuple(sorted(_declared("traceview.parsers", "PARSER"), key=lambda parser: parser.name))


@cache
def analyses() -> dict[str, Analysis]:
    """All analyses, by name."""
    return {analysis.name: analysis for analysis in _declared("traceview.analyzers", "ANALYSIS")}


def _declared(package: str, attribute: str) -> list[Any]:
    """The object each public module of ``package`` declares; a module without it is a bug, not skipped."""
    home = importlib.import_module(package)
    names = sorted(info.name for info in pkgutil.iter_modules(home.__path__) if not info.name.startswith("_"))
    return [getattr(importlib.import_module(f"{package}.{name}"), attribute) for name in names]
