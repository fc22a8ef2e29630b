"""Ordered tables of named regular expressions; the first match wins.

What traceview knows about names (kernels, process groups, annotations) is data: TOML files of rules
with an id, a pattern, the source of the fact, and a payload whose fields the caller declares. The
patterns are those of the Rust ``regex`` crate, which polars runs: no look-around and no
back-references, hence time linear in the name, whatever the rules or the names are.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from traceview.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable

MAX_NAME_CHARS = 4096
"""Names are cut to this length before they are matched; a longer one is template noise or hostile."""

RULE_ID = "rule_id"
_BLOCK = 24  # rules tried in one query
_OWN_FIELDS = frozenset({"id", "pattern", "source"})


@dataclass(frozen=True, slots=True)
class Field:
    """One payload field of a rule: the values it may take (any text when None), and whether it must."""

    values: Sequence[str] | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a name that matches ``pattern`` gets ``payload``; ``source`` says who writes such names.

    ``pattern`` is the one in the file, its classes narrowed to ASCII.

    ``groups`` are the named groups of the pattern, in order.
    """

    id: str
    pattern: str
    source: str
    payload: Mapping[str, str | None]
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Rules in the order they are tried."""

    rules: tuple[Rule, ...]
    fields: tuple[str, ...]

    @classmethod
    def load(cls, path: Traversable, fields: Mapping[str, Field]) -> Self:
        """The rules of one TOML file.

        Args:
            path: A file of ``[[rule]]`` tables. A top-level ``[values]`` table may list the legal values
                of a payload field, which then hold besides those in ``fields``.
            fields: Payload fields of this kind of table.

        Raises:
            RuleError: The file cannot be read, or a rule in it cannot be used.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError.at(str(path), "-", f"the file cannot be read ({type(error).__name__})") from error
        return cls.parse(text, str(path), fields)

    @classmethod
    def parse(cls, text: str, path: str, fields: Mapping[str, Field]) -> Self:
        """The rules of a TOML text; ``path`` only names it in errors. See `load`."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RuleError.at(path, "-", f"the file is not TOML ({error})") from error
        entries = document.get("rule", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RuleError.at(path, "-", "rules must be written as [[rule]] tables")
        legal = _with_listed_values(fields, document.get("values", {}), path)
        rules = tuple(_rule(entry, number, legal, path) for number, entry in enumerate(entries, start=1))
        seen: set[str] = set()
        for rule in rules:
            if rule.id in seen:
                raise RuleError.at(path, rule.id, "another rule of this file has the same id")
            seen.add(rule.id)
        return cls(rules, tuple(fields))

    def before(self, other: Self) -> Self:
        """These rules, then those of ``other``, except the ones whose id is taken here."""
        taken = {rule.id for rule in self.rules}
        rest = tuple(rule for rule in other.rules if rule.id not in taken)
        return type(self)(self.rules + rest, self.fields)

    @property
    def digest(self) -> str:
        """Short hash of all that can change an answer: order, ids, patterns and payloads."""
        facts = [[rule.id, rule.pattern, dict(rule.payload)] for rule in self.rules]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def match(self, names: pl.Series) -> pl.DataFrame:
        """What the rules say about each distinct name.

        Args:
            names: Strings or categoricals; nulls are left out.

        Returns:
            One row per distinct name, in order of first appearance: the name (of its own dtype), ``rule_id``
            (null when no rule matches), every payload field, and every named group of any pattern
            (null when it took no part in the match).
        """
        distinct = names.drop_nulls().unique(maintain_order=True)
        rows = pl.DataFrame({"row": pl.int_range(len(distinct), eager=True), "name": distinct})
        pending = rows.select("row", text=pl.col("name").cast(pl.String).str.slice(0, MAX_NAME_CHARS))
        placed = [pending.clear().with_columns(place=pl.lit(0, pl.Int32))]
        # a block of rules is one query: compiling patterns and starting queries is what costs here
        for first in range(0, len(self.rules), _BLOCK):
            if pending.is_empty():
                break
            tried = pending.with_columns(place=_first_match(self.rules[first : first + _BLOCK], first))
            placed.append(tried.drop_nulls("place"))
            pending = tried.filter(pl.col("place").is_null()).drop("place")
        hits = pl.concat(placed)
        verdicts = hits.select("row", "place").join(self._payloads(), on="place", how="left").drop("place")
        return rows.join(self._with_groups(verdicts, hits), on="row", how="left", maintain_order="left").drop(
            "row"
        )

    def _payloads(self) -> pl.DataFrame:
        """``place, rule_id`` and every payload field, one row per rule."""
        fields = {name: [rule.payload.get(name) for rule in self.rules] for name in self.fields}
        columns = {"place": range(len(self.rules)), RULE_ID: [rule.id for rule in self.rules], **fields}
        texts = dict.fromkeys([RULE_ID, *self.fields], pl.String())
        return pl.DataFrame(columns, schema={"place": pl.Int32(), **texts})

    def _with_groups(self, verdicts: pl.DataFrame, hits: pl.DataFrame) -> pl.DataFrame:
        """``verdicts`` plus what the named groups of the winning patterns captured."""
        names = list(dict.fromkeys(name for rule in self.rules for name in rule.groups))
        if not names:
            return verdicts
        captured = [pl.DataFrame(schema={"row": pl.Int64(), **dict.fromkeys(names, pl.String())})]
        for place in hits["place"].unique().to_list():
            if (rule := self.rules[place]).groups:
                mine = hits.filter(pl.col("place") == place)
                groups = mine["text"].str.extract_groups(rule.pattern).struct.unnest().select(rule.groups)
                captured.append(groups.with_columns(mine["row"]))
        joined = verdicts.join(pl.concat(captured, how="diagonal"), on="row", how="left", suffix="_captured")
        # a group named like a payload field speaks for it, where it took part in the match
        both = [name for name in names if name in verdicts.columns]
        spoken = [pl.coalesce(f"{name}_captured", name).alias(name) for name in both]
        return joined.with_columns(spoken).drop(f"{name}_captured" for name in both)


def _first_match(rules: Sequence[Rule], first: int) -> pl.Expr:
    """Place, counted from ``first``, of the first of ``rules`` that matches ``text``; null if none does."""
    tests = enumerate((pl.col("text").str.contains(rule.pattern) for rule in rules), start=first)
    return pl.coalesce(pl.when(test).then(pl.lit(place, pl.Int32)) for place, test in tests)


_ASCII_CLASSES = {r"\w": "[0-9A-Za-z_]", r"\d": "[0-9]", r"\b": r"(?-u:\b)"}


def _ascii(pattern: str) -> str:
    """The pattern with ASCII classes: names of code need no others, and Unicode ones compile 2-3x slower."""
    for unicode_class, ascii_class in _ASCII_CLASSES.items():
        pattern = pattern.replace(unicode_class, ascii_class)
    if any(wide in pattern for wide in (".", "[^", r"\s", r"\S")):
        return pattern  # these must go on meaning whole characters
    return pattern.replace("(?i)", "(?i-u)")


def _named_groups(pattern: str) -> list[str]:
    """Names of the groups in ``pattern``, in order; raises what polars raises for a bad pattern."""
    groups = pl.Series([""]).str.extract_groups(pattern)
    return [field.name for field in getattr(groups.dtype, "fields", ()) if not field.name.isdigit()]


def _with_listed_values(fields: Mapping[str, Field], listed: Any, path: str) -> dict[str, Field]:  # noqa: ANN401 - TOML
    """``fields`` with the legal values the file itself lists."""
    if not isinstance(listed, dict) or not all(isinstance(values, list) for values in listed.values()):
        raise RuleError.at(path, "-", "[values] must map a field to a list of its legal values")
    unknown = sorted(listed.keys() - fields.keys())
    if unknown:
        raise RuleError.at(path, "-", f"[values] names no field of these rules: {', '.join(unknown)}")
    return {
        name: Field([*(field.values or ()), *listed[name]], field.required) if name in listed else field
        for name, field in fields.items()
    }


def _rule(entry: dict[str, Any], number: int, fields: Mapping[str, Field], path: str) -> Rule:
    """The rule a ``[[rule]]`` table stands for.

    Raises:
        RuleError: A field is missing, unknown, not text or not a legal value; or the pattern is no regex.
    """
    given = entry.get("id")
    label = given if isinstance(given, str) and given else f"number {number}"
    required = [*sorted(_OWN_FIELDS), *(name for name, field in fields.items() if field.required)]
    for name in required:
        if not entry.get(name):
            raise RuleError.at(path, label, f"the field '{name}' is missing")
    for name, value in entry.items():
        if name not in fields and name not in _OWN_FIELDS:
            raise RuleError.at(path, label, f"unknown field '{name}'")
        if not isinstance(value, str):
            raise RuleError.at(path, label, f"the field '{name}' must be text")
    for name, field in fields.items():
        if name in entry and field.values is not None and entry[name] not in field.values:
            raise RuleError.at(path, label, f"unknown {name} '{entry[name]}'")
    try:
        groups = tuple(_named_groups(entry["pattern"]))
    except pl.exceptions.ComputeError as error:
        raise RuleError.at(path, label, f"the pattern is no regular expression ({_reason(error)})") from error
    payload = {name: entry.get(name) for name in fields}
    return Rule(entry["id"], _ascii(entry["pattern"]), entry["source"], payload, groups)


def _reason(error: Exception) -> str:
    """The one line in a regex error that says what is wrong."""
    lines = [line for line in str(error).splitlines() if line.startswith("error: ")]
    return lines[0].removeprefix("error: ") if lines else "it does not compile"
