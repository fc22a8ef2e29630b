from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.errors import RuleError, UsageError
from traceview.rules import MAX_NAME_CHARS, Field, RuleTable

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {"category": Field(("fruit", "tool"), required=True), "colour": Field()}


def _rule(rule_id: str, pattern: str, category: str = "fruit", **more: str) -> str:
    fields = {"id": rule_id, "pattern": pattern, "category": category, "source": "a shop", **more}
    return "[[rule]]\n" + "\n".join(f"{name} = '{value}'" for name, value in fields.items()) + "\n"


def _table(*rules: str) -> RuleTable:
    return RuleTable.parse("\n".join(rules), "shop.toml", FIELDS)


def _ids(table: RuleTable, *names: str) -> list[str | None]:
    return table.match(pl.Series(names, dtype=pl.String))["rule_id"].to_list()


def test_the_first_rule_that_matches_wins() -> None:
    general, special = _rule("any-apple", "apple"), _rule("pineapple", "pineapple")
    assert _ids(_table(general, special), "pineapple", "pear") == ["any-apple", None]
    assert _ids(_table(special, general), "pineapple", "pear") == ["pineapple", None]


def test_a_match_carries_the_payload_and_leaves_unset_fields_null() -> None:
    table = _table(_rule("apple", "apple", colour="red"), _rule("saw", "saw", "tool"))
    rows = table.match(pl.Series(["saw", "apple", "stone"])).rows(named=True)
    assert rows == [
        {"name": "saw", "rule_id": "saw", "category": "tool", "colour": None},
        {"name": "apple", "rule_id": "apple", "category": "fruit", "colour": "red"},
        {"name": "stone", "rule_id": None, "category": None, "colour": None},
    ]


def test_named_groups_become_columns_and_are_null_for_other_rules() -> None:
    table = _table(_rule("crate", r"^crate (?P<number>\d+)(?: of (?P<total>\d+))?$"), _rule("apple", "apple"))
    matched = table.match(pl.Series(["crate 3", "crate 4 of 9", "apple 5"]))
    assert matched["number"].to_list() == ["3", "4", None]
    assert matched["total"].to_list() == [None, "9", None]


def test_a_group_named_like_a_field_speaks_for_it_where_it_took_part() -> None:
    table = _table(_rule("apple", r"^(?P<colour>red|green)? ?apple$", colour="grey"))
    assert table.match(pl.Series(["red apple", "apple"]))["colour"].to_list() == ["red", "grey"]


def test_each_distinct_name_has_one_row_in_order_of_appearance() -> None:
    matched = _table(_rule("apple", "apple")).match(pl.Series(["b", "apple", "b", None, "a", "apple"]))
    assert matched["name"].to_list() == ["b", "apple", "a"]


def test_names_keep_their_dtype() -> None:
    names = pl.Series(["apple", "pear"], dtype=pl.Categorical)
    assert _table(_rule("apple", "apple")).match(names)["name"].dtype == pl.Categorical()


def test_no_names_give_no_rows_with_all_columns() -> None:
    table = _table(_rule("crate", r"crate (?P<number>\d+)"))
    matched = table.match(pl.Series([], dtype=pl.String))
    assert matched.shape == (0, 5)
    assert matched.columns == ["name", "rule_id", "category", "colour", "number"]


def test_a_table_without_rules_matches_nothing() -> None:
    assert _ids(RuleTable.parse("", "empty.toml", FIELDS), "apple") == [None]


def test_a_name_is_matched_on_its_first_characters_only() -> None:
    table = _table(_rule("end", "end$"), _rule("apple", "apple"))
    inside, outside = "x" * (MAX_NAME_CHARS - 5) + "apple", "x" * (MAX_NAME_CHARS - 4) + "apple"
    matched = table.match(pl.Series([inside, outside]))
    assert matched["rule_id"].to_list() == ["apple", None]
    assert matched["name"].to_list() == [inside, outside]


@given(st.lists(st.text(alphabet="abc\n", max_size=6), max_size=8))
def test_matching_agrees_with_a_plain_search_name_by_name(names: list[str]) -> None:
    patterns = {"first": "^ab", "second": "c.?a", "third": "b+$", "fourth": r"\n"}
    table = _table(*(_rule(rule_id, pattern) for rule_id, pattern in patterns.items()))
    # \Z, for Python's $ also matches before a last newline
    python = {rule_id: pattern.replace("$", r"\Z") for rule_id, pattern in patterns.items()}
    expected = {
        name: next((rule_id for rule_id, pattern in python.items() if re.search(pattern, name)), None)
        for name in names
    }
    matched = table.match(pl.Series(names, dtype=pl.String))
    assert dict(matched.select("name", "rule_id").iter_rows()) == expected


def test_rules_put_before_others_win_and_replace_those_of_the_same_id() -> None:
    theirs = _table(_rule("apple", "apple", "fruit"), _rule("saw", "saw", "tool"))
    ours = _table(_rule("apple", "apple tree", "tool"))
    both = ours.before(theirs)
    assert _ids(both, "apple tree", "apple", "saw") == ["apple", None, "saw"]
    assert both.match(pl.Series(["apple tree"]))["category"].to_list() == ["tool"]


def test_the_digest_tells_tables_that_answer_differently_apart() -> None:
    apple, saw = _rule("apple", "apple"), _rule("saw", "saw", "tool")
    tables = [
        _table(apple, saw),
        _table(saw, apple),
        _table(apple),
        _table(_rule("apple", "appel"), saw),
        _table(_rule("apple", "apple", "tool"), saw),
        _table(_rule("fruit", "apple"), saw),
    ]
    assert len({table.digest for table in tables}) == len(tables)


def test_the_digest_does_not_depend_on_sources_or_layout() -> None:
    other = "# a comment\n" + _rule("apple", "apple").replace("a shop", "a market")
    assert _table(other).digest == _table(_rule("apple", "apple")).digest


def test_a_file_may_list_the_legal_values_of_its_fields() -> None:
    listed = "[values]\ncolour = ['red']\n"
    assert _table(listed, _rule("apple", "apple", colour="red")).rules[0].payload["colour"] == "red"
    with pytest.raises(RuleError, match="unknown colour 'blue'"):
        _table(listed.replace("red", "green"), _rule("apple", "apple", colour="blue"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_rule("apple", "a(b"), "rule apple: the pattern is no regular expression .unclosed group"),
        (_rule("apple", "(?=a)"), "rule apple: the pattern is no regular expression .look-around"),
        (_rule("apple", "(a{1000}){1000}"), "rule apple: the pattern is no regular expression"),
        (_rule("apple", "a") + _rule("apple", "b"), "rule apple: another rule"),
        (_rule("apple", "a", "stone"), "rule apple: unknown category 'stone'"),
        (_rule("apple", "a", category=""), "rule apple: the field 'category' is missing"),
        (_rule("apple", "a", source=""), "rule apple: the field 'source' is missing"),
        (_rule("apple", ""), "rule apple: the field 'pattern' is missing"),
        (_rule("apple", "a") + _rule("", "b"), "rule number 2: the field 'id' is missing"),
        (_rule("apple", "a", size="big"), "rule apple: unknown field 'size'"),
        (_rule("apple", "a").replace("'a'", "7"), "rule apple: the field 'pattern' must be text"),
        ("rule = 3", r"rule -: rules must be written as \[\[rule\]\] tables"),
        ("rule = [1]", r"rule -: rules must be written as \[\[rule\]\] tables"),
        ("[[rule]", "rule -: the file is not TOML"),
        ("values = 3", r"rule -: \[values\] must map"),
        ("[values]\nsize = ['big']", r"rule -: \[values\] names no field of these rules: size"),
    ],
)
def test_a_bad_rule_file_is_refused_with_its_name_the_rule_and_the_reason(text: str, why: str) -> None:
    with pytest.raises(RuleError, match=rf"^rules file 'shop.toml', {why}"):
        RuleTable.parse(text, "shop.toml", FIELDS)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rules.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"rules\.toml.*cannot be read"):
        RuleTable.load(path, FIELDS)
