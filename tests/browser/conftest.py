"""A real Chromium that knows no network, and what a page may be asked in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from playwright.sync_api import Browser, Dialog, Page

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60
COLOURS = """cs => Math.max(0, ...cs.map(c => {
  const x = c.getContext('2d');
  if (!x || !c.width || !c.height) return 0;
  return new Set(new Uint32Array(x.getImageData(0, 0, c.width, c.height).data.buffer)).size;
}))"""


@dataclass
class Visit:
    """A page, and what it did that a report must not do."""

    page: Page
    file: Path
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def outside(self) -> list[str]:
        """Requests beyond the file itself."""
        own = self.file.as_uri()
        return [url for url in self.requests if not url.startswith(("data:", "blob:", own))]

    def dismiss(self, dialog: Dialog) -> None:
        """Notes a dialog and closes it: a page that waits for an answer would hang."""
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def until(self, condition: str) -> None:
        """Waits until a JavaScript expression holds; polled from outside, for the page forbids eval."""
        end = time.monotonic() + PATIENCE_S
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"still not: {condition}"
            self.page.wait_for_timeout(50)

    def ready(self) -> None:
        """Waits until the page's own script has run."""
        self.until("'ready' in document.documentElement.dataset")

    def colours(self, view: str) -> int:
        """Distinct colours of what is drawn in ``view``, waiting until there are some."""
        place = self.page.locator(f"#{view}")
        place.scroll_into_view_if_needed()
        canvases = place.locator("canvas")
        canvases.first.wait_for(state="attached")
        end, found = time.monotonic() + PATIENCE_S, 0
        while found <= 5 and time.monotonic() < end:
            self.page.wait_for_timeout(50)
            found = int(canvases.evaluate_all(COLOURS))
        return found


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        assert not os.environ.get("CI"), "CI needs a Chromium: apt-get install chromium"
        pytest.skip("no chromium on the path: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, chromium_sandbox=False, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visit(chrome: Browser) -> Callable[..., AbstractContextManager[Visit]]:
    """``with visit(file, width=400, color_scheme="dark") as seen:``."""

    @contextmanager
    def opened(file: Path, *, width: int = 1200, **options: object) -> Iterator[Visit]:
        context = chrome.new_context(offline=True, viewport={"width": width, "height": 900}, **options)  # type: ignore[arg-type]
        page = context.new_page()
        seen = Visit(page, file)
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("dialog", seen.dismiss)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(file.as_uri())
        yield seen
        context.close()

    return opened


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which finds what keeps people out; fetched by npm, as no Python package has it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on the path, so axe-core cannot be fetched")
    folder = tmp_path_factory.mktemp("axe")
    fetching = [npm, "pack", "--silent", "axe-core@4"]
    try:
        subprocess.run(fetching, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"axe-core could not be fetched: {error}")
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture(scope="session")
def keep() -> Callable[[Page, str], None]:
    """Keeps a screenshot where TRACEVIEW_SCREENSHOTS names a folder."""

    def kept(page: Page, name: str) -> None:
        if folder := os.environ.get("TRACEVIEW_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    return kept
