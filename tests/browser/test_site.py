"""The documentation site: built without a warning, and asking nobody for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from playwright.sync_api import Page

    from .conftest import Visit

CHECKOUT = Path(__file__).resolve().parents[2]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc\s*=\s*["']?\s*(?:https?:)?//"""
    r"""|<link\b(?![^>]*\brel\s*=\s*["']?canonical)[^>]*\bhref\s*=\s*["']?\s*(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?\s*(?:https?:)?//|url\(\s*["']?\s*(?:https?:)?//""",
    re.IGNORECASE,
)
"""What a browser would fetch from elsewhere; links that people may follow are not among it."""

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("sphinx", "myst_nb", "furo", "jupytext"))), reason="needs the extra 'docs'"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    how = ("--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "-d", str(made / ".trees"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *how, str(CHECKOUT / "docs"), str(made / "html")],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return made / "html"


def test_every_page_is_built(site: Path) -> None:
    pages = {
        path.relative_to(CHECKOUT / "docs").with_suffix(".html")
        for path in (CHECKOUT / "docs").rglob("*")
        if path.suffix in {".md", ".ipynb"}
    }
    assert [page for page in sorted(pages) if not (site / page).is_file()] == []
    assert {Path("questions/step.html"), Path("notebooks/first_look.html")} <= pages


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    files = [
        path for path in site.rglob("*") if path.suffix in {".html", ".css"} and path.name != "report.html"
    ]
    found = {
        str(path.relative_to(site)): match[0]
        for path in files
        if (match := FETCHED.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        '<script async src="https://cdn.example/x.js"></script>',
        "<img alt='' src=//example.org/a.png>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "@import url(https://example.org/a.css)",
        ".x { background: url('http://example.org/a.png') }",
    ],
)
def test_the_search_finds_what_would_be_fetched(line: str) -> None:
    assert FETCHED.search(line)
    assert not FETCHED.search('<a href="https://example.org">elsewhere</a>')


@pytest.mark.parametrize("page", ["index", "questions/alltoall", "metrics", "notebooks/first_look", "schema"])
def test_a_browser_asks_nobody_and_has_no_complaint(
    page: str,
    site: Path,
    visit: Callable[..., AbstractContextManager[Visit]],
    keep: Callable[[Page, str], None],
) -> None:
    with visit(site / f"{page}.html") as seen:
        keep(seen.page, f"site-{page.replace('/', '-')}")
        title = seen.page.locator("h1").first.inner_text()
    assert title
    assert [url for url in seen.requests if not url.startswith(site.as_uri())] == []
    assert seen.complaints == []
