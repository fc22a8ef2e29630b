"""A page about runs of several sizes: what each retains, where device time goes, who owns what is lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from traceview import units
from traceview.reports import json_
from traceview.reports import scaling as pages
from traceview.reports.about import About
from traceview.reports.cards import Card
from traceview.reports.figures import _bars, _differences, _scaling, _theme
from traceview.reports.notices import notices
from traceview.reports.section import Figure, Section, SectionData, View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.comparisons.scaling import Scaling
    from traceview.reports.findings import Finding
    from traceview.reports.layout import Facts
    from traceview.reports.notices import Notice
    from traceview.run import Run

NO_RETENTION = "no retention is known: {}. Give tokens_per_step in run.toml beside each run's traces."
NO_FACTORS = "no device work was recorded in the steps looked at. Record ProfilerActivity.CUDA."


@dataclass(frozen=True, slots=True)
class Sizes:
    """What there is to show: the comparison, and what was noticed in each run."""

    scaling: Scaling
    notices: Mapping[str, Sequence[Notice]]


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """What a page shows; see `reports.report.Report`.

    Attributes:
        title: Of the page.
        scaling: How the runs compare.
        abouts: Which runs.
        cards: Numbers to look at first.
        sections: Sections and what they show, in order.
        diagnostics: Everything assumed, repaired or left out, by run.
        findings: None of their own: who owns the loss is a section.
        baseline: None: the smallest run is.
    """

    title: str
    scaling: Scaling
    abouts: tuple[About, ...]
    cards: tuple[Card, ...]
    sections: tuple[tuple[Section, SectionData], ...]
    diagnostics: pl.DataFrame
    findings: tuple[Finding, ...] = ()
    baseline: str | None = None

    @property
    def verdict(self) -> str:
        """The one sentence to remember."""
        return pages.sentence(self.scaling)

    @property
    def head(self) -> Facts:
        """What the report is about."""
        return pages.facts(self.scaling)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table of the comparison, named as in ``traceview scaling -f json``."""
        found = self.scaling
        return {
            "rows": found.sizes,
            "losses": found.losses,
            "axes": found.axes,
            "efficiency": found.efficiency,
        }

    def html(self, *, compact: bool = False) -> str:
        """The page; ``compact`` halves its size, for browsers of 2023 and newer."""
        from traceview.reports import html  # noqa: PLC0415 - loads Bokeh

        return html.render(self, compact=compact)

    def json(self) -> str:
        """All numbers of the report as one JSON object."""
        return json_.document(
            "report",
            inputs=[about.name for about in self.abouts],
            runs=[about.as_dict() for about in self.abouts],
            diagnostics=self.diagnostics,
            tables=self.tables(),
        )


def compose(runs: Sequence[Run], found: Scaling, *, title: str | None = None) -> ScalingReport:
    """The report of ``runs``.

    Args:
        runs: Runs of several sizes.
        found: How they compare.
        title: Of the page; else the sizes.
    """
    shown = Sizes(found, {run.name: tuple(notices(run.diagnostics)) for run in runs})
    counts = " → ".join(f"{count:,}" for count in found.sizes["rank_count"])
    tagged = [run.diagnostics.select(pl.lit(run.name).alias("run"), pl.all()) for run in runs]
    built = [(section, section.build(shown)) for section in SECTIONS]
    return ScalingReport(
        title=title or f"Scaling, {counts} ranks",
        scaling=found,
        abouts=tuple(About.of(run) for run in runs),
        cards=tuple(_cards(found)),
        sections=tuple((section, data) for section, data in built if data is not None),
        diagnostics=pl.concat(tagged),
    )


def _cards(found: Scaling) -> Iterator[Card]:
    base, *_, last = found.sizes.to_dicts()
    span = f"{base['rank_count']:,} → {last['rank_count']:,} ranks"
    if last["retention"] is None:
        yield Card("retention", units.MISSING, last["reason"] or "no step can be measured", anchor="speed")
    else:
        detail = f"of the speed of a rank, {span}"
        if last["retention_low"] is not None:
            low, high = (units.percent_value(last[f"retention_{end}"]) for end in ("low", "high"))
            detail += f" (95 %: {low} to {high} %)"
        yield Card("retention", units.percent(last["retention"]), detail, anchor="speed")
        ideal = units.significant(last["linear_speedup"])
        yield Card("speed-up", units.significant(last["speedup"]), f"{ideal} is linear", anchor="speed")
    for row in (base, last):
        steps = units.plural(row["step_count"], "step")
        yield Card(
            f"step, {row['rank_count']:,} ranks",
            units.duration(row["step_ns"]),
            f"mean of {steps}",
            anchor="speed",
        )
    shares = found.efficiency.drop_nulls("parallel_ratio").filter(pl.col("run") == last["run"])
    for share in shares["parallel_ratio"]:
        yield Card(
            "parallel efficiency",
            units.percent(share),
            f"of device time computes, {last['run']}",
            anchor="efficiency",
        )


# --- sections ----------------------------------------------------------------------------------------


def speed(shown: Sizes) -> SectionData:
    """Speed-up and retention over ranks, and what others published."""
    found = shown.scaling
    table = _scaling.speeds(found)
    blocks = (*pages.speed(found), *pages.remarks(found), pages.published())
    if len(table) < 2:
        why = "; ".join(dict.fromkeys(found.sizes["reason"].drop_nulls())) or "no step can be measured"
        return SectionData(blocks, reason=NO_RETENTION.format(why))
    figure = Figure(
        "speed-ranks",
        "speed over the number of ranks, against the smallest job",
        pages.sentence(found),
        table,
        (
            View("speed-up", lambda: _scaling.speed_up(found)),
            View("retention, with published runs", lambda: _scaling.retention(found)),
        ),
        (
            ("this job, 95 % band", _scaling.OWN),
            ("ideal (dashed)", _scaling.IDEAL),
            ("published", _scaling.PUBLISHED),
        ),
        "The band is a bootstrap interval over steps; published runs are weak scaling of other models.",
    )
    return SectionData(blocks, (figure,))


def efficiency(shown: Sizes) -> SectionData:
    """Where device time goes at each size."""
    found = shown.scaling
    table = _scaling.shares(found)
    if table.is_empty():
        return SectionData(reason=NO_FACTORS)
    figure = Figure(
        "efficiency-runs",
        "share of device time that computes, and what each factor loses of it, %",
        _computes(table),
        table,
        (View("", lambda: _scaling.by_run(found)),),
        _bars.used(table, _scaling.PARTS, unit=_scaling.UNIT),
        "Parts add up to 100 %. Balance is between ranks; orchestration is idle time and copies.",
    )
    return SectionData(tuple(pages.efficiency(found)), (figure,))


def _computes(table: pl.DataFrame) -> str:
    ends = table.to_dicts()
    texts = [f"{units.percent(row['compute %'] / 100)} in {row['run']}" for row in (ends[0], ends[-1])]
    return f"Of the device time of all recorded ranks, compute is {', and '.join(dict.fromkeys(texts))}."


def losses(shown: Sizes) -> SectionData:
    """Who owns what a step takes beyond the ideal."""
    found = shown.scaling
    runs = [run for run in found.sizes["run"] if run in set(found.losses["run"])]
    if not runs:
        return SectionData(reason="no step can be measured in two of the runs.")
    figures = tuple(_owners(found, run, number) for number, run in enumerate(reversed(runs)))
    return SectionData(tuple(pages.losses(found)), figures)


def _owners(found: Scaling, run: str, number: int) -> Figure:
    table = _scaling.owners(found, run)
    base = found.losses["base_run"][0]
    worst = table.sort("Δ ms", descending=True, maintain_order=True).row(0, named=True)
    total = float(table["Δ ms"].sum())
    has_interval = table["low ms"].count() > 0
    legend = tuple(pair for pair in _differences.COLOURS if (table["kind"] == pair[0]).any())
    return Figure(
        f"losses-{number}",
        f"{run}: what a step takes beyond the ideal, that of {base}, by owner",
        f"Largest is {worst['what']}: {units.significant(worst['Δ ms'])} of {units.significant(total)} ms.",
        table,
        (View("", partial(_scaling.by_owner, found, run)),),
        (*legend, ("95 % interval", _theme.TEXT)) if has_interval else legend,
        "Bars add up to the loss of the step exactly, in ns.",
    )


def quality(shown: Sizes) -> SectionData:
    """What was assumed, repaired or left out in each run."""
    blocks = pages.noted(shown.scaling, shown.notices, every_notice=True)
    return SectionData(tuple(blocks), reason="" if blocks else "nothing had to be assumed or left out.")


SECTIONS = (
    Section("speed", "What a rank retains", 10, (), speed, command="scaling"),
    Section("efficiency", "Where device time goes", 20, (), efficiency, command="scaling --additive"),
    Section("losses", "Who owns the loss", 30, (), losses, command="scaling"),
    Section("quality", "Data quality", 40, (), quality, command="info"),
)
