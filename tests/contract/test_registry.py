"""One suite over everything a contributor can add: a parser, an analysis."""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
import re
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview.analyzers
import traceview.commands
import traceview.parsers
import traceview.reports.figures
import traceview.reports.sections
from traceview import inputs, load, registry, schema
from traceview.contracts import Analysis, Options
from traceview.errors import MissingTableError, ParseError, UnknownFormatError
from traceview.source import Source
from traceview.synth import Workload, write
from traceview.trace import Facts, Trace

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from traceview.contracts import Parser
    from traceview.schema import Table


def _public_modules(package: ModuleType) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]


PARSERS = registry.parsers()
ANALYSES = list(registry.analyses().values())
each_parser = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
each_analysis = pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.name)


# --- parsers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _public_modules(traceview.parsers))
def test_every_public_module_of_parsers_declares_one_registered_parser(name: str) -> None:
    parser: Parser = importlib.import_module(f"traceview.parsers.{name}").PARSER
    assert parser in PARSERS
    assert parser.name == name
    assert parser.description
    assert "\n" not in parser.description
    assert parser.url.startswith("https://")
    assert isinstance(parser.version, int)
    assert parser.version >= 1


_MAGIC = (
    b"",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"{",
    b"[",
    b"\xef\xbb\xbf{",
    b"SQLite format 3\0",
)


@pytest.fixture(scope="module")
def junk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("junk") / "rank0.pt.trace.json"


@given(magic=st.sampled_from(_MAGIC), data=st.binary(max_size=200))
def test_sniffing_junk_answers_yes_or_no(junk: Path, magic: bytes, data: bytes) -> None:
    junk.write_bytes(magic + data)
    try:
        Source(junk).head  # noqa: B018 - what cannot be opened at all is refused before any parser is asked
    except ParseError:
        return
    assert [parser.name for parser in PARSERS if parser.sniff(Source(junk)) not in {True, False}] == []


def _of_category(category: str) -> bytes:
    event = {"ph": "X", "cat": category, "name": "n", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    return json.dumps({"traceEvents": [event]}).encode()


WRONG = {
    "text": b"step 1 loss 2.5\n",
    "sqlite": b"SQLite format 3\0" + bytes(84),
    "parquet": b"PAR1" + bytes(60) + b"PAR1",
    "pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0.",
    "nsight": b"NSYS" + bytes(60),
    "program": b"\x7fELF" + bytes(60),
    "json_number": b"17",
    "json_list": b"[1, 2, 3]",
    "json_object": b'{"learning_rate": 0.1}',
    "no_events": b'{"traceEvents": []}',
    "execution_trace": b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "root"}]}',
    "another_tool": _of_category("toplevel,viz"),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_refused_by_name_with_a_hint(content: bytes, tmp_path: Path) -> None:
    source = Source(tmp_path / "wrong.json")
    source.path.write_bytes(content)
    with pytest.raises(UnknownFormatError) as refused:
        inputs.parser_for(source, PARSERS).parse(source)
    assert re.match(r"'.*wrong\.json' is not a trace: .+\.\nHint: .+", str(refused.value))


# --- analyses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _public_modules(traceview.analyzers))
def test_every_public_module_of_analyzers_declares_one_registered_analysis(name: str) -> None:
    analysis: Analysis = importlib.import_module(f"traceview.analyzers.{name}").ANALYSIS
    assert registry.analyses()[analysis.name] is analysis
    assert analysis.question.endswith("?")
    assert set(analysis.needs) <= set(schema.TABLES)


def _undocumented(table: Table) -> list[str]:
    return [name for name, column in table.columns.items() if not column.doc.strip()]


def _wrong_unit(table: Table) -> list[str]:
    """Columns whose name promises a unit they do not declare, or ratios that are no fractions."""
    units = {"_ns": "ns", "_bytes": "bytes"}
    wrong = [
        name
        for name, column in table.columns.items()
        for suffix, unit in units.items()
        if name.endswith(suffix) and column.unit != unit
    ]
    ratios = [name for name, c in table.columns.items() if name.endswith("_ratio") and c.dtype != pl.Float64]
    return wrong + ratios


@each_analysis
def test_every_column_of_an_analysis_is_documented_and_has_the_unit_of_its_name(analysis: Analysis) -> None:
    for table in (analysis.partial, analysis.result):
        assert table.doc
        assert _undocumented(table) == []
        assert _wrong_unit(table) == []


@pytest.mark.parametrize("table", schema.TABLES.values(), ids=schema.TABLES.keys())
def test_every_column_of_a_canonical_table_is_documented_and_has_the_unit_of_its_name(table: Table) -> None:
    assert table.doc
    assert _undocumented(table) == []
    assert _wrong_unit(table) == []


@each_analysis
def test_every_grain_stands_for_columns_of_the_result(analysis: Analysis) -> None:
    assert analysis.grains
    assert set(itertools.chain(*analysis.grains.values())) <= set(analysis.result.columns)


def _empty_trace() -> Trace:
    """A rank that recorded every table, and nothing in them."""
    return Trace(
        Facts("empty.json", "kineto", rank=0), {name: t.empty() for name, t in schema.TABLES.items()}
    )


def _groupings(analysis: Analysis) -> list[tuple[str, ...]]:
    return [(), *((grain,) for grain in analysis.grains), tuple(analysis.grains)]


@each_analysis
@pytest.mark.parametrize("steps", ["auto", "all"])
def test_a_rank_without_any_event_gives_an_answer_of_the_right_shape(analysis: Analysis, steps: str) -> None:
    for by in _groupings(analysis):
        options = Options(steps=steps, by=by)
        partial = analysis.map(_empty_trace(), options)
        assert partial.schema == analysis.partial.schema()
        result = analysis.reduce(partial, options)
        assert result.schema == analysis.result.schema()
        measured = result.select(pl.col("^.*_(ns|count|bytes)$"))
        assert [name for name in measured.columns if measured[name].sum()] == []
        assert [name for name in result.columns if name.endswith("_ratio") and result[name].count()] == []


@each_analysis
def test_a_trace_that_lacks_a_needed_table_says_which(analysis: Analysis) -> None:
    whole = _empty_trace()
    for needed in analysis.needs:
        lacking = Trace(whole.facts, {name: table for name, table in whole.tables.items() if name != needed})
        with pytest.raises(MissingTableError, match=f"no table '{needed}'"):
            analysis.map(lacking, Options(by=tuple(analysis.grains)))


# --- sections and figures ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", _public_modules(traceview.reports.sections))
def test_every_public_module_of_sections_declares_one_registered_section(name: str) -> None:
    section = importlib.import_module(f"traceview.reports.sections.{name}").SECTION
    assert section in registry.sections()
    assert section.name == name
    assert section.title
    known = registry.analyses()
    assert section.verb in _public_modules(traceview.commands)
    for analysis, by in section.questions:
        assert set(by) <= set(known[analysis].grains)


def test_sections_have_an_order_of_their_own_each() -> None:
    orders = [section.order for section in registry.sections()]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("name", _public_modules(traceview.reports.figures))
def test_every_public_module_of_figures_draws_grains_of_the_analysis_it_is_named_after(name: str) -> None:
    known = registry.analyses()[name].grains
    assert registry.figures(name)
    for by in registry.figures(name):
        assert set(by) <= set(known)


def test_an_analysis_without_pictures_has_none() -> None:
    assert registry.figures("nothing") == {}


@each_analysis
def test_grains_that_a_map_does_not_look_at_share_one_partial(
    analysis: Analysis, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if analysis.maps_by is None:
        return
    folder = tmp_path_factory.mktemp("job")
    write(Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1), folder)
    trace = load(folder).traces[0]
    partials: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for by in _groupings(analysis):
        partials.setdefault(analysis.mapped(by), []).append(analysis.map(trace, Options(by=by)))
    for first, *others in partials.values():
        assert all(partial.equals(first) for partial in others)
