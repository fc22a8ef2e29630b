"""What a process loads, and who may import whom."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HEAVY = {"bokeh", "holoviews", "numpy", "pandas", "panel", "polars", "pyarrow", "rich"}
DRAWING = {"bokeh", "holoviews", "pandas", "panel"}
SAMPLE = CHECKOUT / "sample_traces" / "ep8-deepep-overlap"


def _loaded_by(code: str) -> set[str]:
    """Top-level packages in a fresh process after ``code``."""
    report = "import json, sys; sys.stderr.write('\\n' + json.dumps(list(sys.modules)))"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {module.partition(".")[0] for module in json.loads(done.stderr.splitlines()[-1])}


def _command(*arguments: str) -> str:
    """Code that runs the command line and carries on after it."""
    return (
        f"import sys; sys.argv = {['traceview', *arguments]!r}\n"
        "from traceview.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: assert not done.code, done.code"
    )


def test_the_probe_sees_a_heavy_import() -> None:
    assert HEAVY & _loaded_by("import polars") == {"polars"}


@pytest.mark.parametrize("code", ["import traceview", _command("--help"), _command("--version")])
def test_importing_the_package_or_asking_for_help_loads_nothing_heavy(code: str) -> None:
    loaded = _loaded_by(code)
    assert "traceview" in loaded
    assert HEAVY & loaded == set()


@pytest.mark.parametrize(
    "code",
    [
        f"import traceview as tv; run = tv.load({str(SAMPLE)!r}); tv.breakdown(run); tv.overlap(run)",
        _command("summary", str(SAMPLE)),
        _command("summary", str(SAMPLE), "-f", "json"),
    ],
    ids=["library", "summary", "json"],
)
def test_answering_a_question_loads_nothing_that_draws(code: str) -> None:
    loaded = _loaded_by(code)
    assert "polars" in loaded
    assert DRAWING & loaded == set()


def _lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)


def test_every_import_follows_the_layers() -> None:
    done = _lint(CHECKOUT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("copy")
    for folder in ("traceview", "parsers", "reports"):
        shutil.copytree(CHECKOUT / folder, home / folder, symlinks=True)
    shutil.copy(CHECKOUT / "pyproject.toml", home)
    return home


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("parsers/kineto.py", "import traceview.analyzers.breakdown"),
        ("traceview/analyzers/breakdown.py", "import traceview.parsers.kineto"),
        ("traceview/analyzers/breakdown.py", "import traceview.reports"),
        ("traceview/trace.py", "from traceview.parsers import kineto"),
        ("traceview/run.py", "import holoviews"),
    ],
)
def test_an_import_against_the_layers_is_noticed(copy: Path, file: str, statement: str) -> None:
    source = (copy / file).read_text()
    try:
        (copy / file).write_text(f"{source}\n{statement}\n")
        done = _lint(copy)
    finally:
        (copy / file).write_text(source)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_a_module_without_a_layer_is_noticed(copy: Path) -> None:
    stray = copy / "traceview" / "helpers.py"
    stray.touch()
    try:
        done = _lint(copy)
    finally:
        stray.unlink()
    assert done.returncode == 1
    assert "traceview.helpers" in done.stdout
