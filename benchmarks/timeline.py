"""How fast the timeline viewer redraws, however many bars there are: in a real Chromium, without a GPU.

    python benchmarks/timeline.py [BARS]

Needs playwright and Debian's chromium. A million bars on 64 rows, all of them and ever less; the page itself
times each redraw.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from traceview.reports import html, lanes, timeline

LANES, SEED = 64, 7
ARGUMENTS = [
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
VIEWS = {
    "everything": (0.0, 1.0),
    "a tenth": (0.45, 0.55),
    "a hundredth": (0.5, 0.51),
    "a thousandth": (0.5, 0.501),
}


def made(bars: int) -> timeline.Timeline:
    """Rows of bars of log-normal length, back to back with gaps, as streams of a busy device are."""
    draw = np.random.default_rng(SEED)
    rows = []
    for lane in range(LANES):
        count = bars // LANES
        length = draw.lognormal(9.5, 1.0, count).astype(np.int64) + 1
        gap = draw.exponential(3_000, count).astype(np.int64)
        start = np.cumsum(length + gap) - length
        group = draw.integers(0, 8, count).astype(np.uint8)
        frame = pl.DataFrame(
            {
                "ts_ns": start,
                "dur_ns": length,
                "name": pl.Series([f"kernel_{number}" for number in range(40)]).gather(
                    draw.integers(0, 40, count)
                ),
                "context": pl.Series([f"layer {number}" for number in range(61)]).gather(
                    draw.integers(0, 61, count)
                ),
                "group": group,
            }
        )
        rows.append(lanes.Lane(lane // 4, f"stream {lane % 4}", "stream", frame))
    end = max(int((lane.bars["ts_ns"] + lane.bars["dur_ns"]).max()) for lane in rows)  # type: ignore[arg-type]
    return timeline.Timeline(tuple(rows), 0, end)


def main() -> None:
    """Prints a line per view."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - optional

    bars = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    shown = made(bars)
    began = time.process_time()
    page = html.timeline_page(shown, title="benchmark", caption="", method="")
    cost = time.process_time() - began
    print(f"{shown.bar_count:,} bars: page {len(page) / 1e6:.1f} MB, made in {cost:.1f} CPU s")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "timeline.html"
        path.write_text(page, encoding="utf-8")
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=False, args=ARGUMENTS
        )
        view = browser.new_page(viewport={"width": 1400, "height": 900})
        began = time.perf_counter()
        view.goto(path.as_uri())
        view.wait_for_function("document.documentElement.dataset.ready !== undefined", timeout=120_000)
        print(f"ready after {time.perf_counter() - began:.1f} s")
        for name, (start, end) in VIEWS.items():
            times = view.evaluate(REDRAWS, [start, end])
            print(f"{name:>14}: redraw median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms")
        browser.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak RSS of Python {peak:,.0f} MB")


REDRAWS = """([start, end]) => {
  const viewer = window.traceviewLast, host = document.getElementById("timeline");
  const span = JSON.parse(document.getElementById("timeline-item").textContent).span;
  const times = [];
  for (let i = 0; i < 15; i++) {
    viewer.show(span * start + i, span * end + i);
    viewer.draw();
    times.push(Number(host.dataset.redraw));
  }
  return times;
}"""

if __name__ == "__main__":
    main()
