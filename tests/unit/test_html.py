"""The page as text: escaping, bounds, the policy, and the same bytes for the same run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html as stdlib_html
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import api, registry
from traceview.cli import main
from traceview.reports import html, markup
from traceview.reports.figures import _theme
from traceview.reports.layout import Facts, Grid, Note, Verdict
from traceview.reports.section import Figure, Section, SectionData, View
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traceview.reports.report import Report

HOSTILE = "</script><img src=x onerror=alert(1)>"
FIGURE_LIMIT, PAGE_LIMIT = 400_000, 4_000_000


class _Elements(HTMLParser):
    """Tags with attributes, and what lies in each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._attributes: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._attributes = dict(attrs) if tag == "script" else None
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._attributes is not None:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._attributes = None


def _elements(page: str) -> _Elements:
    found = _Elements()
    found.feed(page)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("job")
    write(Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=2), home)
    return home


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return api.compose(tv.load(folder))


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report.html()


def _with(report: Report, data: SectionData) -> Report:
    from dataclasses import replace  # noqa: PLC0415 - one test's need

    return replace(report, sections=((Section("one", "One", 1, (), lambda _: data), data),))


def test_every_block_is_escaped_bounded_and_without_marks_that_reorder(report: Report) -> None:
    long, turned = HOSTILE + "A" * 10_000, "evil\u202etxt\u2066\u2028"
    blocks = (
        Verdict(HOSTILE),
        Facts(((HOSTILE, long),), HOSTILE),
        Grid(HOSTILE, (HOSTILE, turned), ((long, turned),)),
        Note(HOSTILE, "warning"),
    )
    page = _with(report, SectionData(blocks, (), HOSTILE)).html()
    tags = [tag for tag, _ in _elements(page).tags]
    assert "img" not in tags
    assert stdlib_html.escape(HOSTILE) in page
    assert "A" * 1_000 not in page
    assert not set(page) & set("\u202e\u2066\u2028")


def test_a_figure_named_by_a_stranger_stays_text_in_markup_and_data(report: Report) -> None:
    import holoviews as hv  # noqa: PLC0415 - one test's need

    def drawn() -> Any:
        return _theme.styled(hv.Curve([(0, 1), (1, 2)]).opts(xlabel=HOSTILE))

    data = pl.DataFrame({HOSTILE: [HOSTILE], "ms": [1.0]})
    figure = Figure("f", HOSTILE, HOSTILE, data, (View(HOSTILE, drawn),), ((HOSTILE, "#000"),), HOSTILE)
    elements = _elements(_with(report, SectionData(figures=(figure,))).html())
    assert "img" not in [tag for tag, _ in elements.tags]
    (item,) = [text for attributes, text in elements.scripts if attributes.get("id") == "f-0-item"]
    assert "<" not in item
    assert HOSTILE in json.dumps(json.loads(item))


def test_the_policy_names_every_script_that_may_run_and_nothing_else(page: str) -> None:
    elements = _elements(page)
    (policy,) = [a["content"] for tag, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    running = [text for attributes, text in elements.scripts if "type" not in attributes]
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in running
    }
    scripts = re.search(r"script-src ([^;]*)", policy)
    assert scripts is not None
    assert set(scripts[1].split()) == hashes
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert all(
        not {"src", "onclick", "onload", "onerror"} & set(attributes) for _, attributes in elements.tags
    )


def test_nothing_on_the_page_points_outside(page: str) -> None:
    links = [a[name] or "" for _, a in _elements(page).tags for name in ("href", "src") if name in a]
    assert links
    assert [link for link in links if not link.startswith(("#", "data:"))] == []


def test_ids_are_unique_and_every_anchor_leads_somewhere(page: str) -> None:
    elements = _elements(page)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {
        (a["href"] or "")[1:] for tag, a in elements.tags if tag == "a" and (a["href"] or "").startswith("#")
    }
    assert anchors <= set(ids)


def test_the_same_run_gives_the_same_bytes(folder: Path, page: str) -> None:
    assert api.compose(tv.load(folder)).html() == page
    compact = api.compose(tv.load(folder)).html(compact=True)
    assert compact == api.compose(tv.load(folder)).html(compact=True)


def test_a_compact_page_packs_the_same_data(report: Report, page: str) -> None:
    def data(text: str) -> dict[str, str]:
        found = {}
        for attributes, content in _elements(text).scripts:
            if attributes.get("type") == "application/json":
                packed = "data-packed" in attributes
                found[str(attributes["id"])] = (
                    gzip.decompress(base64.b64decode(content)).decode() if packed else content
                )
        return found

    plain, packed = data(page), data(report.html(compact=True))
    assert plain.keys() == packed.keys()
    assert all(json.loads(plain[name]) == json.loads(packed[name]) for name in plain)


def test_the_numbers_are_those_of_json_by_column(report: Report, page: str) -> None:
    (text,) = [
        content for attributes, content in _elements(page).scripts if attributes.get("id") == "numbers"
    ]
    numbers, document = json.loads(text), json.loads(report.json())
    assert numbers["schema"] == document["schema"] == "traceview/report/1"
    for name, columns in numbers["tables"].items():
        rows = document[name]
        for column, values in columns.items():
            assert values == [row[column] for row in rows][: len(values)]
        if name not in numbers["rows_before_cut"]:
            assert all(len(values) == len(rows) for values in columns.values())


def test_ids_of_bokeh_are_renamed_and_names_that_look_like_them_are_not() -> None:
    document = {"root_id": "p1005", "a": [{"id": "p1005"}, {"id": "p1002"}], "names": ["p1005", "p1002"]}
    assert html.renumbered(document) == {
        "root_id": "b0",
        "a": [{"id": "b0"}, {"id": "b1"}],
        "names": ["p1005", "p1002"],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("2.03 ms/step", "2.03\u00a0ms/step"),
        ("4 MBytes", "4 MBytes"),
        ("x" * 121, "x" * 119 + "…"),
        ("a\u200bb", "a\ufffdb"),
    ],
)
def test_text_is_printable_short_and_keeps_numbers_with_their_units(text: str, expected: str) -> None:
    assert markup.shown(text) == expected


# --- how figures look --------------------------------------------------------------------------------


def test_labels_are_never_tex_and_never_long() -> None:
    assert _theme.label("$$x$$") == "$ $x$ $"
    assert _theme.label("\\(x\\[") == "\\ (x\\ ["
    assert len(_theme.label("y" * 1_000)) == _theme.LETTERS


def test_frames_reach_figures_as_float32_and_text_with_nan_for_null() -> None:
    frame = pl.DataFrame({"a": [1, None], "b": ["x", None], "c": [0.5, 2.0]})
    found = _theme.arrays(frame)
    assert found["a"].dtype == found["c"].dtype == np.float32
    assert np.array_equal(found["a"], [1, np.nan], equal_nan=True)
    assert found["b"].tolist() == ["x", "None"]


def test_a_grid_of_very_many_ranks_shows_the_largest_of_neighbours() -> None:
    ranks = 40_000
    frame = pl.DataFrame(
        {"rank": range(ranks), "step": [3] * ranks, "ms": [float(rank) for rank in range(ranks)]}
    )
    laid = _theme.grid(frame, "rank", "step", "ms")
    assert laid.size == _theme.merged_columns(ranks, 1) == 4
    assert laid.values.shape == (1, ranks // 4)
    assert laid.values[0, :2].tolist() == [3.0, 7.0]
    assert _theme.merging(ranks, 1) == " Of 4 neighbouring ranks the largest value is drawn."
    assert _theme.merging(8, 61) == ""


def test_a_grid_leaves_what_has_no_row_blank_and_keeps_columns_that_are_asked_for() -> None:
    frame = pl.DataFrame({"rank": [2, 0], "step": [7, 5], "ms": [1.5, 2.5]})
    laid = _theme.grid(frame, "rank", "step", "ms", columns=(0, 1, 2))
    assert (laid.columns, laid.rows) == ([0, 1, 2], [5, 7])
    nan = np.nan
    assert np.array_equal(
        laid.values, np.array([[2.5, nan, nan], [nan, nan, 1.5]], np.float32), equal_nan=True
    )


def test_every_grain_with_a_picture_draws_what_result_plot_returns(folder: Path) -> None:
    run = tv.load(folder)
    for name in registry.analyses():
        for by in registry.figures(name):
            result = tv.analyze(run, name, by=by)
            assert type(result.plot()) is type(registry.figures(name)[by](result.frame))
    with pytest.raises(tv.TraceViewError, match="no picture of 'breakdown' by step; grains with one: rank"):
        tv.breakdown(run, by=("step",)).plot()


# --- 1,024 ranks -------------------------------------------------------------------------------------

_WIDE = {"rank": 1024, "peer": 1024, "victim": 1024, "layer": 61, "step": 4, "node": 128, "peer_node": 128}
_WORDS = {"role": ("dispatch", "combine"), "phase": ("forward", "backward"), "axis": ("ep", "dp")}


def _wide(name: str, by: tuple[str, ...]) -> pl.DataFrame:
    """A made-up answer with as many rows as 1,024 ranks of a 61-layer model give."""
    analysis = registry.analyses()[name]
    columns = [
        column for grain in by for column in analysis.grains[grain] if column in _WIDE or column in _WORDS
    ]
    if set(columns) >= {"rank", "peer"} or set(columns) >= {"rank", "victim"}:
        other = "peer" if "peer" in columns else "victim"
        keys = pl.DataFrame({"rank": np.repeat(np.arange(1024), 64), other: np.tile(np.arange(64), 1024)})
    else:
        keys = pl.DataFrame({"all": [0]})
        for column in columns:
            values = list(_WORDS[column]) if column in _WORDS else list(range(_WIDE[column]))
            keys = keys.join(pl.DataFrame({column: values}), how="cross")
    random = np.random.default_rng(0)
    made = {}
    for column, about in analysis.result.columns.items():
        if column in keys.columns:
            made[column] = keys[column]
        elif about.dtype.is_integer() and column not in {"step", "layer", "rank", "device"}:
            made[column] = pl.Series(random.integers(1_000, 90_000_000, len(keys)))
        elif about.dtype.is_float():
            made[column] = pl.Series(random.random(len(keys)) + 0.5)
        elif not about.nullable or (isinstance(about.dtype, pl.Enum) and column in by):
            word = about.dtype.categories[0] if isinstance(about.dtype, pl.Enum) else "some"
            made[column] = pl.Series([word] * len(keys))
    return analysis.result.frame(pl.DataFrame(made))


@pytest.mark.parametrize("section", registry.sections(), ids=lambda section: section.name)
def test_figures_of_1024_ranks_stay_small(section: Section, report: Report) -> None:
    from dataclasses import replace  # noqa: PLC0415 - one test's need

    frames = {question: _wide(*question) for question in section.questions}
    about = replace(report.answers.about, ranks=tuple(range(1024)))
    data = section.build(replace(report.answers, about=about, frames=frames))
    only = replace(report, sections=((section, data),))
    items = dict(html._items(only))
    for figure in data.figures:
        size = sum(len(text) for name, text in items.items() if name.rpartition("-")[0] == figure.id)
        assert size <= FIGURE_LIMIT, f"{figure.id}: {size}"
    everything = len(only.html()) - len(html._bokeh())
    assert everything <= (PAGE_LIMIT - 1_500_000) // 4


# --- the command -------------------------------------------------------------------------------------


@pytest.fixture
def invoke() -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_the_command_writes_the_page_and_says_so_on_stderr_alone(
    invoke: Callable[..., Any], folder: Path, tmp_path: Path, page: str
) -> None:
    target, numbers = tmp_path / "r.html", tmp_path / "n.json"
    result = invoke(folder, "-o", target, "--json", numbers)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert re.search(r"wrote .*r\.html \([\d.]+ MB\)\nwrote .*n\.json", result.stderr)
    assert target.read_text(encoding="utf-8") == page
    assert json.loads(numbers.read_text())["runs"][0]["ranks"] == [0, 1]


def test_a_baseline_shows_on_the_cards_what_changed(
    invoke: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "r.html"
    result = invoke(folder, "-o", target, "--baseline", folder, "--title", "tonight")
    assert result.exit_code == 0, result.output
    written = target.read_text(encoding="utf-8")
    assert "<title>tonight · traceview</title>" in written
    assert "■ +0.0" in written
    assert "Changes are against" in written


def test_several_runs_are_refused_and_nothing_is_written(
    invoke: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in folder.glob("rank*"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    target = tmp_path / "r.html"
    result = invoke(tmp_path / "a", tmp_path / "b", "-o", target)
    assert result.exit_code == 2
    assert "several runs lie there, and they are never mixed" in result.stderr
    assert not target.exists()
