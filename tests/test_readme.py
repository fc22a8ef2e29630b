"""Everything that the README says can be typed, typed: each command and each call of its table."""

from __future__ import annotations

import re
import shlex
from contextlib import chdir
from functools import cache
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


@cache
def _run(place: str) -> tv.Run:
    return tv.load(SAMPLES / place)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_readme_runs(call: str, tmp_path: Path) -> None:
    places = {
        "run": "ep8-nccl",
        "a": "ep8-nccl",
        "b": "ep8-straggler",
        "r256": "scaling/256",
        "r1024": "scaling/1024",
    }
    used = {name: _run(place) for name, place in places.items() if re.search(rf"\b{name}\b", call)}
    with chdir(tmp_path):
        assert eval(call, {"tv": tv} | used) is not None  # noqa: S307 - our own page
