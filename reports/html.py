"""A `Report` as one HTML file that asks nobody for anything.

The only module that knows Jinja and how Bokeh is embedded. Verdict, cards and tables are plain HTML; figures
come on top where scripts may run. The content security policy names each script by its hash, so nothing that
a trace says can run, even if it got past the escaping.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
from bokeh.embed import json_item
from bokeh.resources import Resources
from markupsafe import Markup

from traceview.reports import layout
from traceview.reports import timeline as timelines
from traceview.reports.markup import shown, tooltip
from traceview.reports.section import CSV_ROWS, TABLE_ROWS
from traceview.reports.timeline import Timeline
from traceview.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.reports.report import Report
    from traceview.reports.scaling_report import ScalingReport

TABLE_BYTES = 60_000
"""Size of a table embedded as JSON, about; ``--json`` writes all rows of all tables."""


def render(report: Report | ScalingReport, *, compact: bool = False) -> str:
    """The page.

    Args:
        report: What to show.
        compact: Pack scripts and data; half the size, for browsers of 2023 and newer.
    """
    items = dict(_items(report))
    library = _bokeh() if items else ""
    viewer, program = _asset("timeline.js"), _asset("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            version=VERSION,
            policy=_policy(viewer, program, library),
            style=_style(),
            viewer=Markup(viewer),  # noqa: S704 - our own file
            program=Markup(program),  # noqa: S704 - our own file
            library=_packed(library) if compact else Markup(library),  # noqa: S704 - Bokeh's own file
            compact=compact,
            items={name: _block(item, compact=compact) for name, item in items.items()},
            numbers=_block(_numbers(report), compact=compact),
            anchors=_anchors(report),
            table_rows=TABLE_ROWS,
            csv_rows=CSV_ROWS,
        )
    )


def timeline_page(timeline: Timeline, *, title: str, caption: str, method: str) -> str:
    """A page that shows one timeline and nothing else."""
    viewer, program = _asset("timeline.js"), _asset("page.js")
    shown_groups = timeline.groups()
    return (
        _environment()
        .get_template("timeline.html.j2")
        .render(
            title=title,
            caption=caption,
            method=method,
            legend=shown_groups,
            version=VERSION,
            policy=_policy(viewer, program),
            style=_style(),
            item=_block(timelines.text(timeline), compact=False),
            viewer=Markup(viewer),  # noqa: S704 - our own file
            program=Markup(program),  # noqa: S704 - our own file
        )
    )


def _style() -> Markup:
    return Markup(_asset("report.css") + _asset("timeline.css"))  # noqa: S704 - our own files


def _policy(*scripts: str) -> str:
    """Nothing but these scripts, and images made by them; Bokeh styles its shadow trees inline."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
        if script
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


# --- figures and numbers -----------------------------------------------------------------------------


def _items(report: Report | ScalingReport) -> Iterator[tuple[str, str]]:
    """For each view of each figure its name and, as JSON, its Bokeh document or timeline."""
    import holoviews as hv  # noqa: PLC0415 - heavy, and only pages with figures need it

    for _, data in report.sections:
        for figure in data.figures:
            for number, view in enumerate(figure.views):
                name = f"{figure.id}-{number}"
                drawn = view.draw()
                if isinstance(drawn, Timeline):
                    yield name, timelines.text(drawn)
                    continue
                plot = hv.renderer("bokeh").get_plot(drawn).state
                yield name, json.dumps(renumbered(json_item(plot)), separators=(",", ":"))


def renumbered(document: Any) -> Any:  # noqa: ANN401 - JSON
    """``document`` with Bokeh's object ids, which count up in a process, replaced by their place in it."""
    places: dict[str, str] = {}

    def name(old: str) -> str:
        return places.setdefault(old, f"b{len(places)}")

    def walk(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, list):
            return [walk(one) for one in value]
        if isinstance(value, dict):
            return {
                key: name(one) if key in {"id", "root_id"} and isinstance(one, str) else walk(one)
                for key, one in value.items()
            }
        return value

    return walk(document)


def _numbers(report: Report | ScalingReport) -> str:
    """What ``--json`` writes, but by column: names stand once, and long tables stop at `TABLE_BYTES`."""
    content = json.loads(report.json())
    tables, cut = {}, {}
    for name, frame in report.tables().items():
        rows = content.pop(name)
        known = [column for column in frame.columns if frame[column].count()]
        columns = {column: [row[column] for row in rows] for column in known}
        size = len(json.dumps(columns, separators=(",", ":")))
        if size > TABLE_BYTES:
            cut[name] = len(rows)
        kept = len(rows) * TABLE_BYTES // max(size, TABLE_BYTES)
        tables[name] = {column: values[:kept] for column, values in columns.items()}
    return json.dumps(content | {"tables": tables, "rows_before_cut": cut}, separators=(",", ":"))


def _block(text: str, *, compact: bool) -> Markup:
    """JSON fit to lie in a script element: no tag can begin in it."""
    if compact:
        return _packed(text)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704


def _packed(text: str) -> Markup:
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    return Markup(base64.b64encode(packed).decode())  # noqa: S704 - letters and digits


@cache
def _bokeh() -> str:
    """Bokeh's own script, and nothing of what HoloViews adds to the list: that needs a network."""
    return "\n".join(
        script
        for script in Resources(mode="inline", components=["bokeh"]).js_raw
        if "set_log_level" not in script[:40]
    )


@cache
def _asset(name: str) -> str:
    return resources.files("traceview.reports").joinpath("assets", name).read_text("utf-8")


# --- template ----------------------------------------------------------------------------------------


@cache
def _environment() -> jinja2.Environment:
    def source(name: str) -> str:
        return resources.files("traceview.reports").joinpath("templates", name).read_text("utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "tooltip": tooltip, "data_uri": _data_uri}
    environment.tests |= {
        kind.__name__.lower(): (lambda block, kind=kind: isinstance(block, kind))
        for kind in (layout.Facts, layout.Grid, layout.Note, layout.Verdict)
    }
    return environment


def _data_uri(csv: str) -> str:
    return f"data:text/csv;charset=utf-8,{quote(csv, safe=',')}"


def _anchors(report: Report | ScalingReport) -> dict[str, str]:
    """Section that answers the command of a finding, such as ``traceview alltoall``."""
    found: dict[str, str] = {}
    for section, _ in report.sections:
        found.setdefault(f"traceview {section.name}", section.name)
    for section, _ in report.sections:
        for name, _by in section.questions:
            found.setdefault(f"traceview {name}", section.name)
    return found | {"traceview summary": "breakdown"}
