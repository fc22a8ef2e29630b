"""What another distribution adds, with a small one made here: a package, and the metadata an installer writes."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import plugins, registry
from traceview.classify import Classifier, kernel_rules
from traceview.cli import main
from traceview.errors import PluginError
from traceview.reports.section import SectionData
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CACHES = (registry.parsers, registry.analyses, registry.sections, registry._rules, plugins.declared)
TINY = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1)

PACKAGE = '''
"""A distribution of somebody else."""
from dataclasses import dataclass
from pathlib import Path
import polars as pl
from traceview import registry
from traceview.contracts import Analysis
from traceview.reports.layout import Verdict
from traceview.reports.section import Section, SectionData
from traceview.schema import Column, Table

RESULT = Table("launches_made", "One row.", {"launch_count": Column(pl.Int64(), "host calls that launch work")})
ANALYSIS = Analysis(
    name="launches_made", question="How many launches?", needs=("launches",), partial=RESULT, result=RESULT,
    map=lambda trace, options: pl.DataFrame({"launch_count": [len(trace.table("launches"))]}),
    reduce=lambda partials, options: partials.sum(),
    grains={"rank": ()},
)

def _fail(*_):
    raise KeyError("secret of the trace")

FAILING = Analysis("fails", "Does it?", (), RESULT, RESULT, map=_fail, reduce=_fail, grains={"rank": ()})
SECTION = Section("acme", "Acme", 900, (("launches_made", ()),),
    lambda answers: SectionData((Verdict(f"{answers.of('launches_made')['launch_count'][0]} launches"),)))
FAILING_SECTION = Section("acme_fails", "Acme", 901, (), _fail)
RULES = Path(__file__).with_name("kernels.toml")
CLASHING_RULES = Path(__file__).with_name("clashing.toml")
BAD_RULES = Path(__file__).with_name("bad.toml")

class Lines:
    """Traces of one word: those of kineto under another name."""
    name, description, url, version = "acme", "Acme lines", "https://acme.example/format", 1
    def sniff(self, source):
        return source.head.startswith(b"ACME ")
    def parse(self, source):
        from traceview.source import Source
        inner = Path(source.head.decode().split()[1])
        return next(p for p in registry.parsers() if p.name == "kineto").parse(Source(inner))

class Moody(Lines):
    """Cannot even sniff."""
    name = "moody"
    def sniff(self, source):
        raise RuntimeError("moody")

class Clumsy(Lines):
    """Sniffs, and then falls."""
    name = "clumsy"
    def parse(self, source):
        raise RuntimeError("secret of the trace")

class Usurper(Lines):
    """Wants the name of another."""
    name = "kineto"

PARSER, MOODY, CLUMSY, USURPER = Lines(), Moody(), Clumsy(), Usurper()
'''
RULE = """
[[rule]]
id = "{id}"
category = "attention"
pattern = "{pattern}"
source = "test"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, as an installer would fill it; whatever was found there is forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for function in CACHES:
        function.cache_clear()
    importlib.invalidate_caches()


def install(site: Path, distribution: str = "acme-traces", **groups: str) -> None:
    """Installs ``distribution``: per group (its last word) one entry point to an attribute of its module."""
    module = distribution.replace("-", "_")
    package = site / module
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "kernels.toml").write_text(RULE.format(id="acme-attention", pattern="nvjet"))
    (package / "clashing.toml").write_text(RULE.format(id=kernel_rules().rules[0].id, pattern="x"))
    (package / "bad.toml").write_text(RULE.format(id="bad", pattern="(?=look)"))
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [
        f"[traceview.{group}]\n{group}-of-acme = {_target(module, name)}" for group, name in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    _forget()


def _target(module: str, name: str) -> str:
    return name if ":" in name else f"{module}:{name}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(TINY, folder)
    return folder


def _warnings(run: tv.Run) -> list[str]:
    return run.diagnostics.filter(pl.col("code") == "plugin.broken")["text"].to_list()


# --- what is added -----------------------------------------------------------------------------------


def test_without_plugins_there_are_none() -> None:
    assert [found for found in registry.contributed() if "acme" in found.distribution] == []


def test_an_added_analysis_is_asked_like_one_of_ours(site: Path, job: Path) -> None:
    install(site, analyzers="ANALYSIS")
    run = tv.load(job)
    launches = sum(len(trace.table("launches")) for trace in run.traces)
    assert tv.analyze(run, "launches_made").frame["launch_count"].to_list() == [launches]
    assert launches > 0


def test_an_added_parser_reads_its_own_files_and_leaves_the_others(
    site: Path, job: Path, tmp_path: Path
) -> None:
    install(site, parsers="PARSER")
    trace = tmp_path / "rank0.acme"
    trace.write_text(f"ACME {next(iter(sorted(job.glob('rank0*'))))}")
    assert len(tv.load(trace).traces) == 1
    assert tv.load(job).traces[0].facts.format == "kineto"


def test_added_rules_are_tried_before_ours_and_after_the_users(site: Path, job: Path, tmp_path: Path) -> None:
    plain = tv.load(job)
    install(site, rules="RULES")
    mine = tmp_path / "mine.toml"
    mine.write_text(RULE.format(id="mine", pattern="nvjet"))
    theirs, own = tv.load(job), tv.load(job, rules=mine)
    named = [
        {
            rule: run.ops.filter(pl.col("rule_id") == rule).collect().height
            for rule in ("acme-attention", "mine")
        }
        for run in (plain, theirs, own)
    ]
    assert named[0] == {"acme-attention": 0, "mine": 0}
    assert named[1]["acme-attention"] > 0
    assert named[2] == {"acme-attention": 0, "mine": named[1]["acme-attention"]}
    assert registry.classifier().digest != Classifier.default().digest  # so caches are not shared


def test_an_added_section_stands_in_the_report(site: Path, job: Path) -> None:
    install(site, analyzers="ANALYSIS", sections="SECTION")
    composed = tv.api.compose(tv.load(job))
    section, data = composed.sections[-1]
    assert section.name == "acme"
    assert isinstance(data, SectionData)
    assert data.blocks[0].text.endswith(" launches")  # type: ignore[union-attr]


# --- what cannot be used -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "target", "why"),
    [
        ("parsers", "acme_traces.nowhere:PARSER", "cannot be imported (ModuleNotFoundError"),
        ("analyzers", "NOTHING", "cannot be imported (AttributeError"),
        ("analyzers", "RULES", "it is no Analysis but a PosixPath"),
        ("parsers", "RESULT", "it is no Parser: it lacks description, url, version"),
        ("sections", "PARSER", "it is no Section: it lacks title, order, questions, build"),
        ("rules", "RESULT", "it is no path of a TOML file but a Table"),
        ("rules", "BAD_RULES", "no regular expression"),
    ],
)
def test_a_broken_plugin_is_a_warning_that_names_its_distribution(
    site: Path, job: Path, group: str, target: str, why: str
) -> None:
    install(site, **{group: target})
    run = tv.load(job)
    (warning,) = _warnings(run)
    assert warning.startswith(
        f"plugin '{group}-of-acme' of acme-traces 1.0 (traceview.{group}) is left out: "
    )
    assert why in warning
    assert len(tv.breakdown(run).frame) == 2


def test_doctor_lists_plugins_and_what_is_wrong_with_them(site: Path) -> None:
    install(site, analyzers="ANALYSIS", parsers="NOTHING")
    rows = json.loads(CliRunner().invoke(main, ["doctor", "-f", "json"]).stdout)["rows"]
    found = {row["name"]: row["value"] for row in rows if row["kind"] == "plugin" and "acme" in row["name"]}
    assert found["analyzers plugin analyzers-of-acme"] == "acme-traces 1.0"
    assert found["parsers plugin parsers-of-acme"].startswith(
        "acme-traces 1.0, left out: 'acme_traces:NOTHING'"
    )


def test_a_parser_that_cannot_sniff_does_not_keep_others_from_reading(site: Path, job: Path) -> None:
    install(site, parsers="MOODY")
    assert len(tv.load(job).ranks) == 2


def test_a_parser_that_fails_is_blamed_without_quoting_the_trace(site: Path, tmp_path: Path) -> None:
    install(site, parsers="CLUMSY")
    (tmp_path / "x.acme").write_text("ACME x")
    result = CliRunner().invoke(main, ["info", str(tmp_path / "x.acme")])
    assert result.exit_code == PluginError.exit_code
    assert "plugin 'parsers-of-acme' of acme-traces 1.0 failed with RuntimeError" in result.stderr
    assert "secret" not in result.stderr


def test_an_analysis_that_fails_is_blamed_and_costs_no_other_question(site: Path, job: Path) -> None:
    install(site, analyzers="FAILING")
    run = tv.load(job)
    with pytest.raises(PluginError, match=r"of acme-traces 1.0 failed with KeyError") as raised:
        tv.analyze(run, "fails")
    assert "secret" not in str(raised.value)
    assert len(tv.breakdown(run).frame) == 2


def test_a_section_that_fails_says_so_in_its_place(site: Path, job: Path) -> None:
    install(site, sections="FAILING_SECTION")
    sections = tv.api.compose(tv.load(job)).sections
    (reason,) = [data.reason for section, data in sections if section.name == "acme_fails"]
    assert "of acme-traces 1.0 failed with KeyError" in reason
    assert len(sections) > 5


# --- names that are taken ----------------------------------------------------------------------------


def test_a_parser_under_the_name_of_ours_is_refused_and_both_are_named(site: Path, job: Path) -> None:
    install(site, parsers="USURPER")
    with pytest.raises(
        PluginError,
        match=r"two parsers are called 'kineto': one comes with traceview, one with acme-traces 1.0",
    ):
        tv.load(job)


def test_two_plugins_of_one_name_are_refused_and_both_are_named(site: Path) -> None:
    install(site, analyzers="ANALYSIS")
    install(site, "acme-more", analyzers="ANALYSIS")
    with pytest.raises(
        PluginError, match=r"'launches_made': one comes with acme-more 1.0, one with acme-traces 1.0"
    ):
        registry.analyses()


def test_a_rule_with_the_id_of_ours_is_refused_and_both_are_named(site: Path) -> None:
    install(site, rules="CLASHING_RULES")
    with pytest.raises(
        PluginError, match=r"two kernel rules .* one comes with traceview, one with acme-traces 1.0"
    ):
        registry.classifier()
