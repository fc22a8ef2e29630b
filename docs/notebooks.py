"""Turns the notebooks of `examples/`, which are kept as Python scripts, into notebooks.

Usage: ``python docs/notebooks.py``. Each is run from its first cell to its last, from the root of the
checkout, and written with its output to ``docs/notebooks/``, from where the site takes it. An error in a cell
ends the program with its traceback.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jupytext

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "docs" / "notebooks"
CELL = "# %%"
PATIENCE_S = 120
"""For one cell."""


def scripts() -> list[Path]:
    """The examples that are notebooks: those that are divided into cells."""
    return [
        path
        for path in sorted((CHECKOUT / "examples").glob("*.py"))
        if path.read_text(encoding="utf-8").startswith(CELL)
    ]


def write_missing() -> None:
    """Notebooks without output, where there are none with output, and none where the script is gone."""
    FOLDER.mkdir(exist_ok=True)
    there = {script.stem for script in scripts()}
    for made in FOLDER.glob("*.ipynb"):
        if made.stem not in there:
            made.unlink()
    for script in scripts():
        if not (made := FOLDER / f"{script.stem}.ipynb").exists():
            jupytext.write(jupytext.read(script), made)


def execute(script: Path) -> Path:
    """Runs a notebook; the file it is written to, output included."""
    from nbclient import NotebookClient  # noqa: PLC0415 - building pages needs no kernel
    from traitlets.config import Config  # noqa: PLC0415 - likewise

    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(
        notebook,
        kernel_name="python3",
        config=Config(KernelManager={"transport": "ipc"}),  # no port that others could reach
        timeout=PATIENCE_S,
        resources={"metadata": {"path": str(CHECKOUT)}},
    ).execute()
    made = FOLDER / f"{script.stem}.ipynb"
    jupytext.write(notebook, made)
    return made


def main() -> None:
    """Runs every notebook."""
    FOLDER.mkdir(exist_ok=True)
    for script in scripts():
        begun = time.monotonic()
        made = execute(script)
        sys.stdout.write(f"{made.relative_to(CHECKOUT)}: {time.monotonic() - begun:.1f} s\n")


if __name__ == "__main__":
    main()
