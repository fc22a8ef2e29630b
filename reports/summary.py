"""Where the step goes, as data: what the terminal, JSON and later pages show of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview import utilization
from traceview.reports import layout, notebook, text
from traceview.reports.about import About, StepUse
from traceview.reports.findings import Evidence, Finding, Total, findings
from traceview.reports.notices import Notice, notices
from traceview.schema import Column, Table
from traceview.statistics import StepTime, step_time
from traceview.terms import Asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.run import Run
    from traceview.utilization import Utilization

STEP_TIMES = Table(
    "step_time",
    "One row per run with steps: how long a step takes over all rank-steps used.",
    {
        "step_count": Column(pl.Int64(), "distinct steps"),
        "rank_step_count": Column(pl.Int64(), "values: one per rank and step"),
        "median_ns": Column(pl.Float64(), "median", "ns"),
        "p95_ns": Column(pl.Float64(), "95th percentile", "ns"),
        "low_ns": Column(pl.Float64(), "low end of its 95 % bootstrap interval", "ns", nullable=True),
        "high_ns": Column(pl.Float64(), "high end of it", "ns", nullable=True),
    },
)
STEPS = ("rank", "step", "dur_ns", "op_count", "status", "source")
DEFAULT_KIND = ("axis", "collective", "role")
"""The grain in which communication is shown unless another is asked for."""

_SPANS = ("rank", "step")


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, summed up.

    Attributes:
        about: Which run.
        step_use: Which steps.
        step_time: How long a step takes; None where nothing marks steps.
        total: The breakdown over everything.
        breakdown: The breakdown in the grain asked for.
        collectives: `overlap` in the grain asked for.
        steps: Columns `STEPS` of the run's steps, and whether each was used.
        notices: Diagnostics, grouped.
        findings: The verdict and what it rests on.
        utilization: What its GPUs reach, as far as ``run.toml`` tells.
        uncertainty_ns: What the fit of the hosts' clocks leaves over (p95); 0 on one host, None if unknown.
    """

    about: About
    step_use: StepUse
    step_time: StepTime | None
    total: Total
    breakdown: pl.DataFrame
    collectives: pl.DataFrame
    steps: pl.DataFrame
    notices: tuple[Notice, ...]
    findings: tuple[Finding, ...]
    utilization: Utilization
    uncertainty_ns: int | None

    @property
    def window(self) -> str:
        """What one window is called: "step" where steps were used, else "window"."""
        return "step" if self.step_use.used else "window"

    def __repr__(self) -> str:
        return f"<summary of '{self.about.name}': {self.findings[0].text}>"

    def __str__(self) -> str:
        return layout.plain(text.summary(self, every_notice=False))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook.blocks(text.summary(self, every_notice=False))


def span_grain(by: Sequence[str]) -> tuple[str, ...]:
    """Grain of the breakdown where ``by`` is asked for: those of it that are ranks or steps, or ranks."""
    return tuple(grain for grain in by if grain in _SPANS) or ("rank",)


def kind_grain(by: Sequence[str]) -> tuple[str, ...]:
    """Grain of the communication table: ``by``, with `DEFAULT_KIND` if that names no kind."""
    kinds = tuple(grain for grain in by if grain not in _SPANS)
    return tuple(by) if kinds else (*by, *DEFAULT_KIND)


def summarize(
    run: Run,
    *,
    windows: pl.DataFrame,
    breakdown: pl.DataFrame,
    collectives: pl.DataFrame,
    evidence: Evidence,
) -> Summary:
    """What there is to say about ``run``.

    Args:
        run: The run.
        windows: Its `breakdown` by rank and step.
        breakdown: Its `breakdown` in the grain asked for.
        collectives: Its `overlap` in the grain asked for.
        evidence: What its findings rest on.
    """
    steps = run.table("steps").select(STEPS).collect()
    use = StepUse.of(steps, windows)
    reached = utilization.of_run(run, windows, Asked())
    contradictions = reached.notes.filter(pl.col("severity") == "warning")
    total = Total.of(windows)
    stepped = windows.filter(pl.col("step").is_not_null())
    looked_at = stepped.select("rank", "step", used=True).unique()
    return Summary(
        about=About.of(run),
        step_use=use,
        step_time=step_time(stepped["step"].to_numpy(), stepped["window_ns"].to_numpy()),
        total=total,
        breakdown=breakdown,
        collectives=collectives,
        steps=steps.join(looked_at, on=["rank", "step"], how="left", maintain_order="left").with_columns(
            pl.col("used").fill_null(value=False)
        ),
        notices=tuple(notices(pl.concat([run.diagnostics, contradictions]))),
        findings=tuple(findings(total, evidence, window="step" if use.used else "window")),
        utilization=reached,
        uncertainty_ns=max(evidence.latency["uncertainty_ns"].drop_nulls(), default=None),
    )
