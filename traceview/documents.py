"""Small files that people write by hand or download: TOML and JSON, bounded in size, every value checked.

Whatever is wrong with one is the request's fault: a `UsageError` that names the file and the field, and never
quotes a value.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from traceview.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST_FILE = 1 << 20
"""Bytes of a description; one that is written by hand takes a few kilobytes."""

LARGEST_COUNT = 10**12
"""No width, batch or number of anything comes near this; arithmetic below it is exact in floating point."""

LETTERS = 64
"""Of a name that somebody else chose, an error shows no more."""


def read(path: Path) -> dict[str, Any]:
    """The table that a ``.json`` or ``.toml`` file holds.

    Raises:
        UsageError: There is no such plain file, it is too large, or it holds something else.
    """
    is_json = path.suffix.lower() == ".json"
    text = _text(path)
    try:
        found = json.loads(text) if is_json else tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of 5,000 digits and brackets 10,000 deep are legal
        kind = "JSON" if is_json else "TOML"
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise unusable(str(path), f"it is not {kind}{line}") from error
    if not isinstance(found, dict):
        raise unusable(str(path), "it holds no table of fields")
    return found


def unusable(where: str, why: str) -> UsageError:
    """The error that says why what stands in ``where`` cannot be used."""
    return UsageError(f"cannot use '{where}': {why}.")


def nearest(name: str, names: Mapping[str, Any] | set[str] | tuple[str, ...]) -> str | None:
    """The one of ``names`` that somebody who wrote ``name`` may have meant."""
    return next(iter(difflib.get_close_matches(name[:LETTERS].casefold(), list(names), n=1)), None)


@dataclass(slots=True)
class Fields:
    """A table of a document, asked for one field at a time.

    Attributes:
        table: The fields.
        where: What errors call the table.
        asked: Fields that were asked for, whether there or not.
    """

    table: Mapping[str, Any]
    where: str
    asked: set[str] = field(default_factory=set)

    def count(self, name: str, *, least: int = 1, default: int | None = None) -> int:
        """A whole number from ``least`` to `LARGEST_COUNT`; ``default`` where the field is absent or null.

        Raises:
            UsageError: It is something else, or absent without a default.
        """
        value = self._value(name)
        if value is None:
            if default is None:
                raise unusable(self.where, f"'{name}' is missing")
            return default
        # bool is an int, but "layers = true" is a mistake
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_COUNT:
            raise unusable(self.where, f"'{name}' must be a whole number from {least} to {LARGEST_COUNT:,}")
        return value

    def optional_count(self, name: str, *, least: int = 1) -> int | None:
        """The same; None where the field is absent or null."""
        return None if self._value(name) is None else self.count(name, least=least)

    def text(self, name: str, *, default: str = "") -> str:
        """A text; ``default`` where the field is absent.

        Raises:
            UsageError: It is something else.
        """
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise unusable(self.where, f"'{name}' must be a text")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; ``default`` where the field is absent.

        Raises:
            UsageError: It is something else.
        """
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise unusable(self.where, f"'{name}' must be true or false")
        return value

    def part(self, name: str) -> Fields | None:
        """A table within this one; None where there is none.

        Raises:
            UsageError: It is something else.
        """
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise unusable(self.where, f"'{name}' must be a table")
        return Fields(value, f"{self.where}, {name}")

    def unknown(self) -> dict[str, str | None]:
        """Fields nobody asked for, each with the one that may have been meant."""
        left = [str(name) for name in self.table if name not in self.asked]
        return {name: nearest(name, self.asked) for name in left}

    def refuse_unknown(self) -> None:
        """Makes sure that every field was asked for.

        Raises:
            UsageError: One was not.
        """
        for name, meant in self.unknown().items():
            hint = f"; did you mean '{meant}'?" if meant else ""
            raise unusable(self.where, f"unknown field '{name[:LETTERS]}'{hint}")

    def _value(self, name: str) -> Any:  # noqa: ANN401 - whatever the document says
        self.asked.add(name)
        return self.table.get(name)


def _text(path: Path) -> str:
    try:
        if not path.is_file():  # nor a pipe that would never end
            raise unusable(str(path), "there is no such file")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unusable(str(path), "it is not UTF-8 text") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise unusable(str(path), f"it cannot be read ({type(error).__name__})") from error
    if len(data) > LARGEST_FILE:
        raise unusable(str(path), f"it is larger than {LARGEST_FILE:,} bytes")
    return text
