"""The notebooks run, from their first cell to their last; `make notebooks` runs them in a kernel as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = [
    path
    for path in sorted((CHECKOUT / "examples").glob("*.py"))
    if path.read_text(encoding="utf-8").startswith("# %%")
]


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "all_to_all",
        "compare_runs",
        "first_look",
        "scaling_study",
        "write_an_analysis",
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_script(notebook: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(notebook)],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_title_and_has_more_text_than_that(notebook: Path) -> None:
    cells = notebook.read_text(encoding="utf-8").split("# %%")[1:]
    texts = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert texts[0].splitlines()[1].startswith("# # ")
    assert len(texts) > 3
