"""What other distributions add to traceview without forking it, found by the entry points they declare.

::

    [project.entry-points."traceview.parsers"]
    acme = "acme_traces.parser:PARSER"

A plugin that cannot be used is a `Broken`, with the distribution to blame and the reason; the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, wraps
from importlib import metadata
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from traceview.errors import PluginError, TraceViewError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARSERS, ANALYZERS, SECTIONS, RULES = (
    "traceview.parsers",
    "traceview.analyzers",
    "traceview.sections",
    "traceview.rules",
)
"""Entry point groups."""

GROUPS = (PARSERS, ANALYZERS, SECTIONS, RULES)
OURS = "traceview"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One object that a distribution adds.

    Attributes:
        group: One of `GROUPS`.
        name: Name of the entry point.
        distribution: Distribution and version, such as ``acme-traces 1.0``.
        value: What the entry point stands for.
    """

    group: str
    name: str
    distribution: str
    value: Any


@dataclass(frozen=True, slots=True)
class Broken:
    """An entry point that cannot be used, and why."""

    group: str
    name: str
    distribution: str
    why: str

    def __str__(self) -> str:
        return f"plugin '{self.name}' of {self.distribution} ({self.group}) is left out: {self.why}"


@cache
def declared(group: str) -> tuple[Plugin | Broken, ...]:
    """Every entry point of ``group``, loaded where that is possible; ordered by distribution and name."""
    points = sorted(metadata.entry_points(group=group), key=lambda point: (_distribution(point), point.name))
    return tuple(_loaded(point) for point in points)


def blaming(function: Callable[P, R], what: str) -> Callable[P, R]:
    """``function`` whose bugs name ``what``; errors raised on purpose pass as they are.

    Raises:
        PluginError: When called, in place of any other exception.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TraceViewError:
            raise
        except Exception as error:
            raise PluginError.failing(what, error) from error

    return called


def check_names(owners: Iterable[tuple[str, str]], kind: str) -> None:
    """Makes sure that no name is taken twice.

    Args:
        owners: Name, and whose it is.
        kind: What is named.

    Raises:
        PluginError: One is; the message names both owners.
    """
    seen: dict[str, str] = {}
    for name, owner in owners:
        if name in seen:
            raise PluginError.clashing(kind, name, seen[name], owner)
        seen[name] = owner


def _distribution(point: metadata.EntryPoint) -> str:
    found = point.dist
    return f"{found.name} {found.version}" if found is not None else "an unknown distribution"


def _loaded(point: metadata.EntryPoint) -> Plugin | Broken:
    owner = _distribution(point)
    try:
        return Plugin(point.group, point.name, owner, point.load())
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module does at import
        why = f"'{point.value}' cannot be imported ({type(error).__name__}: {str(error)[:200]})"
        return Broken(point.group, point.name, owner, why)
