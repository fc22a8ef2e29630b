"""Everything traceview raises on purpose.

::

    TraceViewError
    ├── UsageError            the request itself is wrong (exit 2)
    ├── PluginError           what another distribution adds cannot be used (exit 2)
    ├── NoTraceError          nothing usable was found (exit 3)
    │   ├── UnknownFormatError    no parser recognises the file
    │   └── ParseError            a parser recognised the file and could not read it
    ├── SchemaError           a table lacks columns the contract promises
    ├── MissingTableError     an analysis needs a table this trace does not have (also a KeyError)
    ├── RuleError             a rules file is malformed
    └── AnalysisError         the tables are there, the question has no answer

Messages say what, where, why and what to do. They never quote a trace's metadata values: those may
hold the environment or the command line of somebody's job.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class TraceViewError(Exception):
    """Base of all errors a user can cause or mend; ``exit_code`` is what the command line returns."""

    exit_code = 3


class UsageError(TraceViewError):
    """The request is wrong, whatever the trace holds."""

    exit_code = 2


class NoTraceError(TraceViewError):
    """No usable trace was found."""

    @classmethod
    def at(cls, place: str, looked_for: Iterable[str]) -> Self:
        """Nothing that looks like a trace lies at ``place``."""
        return cls(
            f"no trace found at '{place}'.\n"
            f"Looked for: {', '.join(looked_for)}\n"
            "Hint: pass a trace file, a directory of them, or a quoted glob."
        )


class UnknownFormatError(NoTraceError):
    """No parser recognises the file; the message says what it seems to be instead."""

    @classmethod
    def of(cls, path: Path | str, what: str, hint: str, tried: Iterable[str] = ()) -> Self:
        """``path`` is a ``what``, not a trace; ``hint`` says what to pass instead."""
        formats = ", ".join(tried)
        suffix = f"\nFormats tried: {formats}" if formats else ""
        return cls(f"'{path}' is not a trace: {what}.\nHint: {hint}{suffix}")


class ParseError(NoTraceError):
    """A parser recognised the file and could not read it."""

    @classmethod
    def reading(cls, path: Path | str, where: str, why: str, hint: str) -> Self:
        """Reading ``path`` failed at ``where`` because of ``why``."""
        return cls(f"cannot read '{path}' ({where}): {why}.\nHint: {hint}")


class SchemaError(TraceViewError):
    """A table lacks columns the contract promises, or holds values outside their type."""

    @classmethod
    def missing(cls, table: str, missing: Iterable[str], available: Iterable[str]) -> Self:
        """Columns are missing from a table; the nearest available names are listed."""
        have = list(available)
        near = {name: difflib.get_close_matches(name, have, n=2) for name in missing}
        text = "; ".join(f"{name} (nearest: {', '.join(n) or 'none'})" for name, n in near.items())
        return cls(f"table '{table}' lacks {text}.")


class MissingTableError(TraceViewError, KeyError):
    """An analysis needs a table this trace does not have."""

    @classmethod
    def of(cls, table: str, available: Iterable[str]) -> Self:
        """``table`` is absent; absent differs from empty."""
        return cls(f"this trace has no table '{table}'; it has: {', '.join(sorted(available))}.")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


class RuleError(UsageError):
    """A rules file is malformed."""

    @classmethod
    def at(cls, path: Path | str, rule: str, why: str) -> Self:
        """Rule ``rule`` of ``path`` cannot be used because of ``why``."""
        return cls(f"rules file '{path}', rule {rule}: {why}.")


class PluginError(TraceViewError):
    """What another distribution adds clashes with something, or fails."""

    exit_code = 2

    @classmethod
    def clashing(cls, kind: str, name: str, first: str, second: str) -> Self:
        """Two ``kind`` are called ``name``: one of distribution ``first``, one of ``second``."""
        return cls(
            f"two {kind} are called '{name}': one comes with {first}, one with {second}.\n"
            "Hint: uninstall one of them, or ask its authors for another name."
        )

    @classmethod
    def failing(cls, what: str, error: Exception) -> Self:
        """``what`` raised ``error``, whose text may quote the trace and is not repeated."""
        return cls(
            f"{what} failed with {type(error).__name__}.\n"
            "Hint: --debug shows where; its authors want to know, and uninstalling it helps meanwhile."
        )


class AnalysisError(TraceViewError):
    """The tables are there, but the question has no answer."""

    exit_code = 2
