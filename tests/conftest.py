"""What every test may ask for: the public traces, and one hypothesis profile per place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

CHECKOUT = Path(__file__).resolve().parents[1]

# a shared machine stalls at random, so no deadline; CI must fail for the change, not for the draw
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "traces" in getattr(item, "fixturenames", ()):
            item.add_marker("traces")


def _trace_folder() -> Path:
    named = os.environ.get("TRACEVIEW_TRACES")
    return Path(named) if named else CHECKOUT.parent / "shared" / "traces"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``public_file`` runs once per public PyTorch trace file, and is named after it."""
    if "public_file" in metafunc.fixturenames:
        root = _trace_folder() / "pytorch"
        files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.gz"))
        metafunc.parametrize("public_file", files)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public traces."""
    folder = _trace_folder()
    if not folder.is_dir():
        pytest.skip(f"no public traces at {folder}; set TRACEVIEW_TRACES to their folder")
    return folder
