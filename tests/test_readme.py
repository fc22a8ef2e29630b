"""Everything that the README says can be typed, typed: each command and each call of its table."""

from __future__ import annotations

import re
import shlex
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import traceview as tv
from traceview.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLES = CHECKOUT / "sample_traces"
ROWS = [
    row.strip("|").split("|")
    for row in (CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()
    if row.startswith("| ") and "`traceview " in row
]
COMMANDS = [command for row in ROWS for command in re.findall(r"`traceview ([^`]+)`", row[1])]
CALLS = [call for row in ROWS for call in re.findall(r"`([^`]+)`", row[2])]


def _typed(command: str, folder: Path) -> list[str]:
    """The words of ``command``, with samples for its placeholders and files that are written in ``folder``."""
    standing: Mapping[str, list[str]] = {
        "TRACE...": [str(SAMPLES / "ep8-nccl")],
        "RUN": [str(SAMPLES / "scaling" / "256")],
        "RUN...": [str(SAMPLES / "scaling" / "1024")],
        "A": [str(SAMPLES / "ep8-nccl")],
        "B": [str(SAMPLES / "ep8-straggler")],
        "DIR": [str(folder / "made")],
    }
    return [word for part in shlex.split(command) for word in standing.get(part, [part])]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    with chdir(tmp_path):
        done = CliRunner().invoke(main, _typed(command, tmp_path))
    # a question may have no answer in the sample (1): there are no counters, and no one annotated it
    assert done.exit_code == 0 or (done.exit_code == 1 and "Hint:" in done.stderr), done.output


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    return {
        "tv": tv,
        "run": tv.load(SAMPLES / "ep8-nccl"),
        "a": tv.load(SAMPLES / "ep8-nccl"),
        "b": tv.load(SAMPLES / "ep8-straggler"),
        "r256": tv.load(SAMPLES / "scaling" / "256"),
        "r1024": tv.load(SAMPLES / "scaling" / "1024"),
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_readme_runs(call: str, names: dict[str, object], tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert eval(call, names) is not None  # noqa: S307 - our own page
