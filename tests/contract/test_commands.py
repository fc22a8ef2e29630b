"""What every command owes its user, whoever adds it."""

from __future__ import annotations

import json
import pkgutil
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from traceview import commands
from traceview.cli import main
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(module.name for module in pkgutil.iter_modules(commands.__path__) if module.name[0] != "_")
CONTEXT = click.Context(main)


def _command(name: str) -> click.Command:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    return command


def _reads_traces(name: str) -> bool:
    return any(parameter.name == "places" for parameter in _command(name).params)


READERS = [name for name in NAMES if _reads_traces(name)]
ANSWERERS = [
    name for name in READERS if any(parameter.name == "format" for parameter in _command(name).params)
]
"""Readers whose result goes to stdout; the others write a file."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a tiny job."""
    folder = tmp_path_factory.mktemp("job")
    write(Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1), folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_command_is_named_like_its_module_and_explains_itself(name: str) -> None:
    command = _command(name)
    assert command.name == name
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in {"format", "directory"}:
            assert parameter.help, f"{name} {parameter.opts} has no help"


def test_the_help_lists_every_command_with_the_first_line_of_its_own_help() -> None:
    page = " ".join(CliRunner().invoke(main, ["--help"], terminal_width=200).stdout.split())
    for name in NAMES:
        first_line = (_command(name).help or "").partition("\n")[0].rstrip(".")
        assert f"{name} {first_line}" in page


@pytest.mark.parametrize("name", NAMES)
def test_help_is_short_to_ask_for(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"])
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage:")


@pytest.mark.parametrize("name", READERS)
def test_a_missing_trace_exits_3_with_nothing_on_stdout(name: str, tmp_path: Path) -> None:
    required = {"export": ["--to", "perfetto"]}.get(name, [])
    result = CliRunner().invoke(main, [name, str(tmp_path / "nowhere"), *required])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "nowhere" in result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_exits_2(name: str) -> None:
    assert CliRunner().invoke(main, [name, "--no-such-option"]).exit_code == 2


@pytest.mark.parametrize("name", ANSWERERS)
@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_a_reader_answers_in_every_format(name: str, form: str, job: Path) -> None:
    result = CliRunner().invoke(main, [name, str(job), "-f", form])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip()
    assert result.stderr == ""


@pytest.mark.parametrize("name", ANSWERERS)
def test_json_names_its_schema_and_its_runs_and_every_row_names_its_run(name: str, job: Path) -> None:
    content = json.loads(CliRunner().invoke(main, [name, str(job), "-f", "json"]).stdout)
    assert content["schema"] == f"traceview/{name}/1"
    assert content["inputs"] == [str(job)]
    assert [run["ranks"] for run in content["runs"]] == [[0, 1]]
    run = content["runs"][0]["name"]
    tables = [rows for key, rows in content.items() if key not in {"schema", "inputs", "runs"}]
    for rows in tables:
        assert all(next(iter(row.items())) == ("run", run) for row in rows)


@pytest.mark.parametrize("name", ANSWERERS)
def test_a_cache_gives_the_same_answer_the_first_and_the_second_time(
    name: str, job: Path, tmp_path: Path
) -> None:
    plain = CliRunner().invoke(main, [name, str(job), "-f", "csv"]).stdout
    for _ in range(2):
        cached = CliRunner().invoke(
            main, [name, str(job), "-f", "csv", "--cache", str(tmp_path), "--jobs", "1"]
        )
        assert cached.stdout == plain


def test_a_public_trace_of_every_reader_is_answered(traces: Path) -> None:
    found = sorted((traces / "pytorch").rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    trace = next(path for path in found if "nanogpt" in str(path).lower())
    for name in ANSWERERS:
        result = CliRunner().invoke(main, [name, str(trace), "-f", "json"])
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["runs"]
