"""Makes the pictures of the README anew: ``python docs/screenshots.py`` (needs a Chromium on the path).

The sample's report with its head and its breakdown, what lies between them folded away; and its timeline.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from traceview.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
SAMPLE, IMAGES = ROOT / "sample_traces" / "ep8-straggler", ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHTS = 1200, {"report": 1150, "timeline": 820}
DRAWN_MS = 2_500
FOLD = "document.querySelectorAll('#findings, #throughput').forEach(part => { part.hidden = true; })"


def make() -> list[Path]:
    """The pictures it wrote."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, chromium_sandbox=False, args=["--disable-gpu"])
        return [_picture(browser.new_page(), name, Path(folder)) for name in HEIGHTS]


def _picture(page: Page, name: str, folder: Path) -> Path:
    """The top of the page that ``traceview <name>`` writes."""
    file, image = folder / f"{name}.html", IMAGES / f"{name}.png"
    main([name, str(SAMPLE), "-o", str(file)], standalone_mode=False)
    page.set_viewport_size({"width": WIDTH, "height": HEIGHTS[name]})
    page.goto(file.as_uri())
    page.evaluate(FOLD)
    page.wait_for_timeout(DRAWN_MS)
    page.screenshot(path=image)
    return image


if __name__ == "__main__":
    make()
