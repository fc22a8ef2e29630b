"""The examples in docstrings are right."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


def _modules() -> list[str]:
    """Modules that show an example, by name."""
    homes = (("traceview", "traceview"), ("parsers", "traceview.parsers"), ("reports", "traceview.reports"))
    files = [
        (path.relative_to(CHECKOUT / home), name, path)
        for home, name in homes
        for path in sorted((CHECKOUT / home).rglob("*.py"))
    ]
    return sorted(
        {
            ".".join((name, *place.with_suffix("").parts)).removesuffix(".__init__")
            for place, name, path in files
            if not {"parsers", "reports"} & set(place.parts) and ">>>" in path.read_text(encoding="utf-8")
        }
    )


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings_are_right(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


def test_there_are_examples() -> None:
    assert "traceview.balance" in _modules()
