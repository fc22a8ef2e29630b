"""The reference pages are current, and the other pages name only what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from traceview import registry, schema
from traceview.cli import main as root_command

CHECKOUT = Path(__file__).resolve().parents[1]
GENERATOR = CHECKOUT / "docs" / "generate.py"
PAGES = ("schema.md", "cli.md")
PROSE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
LONGEST = {"ARCHITECTURE.md": 150, "CONTRIBUTING.md": 120}


def _generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(GENERATOR), *arguments],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_reference_pages_are_current() -> None:
    done = _generate("--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_was_edited_by_hand_is_reported(page: str, tmp_path: Path) -> None:
    for name in PAGES:
        shutil.copy(CHECKOUT / "docs" / name, tmp_path)
    (tmp_path / page).write_text((tmp_path / page).read_text() + "by hand\n")
    done = _generate("--check", str(tmp_path))
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if page in line]
    assert not [
        line for line in done.stderr.splitlines() for other in PAGES if other != page and other in line
    ]


def test_every_column_and_every_question_is_on_the_schema_page() -> None:
    page = (CHECKOUT / "docs" / "schema.md").read_text()
    tables = [*schema.TABLES.values(), *(analysis.result for analysis in registry.analyses().values())]
    rows = {
        (name, column.doc.replace("|", "\\|")) for table in tables for name, column in table.columns.items()
    }
    assert [row for row in rows if f"| `{row[0]}` |" not in page or f"| {row[1]} |" not in page] == []
    assert [a.question for a in registry.analyses().values() if a.question not in page] == []


def test_every_command_and_option_has_help() -> None:
    commands = {name: command for name in _verbs() if (command := root_command.get_command(_context(), name))}
    assert [name for name, command in commands.items() if not command.help] == []
    options = [(name, option) for name, command in commands.items() for option in command.params]
    assert [(n, o.name) for n, o in options if isinstance(o, click.Option) and not o.help] == []
