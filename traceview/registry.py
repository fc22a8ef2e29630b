"""Finds what contributors declare: every public module of a package, and its one object.

There is no list to edit: dropping a module into `parsers`, `analyzers`, `reports.sections` or
`reports.figures` registers it. What other distributions add (`traceview.plugins`) stands beside it.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from traceview import plugins
from traceview.classify import FIELDS, Classifier, kernel_rules
from traceview.contracts import Analysis
from traceview.errors import RuleError
from traceview.plugins import ANALYZERS, OURS, PARSERS, RULES, SECTIONS, Broken, Plugin
from traceview.rules import RuleTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from traceview.contracts import Parser
    from traceview.source import Source
    from traceview.trace import Trace

_SECTION_FIELDS = ("name", "title", "order", "questions", "build")
_PARSER_FIELDS = ("name", "description", "url", "version", "sniff", "parse")


class _Owned(NamedTuple):
    """Something registered, and the distribution it comes from."""

    value: Any
    owner: str


@cache
def parsers() -> tuple[Parser, ...]:
    """All parsers: those of traceview by name, then those of plugins.

    Raises:
        PluginError: Two have the same name.
    """
    ours = sorted(_declared("traceview.parsers", "PARSER"), key=lambda parser: parser.name)
    theirs = [_Owned(_PluginParser(plugin), plugin.distribution) for plugin in _usable(PARSERS)]
    return _named([*(_Owned(parser, OURS) for parser in ours), *theirs], "parsers")


@cache
def analyses() -> dict[str, Analysis]:
    """All analyses, by name.

    Raises:
        PluginError: Two have the same name.
    """
    ours = [_Owned(analysis, OURS) for analysis in _declared("traceview.analyzers", "ANALYSIS")]
    theirs = [_Owned(_blaming_analysis(plugin), plugin.distribution) for plugin in _usable(ANALYZERS)]
    return {analysis.name: analysis for analysis in _named([*ours, *theirs], "analyses")}


@cache
def sections() -> tuple[Any, ...]:
    """All sections of the HTML report (`reports.section.Section`), in their order on the page.

    Raises:
        PluginError: Two have the same name.
    """
    ours = [_Owned(section, OURS) for section in _declared("traceview.reports.sections", "SECTION")]
    theirs = [_Owned(_blaming_section(plugin), plugin.distribution) for plugin in _usable(SECTIONS)]
    return tuple(sorted(_named([*ours, *theirs], "sections"), key=lambda section: section.order))


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


def classifier(user_rules: Path | None = None) -> Classifier:
    """What names device work: the user's rules, then those of plugins, then those of traceview.

    Raises:
        RuleError: A rule of the user cannot be used.
        PluginError: A plugin's rule has the id of one of ours, or of another plugin's.
    """
    known = _rules()
    return Classifier.with_user_rules(user_rules, known) if user_rules else Classifier(known)


def contributed() -> tuple[Plugin | Broken, ...]:
    """Every plugin installed, whether it can be used or not."""
    return tuple(_checked(found) for group in plugins.GROUPS for found in plugins.declared(group))


# --- what traceview declares -------------------------------------------------------------------------


def _declared(package: str, attribute: str) -> list[Any]:
    """The object each public module of ``package`` declares; a module without it is a bug, not skipped."""
    home = importlib.import_module(package)
    names = sorted(info.name for info in pkgutil.iter_modules(home.__path__) if not info.name.startswith("_"))
    return [getattr(importlib.import_module(f"{package}.{name}"), attribute) for name in names]


def _named(found: list[_Owned], kind: str) -> tuple[Any, ...]:
    """What was found, once it is sure that no name is taken twice."""
    plugins.check_names(((one.value.name, one.owner) for one in found), kind)
    return tuple(one.value for one in found)


# --- what plugins declare ----------------------------------------------------------------------------


def _usable(group: str) -> Iterator[Plugin]:
    for found in plugins.declared(group):
        checked = _checked(found)
        if isinstance(checked, Plugin):
            yield checked


def _checked(found: Plugin | Broken) -> Plugin | Broken:
    """``found``, or why its object does not fit its group."""
    if isinstance(found, Broken):
        return found
    why = _CHECKS[found.group](found.value)
    return Broken(found.group, found.name, found.distribution, why) if why else found


def _lacking(names: tuple[str, ...], kind: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:  # noqa: ANN401 - a stranger's object
        absent = [name for name in names if not hasattr(value, name)]
        return f"it is no {kind}: it lacks {', '.join(absent)}" if absent else ""

    return check


def _no_analysis(value: object) -> str:
    return "" if isinstance(value, Analysis) else f"it is no Analysis but a {type(value).__name__}"


def _no_section(value: object) -> str:
    # the shape itself lives among the reports, above this module
    return _lacking(_SECTION_FIELDS, "Section")(value) or ("" if is_dataclass(value) else "it is no Section")


def _no_rules(value: Any) -> str:  # noqa: ANN401 - a stranger's object
    if not hasattr(value, "read_text"):
        return f"it is no path of a TOML file but a {type(value).__name__}"
    try:
        RuleTable.load(value, FIELDS)
    except RuleError as error:
        return str(error)
    return ""


_CHECKS: dict[str, Callable[[Any], str]] = {
    PARSERS: _lacking(_PARSER_FIELDS, "Parser"),
    ANALYZERS: _no_analysis,
    SECTIONS: _no_section,
    RULES: _no_rules,
}


def _what(plugin: Plugin) -> str:
    return f"plugin '{plugin.name}' of {plugin.distribution}"


def _blaming_analysis(plugin: Plugin) -> Analysis:
    analysis: Analysis = plugin.value
    what = _what(plugin)
    return replace(
        analysis, map=plugins.blaming(analysis.map, what), reduce=plugins.blaming(analysis.reduce, what)
    )


def _blaming_section(plugin: Plugin) -> Any:  # noqa: ANN401 - a section; its shape lives above this module
    return replace(plugin.value, build=plugins.blaming(plugin.value.build, _what(plugin)))


class _PluginParser:
    """A plugin's parser, whose bugs cost its own files and name their owner."""

    def __init__(self, plugin: Plugin) -> None:
        parser: Parser = plugin.value
        self.name, self.description, self.url = parser.name, parser.description, parser.url
        self.version = parser.version
        self._parser, self._what = parser, _what(plugin)

    def sniff(self, source: Source) -> bool:
        """Whether the plugin recognises the file; one that cannot tell does not."""
        try:
            return bool(self._parser.sniff(source))
        except Exception:  # noqa: BLE001 - a stranger's bug must not keep other formats from being read
            return False

    def parse(self, source: Source) -> list[Trace]:
        """What the plugin reads; see `contracts.Parser`."""
        return plugins.blaming(self._parser.parse, self._what)(source)


@cache
def _rules() -> RuleTable:
    """Kernel rules of plugins, then those of traceview."""
    tables = [
        *(_Owned(RuleTable.load(plugin.value, FIELDS), plugin.distribution) for plugin in _usable(RULES)),
        _Owned(kernel_rules(), OURS),
    ]
    owners = [(rule.id, table.owner) for table in reversed(tables) for rule in table.value.rules]
    plugins.check_names(owners, "kernel rules")
    return RuleTable(tuple(rule for table in tables for rule in table.value.rules), kernel_rules().fields)
