"""The wheel is what the checkout is: the mapping in pyproject.toml and the two links agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
LINKS = {"traceview/parsers": "../parsers", "traceview/reports": "../reports"}
BUILD_INPUTS = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")

pytestmark = pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="needs a git checkout")


def _git(*arguments: str) -> list[str]:
    command = [shutil.which("git") or "git", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def _source_files() -> set[str]:
    """Files of the three package folders, new ones included, deleted ones and links not."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "traceview", "parsers", "reports")
    return {name for name in listed if name not in LINKS and (CHECKOUT / name).exists()}


def _has_build_backend() -> bool:
    try:
        return int(version("setuptools").split(".")[0]) >= 77
    except PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the listed files alone, so that nothing left over from an earlier build can help."""
    home = tmp_path_factory.mktemp("wheel")
    tree = home / "tree"
    for name in (*_source_files(), *BUILD_INPUTS):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, tree / name)
    for link, target in LINKS.items():
        (tree / link).symlink_to(target)
    command = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-deps", "-w", str(home), "--quiet"]
    # the build backend that is installed, if it is new enough, so that the test runs offline
    isolation = ["--no-build-isolation"] if _has_build_backend() else []
    subprocess.run([*command, *isolation, "--disable-pip-version-check"], check=True)
    (built,) = home.glob("*.whl")
    return built


def test_the_wheel_holds_exactly_the_files_of_the_three_folders(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name if name.startswith("traceview/") else f"traceview/{name}" for name in _source_files()}
    assert shipped == expected


def test_the_wheel_carries_the_licence_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {
            name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name
        }
        scripts = archive.read(info["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in info
    assert "traceview = traceview.cli:main" in scripts


def test_an_installed_wheel_finds_the_same_parsers_and_analyses(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "from traceview import registry\n"
        "print(registry.__file__, [p.name for p in registry.parsers()], sorted(registry.analyses()))"
    )

    def listed(home: Path) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(home)}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        file, _, names = done.stdout.partition(" ")
        assert Path(file).is_relative_to(home)
        return names.split()

    assert listed(tmp_path) == listed(CHECKOUT)


@pytest.mark.parametrize("link", LINKS)
def test_the_folder_inside_the_package_is_committed_as_a_link(link: str) -> None:
    (entry,) = _git("ls-files", "--stage", link)
    mode, _, _, path = entry.split()
    assert (mode, path) == ("120000", link)
    assert (CHECKOUT / link).readlink() == Path(LINKS[link])


@pytest.mark.parametrize("folder", ["parsers", "reports"])
def test_the_folder_at_the_root_refuses_to_be_imported_as_a_package_of_its_own(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], cwd=CHECKOUT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"ImportError: import traceview.{folder}, not {folder}" in done.stderr
