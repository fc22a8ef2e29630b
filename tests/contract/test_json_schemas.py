"""What commands write as JSON is what the published schemas promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError

from traceview.cli import main
from traceview.synth import Workload, write

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
CONTEXT = click.Context(main)
COMMANDS = {
    name: command for name in main.list_commands(CONTEXT) if (command := main.get_command(CONTEXT, name))
}
GIVING_JSON = [
    name for name, command in COMMANDS.items() if any(option.name == "format" for option in command.params)
]
ARGUMENTS: dict[str, list[str]] = {
    "compare": ["{job}", "{job}"],
    "doctor": [],
    "explain": ["mfu"],
    "scaling": ["{job}", "{large}", "--tokens-per-rank", "1024"],
}
"""Where they are not one run."""

WORKLOAD = {"expert_parallel": 2, "experts": 4, "top_k": 2, "microbatches": 1, "layers": 1}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {name: tmp_path_factory.mktemp(name) for name in ("job", "large")}
    for (name, folder), ranks in zip(found.items(), (2, 4), strict=True):
        write(Workload(ranks=ranks, steps=2, **WORKLOAD), folder / name)  # type: ignore[arg-type]
    return found


def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return schema


def _answer(name: str, places: dict[str, Path]) -> dict[str, Any]:
    arguments = [argument.format(**places) for argument in ARGUMENTS.get(name, ["{job}"])]
    result = CliRunner().invoke(main, [name, *arguments, "-f", "json"])
    assert result.exit_code == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_every_command_that_gives_json_has_a_schema_and_no_other() -> None:
    published = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert published == {*GIVING_JSON, "report"}


@pytest.mark.parametrize("name", [*GIVING_JSON, "report"])
def test_a_schema_is_one_itself_and_describes_every_key(name: str) -> None:
    schema = _schema(name)
    Draft202012Validator.check_schema(schema)
    tables = {**schema["properties"], **schema.get("patternProperties", {})}
    for key in set(tables) - {"schema", "inputs", "runs"}:
        assert all(column["description"] for column in tables[key]["items"]["properties"].values()), key


@pytest.mark.parametrize("name", GIVING_JSON)
def test_what_a_command_writes_fits_its_schema_and_every_table_is_described(
    name: str, places: dict[str, Path]
) -> None:
    content, schema = _answer(name, places), _schema(name)
    Draft202012Validator(schema).validate(content)
    assert set(content) == set(schema["required"])
    for key, rows in content.items():
        if key not in {"schema", "inputs", "runs"} and rows:
            assert set(rows[0]) <= {"run", *schema["properties"][key]["items"]["properties"]}


def test_what_a_report_writes_fits_its_schema(places: dict[str, Path], tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    arguments = ["report", str(places["job"]), "-o", str(tmp_path / "r.html"), "--json", str(numbers), "-q"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    content, schema = json.loads(numbers.read_text()), _schema("report")
    Draft202012Validator(schema).validate(content)
    unknown = Draft202012Validator(schema | {"additionalProperties": False})
    unknown.validate(content)


def test_mfu_without_a_trace_fits_its_schema_too() -> None:
    arguments = ["mfu", "--tokens-per-second-per-gpu", "6338", "--model", "deepseek-v3", "--seq-len", "4096"]
    result = CliRunner().invoke(main, [*arguments, "-f", "json"])
    assert result.exit_code == 0, result.stderr
    Draft202012Validator(_schema("mfu")).validate(json.loads(result.stdout))


@pytest.mark.parametrize(
    "spoiled",
    [
        {"schema": "traceview/overlap/0"},
        {"rows": None},
        {"rows": [{"rank": 0}]},
        {"diagnostics": [{"severity": "grave"}]},
    ],
)
def test_a_schema_refuses_what_is_not_promised(spoiled: dict[str, Any], places: dict[str, Path]) -> None:
    content = _answer("overlap", places) | spoiled
    with pytest.raises(ValidationError):
        Draft202012Validator(_schema("overlap")).validate(content)
