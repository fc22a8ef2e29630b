"""The reference pages are current, and the other pages name only what exists."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import polars as pl
import pytest

import traceview
from traceview import recipe, registry, schema
from traceview.classify import Classifier
from traceview.cli import main as root_command

CHECKOUT = Path(__file__).resolve().parents[1]
GENERATOR = CHECKOUT / "docs" / "generate.py"
SCHEMAS = tuple(f"docs/schemas/{path.name}" for path in (CHECKOUT / "docs" / "schemas").iterdir())
GENERATED = ("docs/schema.md", "docs/cli.md", "README.md", *SCHEMAS)
PROSE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/machine.md")
GUIDES = sorted(
    page
    for path in (CHECKOUT / "docs").rglob("*.md")
    if (page := path.relative_to(CHECKOUT).as_posix()) not in {*GENERATED, *PROSE}
)
"""Pages of the site that people write."""
LONGEST = {"README.md": 150, "ARCHITECTURE.md": 180, "CONTRIBUTING.md": 120}

CONTEXT = click.Context(root_command)
COMMANDS = {name: root_command.get_command(CONTEXT, name) for name in root_command.list_commands(CONTEXT)}


def _generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GENERATOR), *arguments]
    return subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True, text=True)


def _text(page: str) -> str:
    return (CHECKOUT / page).read_text(encoding="utf-8")


# --- reference pages ---------------------------------------------------------------------------------


def test_what_is_made_from_code_is_current() -> None:
    done = _generate("--check")
    assert done.returncode == 0, done.stderr


def test_what_was_edited_by_hand_is_reported_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "docs" / "schemas").mkdir(parents=True)
    for name in GENERATED:
        shutil.copy(CHECKOUT / name, tmp_path / name)
    for page, was, by_hand in (
        ("docs/cli.md", "# Command line", "# Commands"),
        ("README.md", "hidden %", "hid %"),
    ):
        assert was in _text(page)
        (tmp_path / page).write_text(_text(page).replace(was, by_hand), encoding="utf-8")
    done = _generate("--check", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "docs/cli.md is not current; run `make docs`",
        "README.md is not current; run `make docs`",
    ]


def test_every_column_and_every_question_is_on_the_schema_page() -> None:
    page = _text("docs/schema.md")
    tables = [*schema.TABLES.values(), *(analysis.result for analysis in registry.analyses().values())]
    columns = {
        (name, column.doc.replace("|", "\\|")) for table in tables for name, column in table.columns.items()
    }
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    shown = {(row.split("`")[1], row.rpartition(" | ")[2].removesuffix(" |")) for row in rows}
    assert columns - shown == set()
    assert [a.name for a in registry.analyses().values() if f"### {a.name}: {a.question}" not in page] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_each_of_its_options_have_help_and_are_on_the_page(name: str) -> None:
    command = COMMANDS[name]
    assert command is not None
    assert command.help
    section = _text("docs/cli.md").partition(f"## `traceview {name}`")[2].partition("\n## ")[0]
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
    assert [option.name for option in options if f"{option.opts[-1]}" not in section] == []


# --- prose -------------------------------------------------------------------------------------------


def _code(page: str) -> str:
    """What stands in code blocks and code spans."""
    return "\n".join(re.findall(r"```.*?```|`[^`]+`", _text(page), flags=re.DOTALL))


@pytest.mark.parametrize("page", [*PROSE, *GUIDES])
def test_a_page_uses_only_commands_that_exist(page: str) -> None:
    used = set(re.findall(r"(?<![\w/.=-])(?<!import )traceview ([a-z]+)\b", _code(page)))
    assert used - set(COMMANDS) == set()


@pytest.mark.parametrize("page", [*PROSE, *GUIDES])
def test_a_page_uses_only_functions_that_the_library_has(page: str) -> None:
    used = re.findall(r"\btv\.([A-Za-z_]+)", _code(page))
    assert [name for name in used if name not in traceview.__all__] == []


@pytest.mark.parametrize("page", [*PROSE, *GUIDES])
def test_a_page_gives_commands_only_options_that_they_have(page: str) -> None:
    for line in re.findall(r"(?:^|`|\$ )traceview ([a-z]+ [^`\n|>]*)", _code(page), flags=re.MULTILINE):
        name, *words = line.split()
        command = COMMANDS[name]
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        assert [word for word in words if word.startswith("-") and word != "-" and word not in known] == [], (
            line
        )


@pytest.mark.parametrize("page", [page for page in GUIDES if "/questions/" in page])
def test_numbers_that_a_page_talks_about_stand_in_its_output(page: str) -> None:
    prose, output = re.sub(r"```.*?```", "", _text(page), flags=re.DOTALL), _code(page)
    told = re.findall(r"\d+[.,]\d+", prose)
    planted = {"1.3"}  # how much slower the sample was made
    assert [number for number in told if number not in output and number not in planted] == []


def test_the_rules_and_the_recipe_that_pages_show_are_accepted(tmp_path: Path) -> None:
    (rules,) = re.findall(r"```toml\n(# rules.toml.*?)```", _text("docs/faq.md"), flags=re.DOTALL)
    (tmp_path / "rules.toml").write_text(rules, encoding="utf-8")
    names = pl.Series(["our_a2a_dispatch_v2"])
    classified = Classifier.with_user_rules(tmp_path / "rules.toml").classify(names)
    assert classified["rule_id"].to_list() == ["our-dispatch"]
    (job,) = re.findall(r"```toml\n(model = .*?)```", _text("docs/recording.md"), flags=re.DOTALL)
    (tmp_path / "run.toml").write_text(job, encoding="utf-8")
    found, notes = recipe.read(tmp_path)
    assert (found.gpus, found.parallel, len(notes)) == (256, {"ep": 32, "pp": 2}, 0)
    assert found.model is not None


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    "line", re.findall(r"^traceview .*\| jq .*$", _text("docs/ci.md"), flags=re.MULTILINE)
)
def test_what_a_page_asks_jq_has_an_answer(line: str) -> None:
    command = line.replace("traceview", f"{shlex.quote(sys.executable)} -m traceview", 1)
    done = subprocess.run(command, shell=True, cwd=CHECKOUT, check=False, capture_output=True, text=True)  # noqa: S602 - our own page
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "null" not in done.stdout


def test_the_readme_says_which_question_every_command_answers() -> None:
    rows = [line for line in _text("README.md").splitlines() if line.startswith("| ")]
    assert set(COMMANDS) - {name for row in rows for name in re.findall(r"`traceview ([a-z]+)", row)} == set()


def test_the_architecture_shows_the_layers_that_are_enforced() -> None:
    settings = tomllib.loads(_text("pyproject.toml"))["tool"]["importlinter"]
    enforced = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    (block,) = re.findall(r"```\n(cli\n.*?)```", _text("ARCHITECTURE.md"), flags=re.DOTALL)
    shown = [line.split("  ")[0].split(" · ") for line in block.splitlines()]
    assert shown == [layer.split(" | ") for layer in enforced if layer != "(__main__)"]


def test_the_architecture_names_every_module() -> None:
    rows = [line for line in _text("ARCHITECTURE.md").splitlines() if line.startswith("| `")]
    named = {name.strip("/") for row in rows for name in re.findall(r"`([a-z]+/?)`", row.split("|")[1])}
    entries = [*(CHECKOUT / "traceview").glob("[a-z]*.py"), *(CHECKOUT / "traceview").glob("*/__init__.py")]
    there = {entry.parent.name if entry.stem == "__init__" else entry.stem for entry in entries}
    assert there == named


@pytest.mark.parametrize("page", PROSE)
def test_a_page_names_only_files_and_make_targets_that_exist(page: str) -> None:
    spans = re.findall(r"`([^`\s]+)`", _text(page)) + re.findall(r"\]\(([^)#:]+)\)", _text(page))
    paths = {span for span in spans if "/" in span and not re.search(r"[<>*{}()=,']|^\.venv", span)}
    assert {
        path for path in paths if not any((CHECKOUT / home / path).exists() for home in ("", "traceview"))
    } == set()
    targets = set(re.findall(r"^([a-z]+):", _text("Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", _code(page))) - targets == set()


@pytest.mark.parametrize("page", ["README.md", "docs/machine.md"])
def test_the_python_lines_of_a_page_run(page: str) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", _text(page), flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=CHECKOUT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "lines"), LONGEST.items())
def test_a_page_stays_short_enough_to_be_read(page: str, lines: int) -> None:
    assert len(_text(page).splitlines()) <= lines
