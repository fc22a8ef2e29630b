"""The report as a browser shows it: complete, silent, inert, on every screen and on paper."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import traceview as tv
from traceview import api
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from playwright.sync_api import Page

    from traceview.reports.report import Report

    Visiting = Callable[..., AbstractContextManager[Any]]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "ep8-straggler"
LIMIT = 2_500_000
HOSTILE = "</script><img src=x onerror=alert(1)>"
NAMES = (
    HOSTILE,
    f"{HOSTILE}{'A' * 10_000}",
    "evil\u202etxt.exe\u2066",
    "$$\\href{x}{y}$$",
    "a\u2028b<!--<script>",
)


@pytest.fixture(scope="module")
def composed() -> Report:
    return api.compose(tv.load(SAMPLE))


@pytest.fixture(scope="module")
def sample(composed: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("sample") / "report.html"
    page.write_text(composed.html(), encoding="utf-8")
    return page


def _kineto(kernels: list[tuple[str, int, int, int]], *, group: str) -> dict[str, Any]:
    """One rank with two steps of ``kernels``: name, stream, start and length in µs."""
    events: list[dict[str, Any]] = []
    number = 0
    for step in (1, 2):
        at = 10_000 * step
        shared = {"ph": "X", "pid": 1, "tid": 1}
        events.append(
            shared | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 9_000}
        )
        for name, stream, start, length in kernels:
            number += 1
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + start, "dur": 1}
            kernel = {"cat": "kernel", "name": name, "ts": at + start + 5, "dur": length, "tid": stream}
            place = {"device": 0, "stream": stream, "correlation": number}
            events += [
                shared | launch | {"args": {"correlation": number}},
                shared | kernel | {"pid": 0, "args": place | {"Process Group Description": group}},
            ]
    about = {"rank": 0, "world_size": 1, "backend": "nccl"}
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": events}


def _written(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    with gzip.open(folder / "rank0.pt.trace.json.gz", "wt", encoding="utf-8") as file:
        json.dump(content, file)
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose folder, kernels and groups are named to break out of the page."""
    kernels = [(name, 7, 100 * place, 80) for place, name in enumerate(NAMES)]
    kernels += [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 9, 700, 900),
        ("gemm_bf16", 7, 1_000, 300),
    ]
    home = tmp_path_factory.mktemp("hostile")
    folder = _written(
        home / "<img src=x onerror=alert(2)>", _kineto(kernels, group='"><script>alert(3)</script>')
    )
    return tv.report(tv.load(folder), home / "report.html", title=f"{HOSTILE} ${{alert(4)}} {{{{ 7 * 7 }}}}")


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank that never communicates."""
    home = tmp_path_factory.mktemp("silent")
    folder = _written(home / "alone", _kineto([("sm90_xmma_gemm_bf16", 7, 100, 500)], group="none"))
    return tv.report(tv.load(folder), home / "report.html")


def _everything_is_drawn(seen: Any) -> int:
    """Looks at every view of every figure; how many there are."""
    seen.ready()
    views = seen.page.eval_on_selector_all(
        ".view", "vs => vs.map(v => [v.id, v.closest('figure').id, [...v.parentNode.children].indexOf(v)])"
    )
    for view, figure, place in views:
        if seen.page.locator(f"select[data-figure={figure}]").count():
            seen.page.select_option(f"select[data-figure={figure}]", str(place))
        assert seen.colours(view) > 5, f"{view} is blank"
    return len(views)


def _is_silent(seen: Any) -> None:
    assert seen.complaints == []
    assert seen.outside == []


def test_a_page_that_errs_and_asks_a_server_is_caught(visit: Visiting, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<script src='https://example.org/x.js'></script><script>throw new Error('oh')</script>")
    with visit(bad) as seen:
        assert seen.outside == ["https://example.org/x.js"]
        assert any("oh" in text for text in seen.complaints)


def test_the_sample_is_complete_silent_and_small(
    visit: Visiting, keep: Callable[[Page, str], None], sample: Path
) -> None:
    assert sample.stat().st_size <= LIMIT
    with visit(sample) as seen:
        started = time.monotonic()
        seen.ready()
        assert time.monotonic() - started < 15  # 3 s on an idle machine
        assert _everything_is_drawn(seen) >= 18
        assert seen.page.locator("h1").count() == 1
        assert seen.page.locator(".card").count() == 7
        assert "MFU" in seen.page.locator("a.card[href='#throughput']").inner_text()
        for figure in ("idle-ranks", "kernels-families", "kernels-moe"):
            assert seen.page.locator(f"#{figure}").is_visible()
        full = seen.page.locator("#kernels td[title*='cutlass::device_kernel']").first
        assert len(full.get_attribute("title") or "") > len(full.inner_text())
        assert "Rank 5 makes others wait" in seen.page.locator("#stragglers").inner_text()
        keep(seen.page, "sample")
        _is_silent(seen)


def test_every_figure_has_a_name_a_caption_a_table_and_a_csv(visit: Visiting, sample: Path) -> None:
    with visit(sample) as seen:
        figures = seen.page.locator("figure")
        for place in range(figures.count()):
            figure = figures.nth(place)
            plot = figure.locator(".plot")
            for reference in ("aria-labelledby", "aria-describedby"):
                assert figure.locator(f"#{plot.get_attribute(reference)}").inner_text().strip()
            assert figure.locator("details table tbody tr").count() > 0
            link = figure.locator("a[download]").get_attribute("href")
            assert link is not None
            assert link.startswith("data:text/csv")


def test_hostile_names_are_text_and_nothing_else(
    visit: Visiting, keep: Callable[[Page, str], None], hostile: Path
) -> None:
    with visit(hostile) as seen:
        assert _everything_is_drawn(seen) > 0
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("h1").inner_text().startswith(HOSTILE)
        assert "{{ 7 * 7 }}" in seen.page.locator("h1").inner_text()
        assert HOSTILE in seen.page.locator("#quality").inner_text()
        whole = seen.page.evaluate("document.documentElement.outerHTML")
        assert not set(whole) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
        assert "A" * 1_000 not in seen.page.locator("body").inner_text()
        keep(seen.page, "hostile")
        _is_silent(seen)


def test_a_script_that_got_in_anyhow_would_not_run(visit: Visiting, sample: Path, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.html"
    page = sample.read_text(encoding="utf-8")
    spoiled.write_text(
        page.replace("</main>", "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'></main>")
    )
    with visit(spoiled) as seen:
        seen.ready()
        assert seen.page.evaluate("window.ran") is None


def test_a_job_that_never_communicates_says_what_is_not_shown_and_why(
    visit: Visiting, keep: Callable[[Page, str], None], silent: Path
) -> None:
    with visit(silent) as seen:
        _everything_is_drawn(seen)
        for section in ("overlap", "alltoall", "stragglers", "traffic", "pipeline"):
            assert "Not shown:" in seen.page.locator(f"#{section}").inner_text()
        keep(seen.page, "silent")
        _is_silent(seen)


def test_without_scripts_the_numbers_are_all_there(visit: Visiting, sample: Path) -> None:
    with visit(sample, java_script_enabled=False) as seen:
        assert "figures are not drawn" in seen.page.locator("main").inner_text()
        assert seen.page.locator(".verdict").inner_text()
        assert "ep dispatch" in seen.page.locator("#ledger").inner_text()
        seen.page.locator("figure details summary").first.click()
        assert seen.page.locator("figure details table").first.is_visible()


@pytest.mark.parametrize("width", [320, 400])
def test_a_narrow_screen_does_not_scroll_sideways(
    visit: Visiting, keep: Callable[[Page, str], None], sample: Path, width: int
) -> None:
    with visit(sample, width=width) as seen:
        _everything_is_drawn(seen)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        keep(seen.page, f"sample-{width}")


def _lightness(seen: Any, selector: str, style: str) -> float:
    colour = seen.page.eval_on_selector(selector, f"e => getComputedStyle(e).{style}")
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3


def test_dark_follows_the_system_and_the_button(
    visit: Visiting, keep: Callable[[Page, str], None], sample: Path
) -> None:
    with visit(sample, color_scheme="dark") as seen:
        seen.ready()
        assert _lightness(seen, "html", "backgroundColor") < 60
        assert _lightness(seen, "h1", "color") > 200
        _everything_is_drawn(seen)
        keep(seen.page, "sample-dark")
        seen.page.click("#theme")
        assert _lightness(seen, "html", "backgroundColor") > 200
        seen.page.click("#theme")
        assert _lightness(seen, "html", "backgroundColor") < 60


def test_on_paper_every_figure_is_drawn(visit: Visiting, sample: Path) -> None:
    with visit(sample) as seen:
        seen.ready()
        seen.until("[...document.querySelectorAll('.view:not([hidden])')].every(v => v.childElementCount)")
        printed = seen.page.pdf(print_background=True)
        assert printed.startswith(b"%PDF")
        assert (
            4
            <= printed.count(b"/Type /Page\n")
            + printed.count(b"/Type /Page ")
            + printed.count(b"/Type /Page/")
            <= 40
        )


def test_a_click_on_a_head_sorts_the_table(visit: Visiting, sample: Path) -> None:
    with visit(sample) as seen:
        seen.ready()
        head = seen.page.locator("#quality th", has_text="time ms").first
        head.click()

        def times() -> list[float]:
            cells = seen.page.eval_on_selector_all(
                "#quality table >> nth=0 >> tbody tr", "rows => rows.map(r => r.cells[3].textContent)"
            )
            return [float(cell.replace(",", "")) for cell in cells]

        falling = times()
        assert falling == sorted(falling, reverse=True)
        head.press("Enter")
        assert times() == falling[::-1]


def test_a_compact_page_is_smaller_and_shows_the_same(
    visit: Visiting, composed: Report, sample: Path, tmp_path: Path
) -> None:
    compact = tmp_path / "compact.html"
    compact.write_text(composed.html(compact=True), encoding="utf-8")
    assert compact.stat().st_size < 0.6 * sample.stat().st_size
    with visit(compact) as seen:
        assert _everything_is_drawn(seen) >= 15
        _is_silent(seen)


PUBLIC = {
    "nanogpt": "pytorch/KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks",
    "deepseek": "pytorch/deepseek-ai-profile-data/train.json.gz",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_trace_gives_a_complete_silent_page(
    visit: Visiting, keep: Callable[[Page, str], None], traces: Path, tmp_path: Path, name: str
) -> None:
    page = tv.report(tv.load(traces / PUBLIC[name]), tmp_path / "report.html")
    assert page.stat().st_size <= LIMIT
    with visit(page) as seen:
        assert _everything_is_drawn(seen) > 0
        keep(seen.page, name)
        _is_silent(seen)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How a job scales over three sizes."""
    runs = [tv.load(SAMPLE.parent / "scaling" / size) for size in ("256", "512", "1024")]
    return tv.report(runs, tmp_path_factory.mktemp("grown") / "report.html")


@pytest.mark.parametrize("width", [1200, 400])
def test_a_page_of_several_sizes_is_complete_and_silent(
    visit: Visiting, keep: Callable[[Page, str], None], grown: Path, width: int
) -> None:
    with visit(grown, width=width) as seen:
        assert _everything_is_drawn(seen) == 5  # speed-up, retention, efficiency, losses of two sizes
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert "What a rank retains" in seen.page.locator("#speed").inner_text()
        keep(seen.page, f"scaling-{width}")
        _is_silent(seen)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample against another."""
    home = tmp_path_factory.mktemp("compared")
    now, before = (tv.load(SAMPLE.parent / name, ranks=range(2)) for name in ("ep8-straggler", "ep8-nccl"))
    return tv.report(now, home / "report.html", baseline=before)


def test_a_comparison_shows_what_changed_and_how_surely(
    visit: Visiting, keep: Callable[[Page, str], None], compared: Path
) -> None:
    assert compared.stat().st_size <= LIMIT
    with visit(compared) as seen:
        seen.ready()
        assert seen.colours("compare-ledger-0") > 5
        assert "±" in seen.page.locator(".card .change").inner_text()
        assert "noise ±" in seen.page.locator("#compare").inner_text()
        keep(seen.page, "compare")
        _is_silent(seen)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with counters of the device."""
    home = tmp_path_factory.mktemp("counted")
    small = replace(PRESETS["ep8-gpu-metrics"], ranks=2, expert_parallel=2, steps=4)
    write(small, home / "job", trace_format="nsys-sqlite")
    return tv.report(tv.load(home / "job"), home / "report.html")


def test_counters_are_drawn_by_state_and_over_steps(
    visit: Visiting, keep: Callable[[Page, str], None], counted: Path
) -> None:
    with visit(counted) as seen:
        seen.ready()
        assert seen.colours("counters-states-0") > 5
        assert seen.colours("counters-steps-0-0") > 5
        keep(seen.page, "counters")
        _is_silent(seen)


@pytest.mark.parametrize(
    ("page", "scheme"), [("sample", "light"), ("grown", "dark"), ("compared", "dark"), ("hostile", "light")]
)
def test_axe_finds_nothing_serious(
    visit: Visiting, axe: str, request: pytest.FixtureRequest, page: str, scheme: str
) -> None:
    with visit(request.getfixturevalue(page), color_scheme=scheme) as seen:
        seen.ready()
        seen.page.evaluate(axe)
        found = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [one for one in found if one["impact"] in {"serious", "critical"}]
        places = [(one["id"], one["help"], [node["target"] for node in one["nodes"]][:3]) for one in serious]
        assert places == []
