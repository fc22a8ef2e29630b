"""Finds what contributors declare: every public module of a package, and its one object.

There is no list to edit: dropping a module into `parsers`, `analyzers`, `reports.sections` or
`reports.figures` registers it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from traceview.contracts import Analysis, Parser


@cache
def parsers() -> tuple[Parser, ...]:
    """All parsers, ordered by name."""
    return tuple(sorted(_declared("traceview.parsers", "PARSER"), key=lambda parser: parser.name))


@cache
def analyses() -> dict[str, Analysis]:
    """All analyses, by name."""
    return {analysis.name: analysis for analysis in _declared("traceview.analyzers", "ANALYSIS")}


@cache
def sections() -> tuple[Any, ...]:
    """All sections of the HTML report (`reports.section.Section`), in their order on the page."""
    return tuple(
        sorted(_declared("traceview.reports.sections", "SECTION"), key=lambda section: section.order)
    )


def figures(analysis: str) -> Mapping[tuple[str, ...], Callable[..., Any]]:
    """The pictures of an analysis: by grain, a function from its result to a HoloViews element."""
    try:
        module = importlib.import_module(f"traceview.reports.figures.{analysis}")
    except ModuleNotFoundError as missing:
        if missing.name != f"traceview.reports.figures.{analysis}":
            raise
        return {}
    drawn: Mapping[tuple[str, ...], Callable[..., Any]] = module.FIGURES
    return drawn


def _declared(package: str, attribute: str) -> list[Any]:
    """The object each public module of ``package`` declares; a module without it is a bug, not skipped."""
    home = importlib.import_module(package)
    names = sorted(info.name for info in pkgutil.iter_modules(home.__path__) if not info.name.startswith("_"))
    return [getattr(importlib.import_module(f"{package}.{name}"), attribute) for name in names]
