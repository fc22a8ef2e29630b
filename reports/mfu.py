"""The page of ``traceview mfu``: how much of the GPUs' peak a job reaches, and what that figure rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceview import units
from traceview.references import best_run
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from traceview.flops import Flops
    from traceview.reports.about import About
    from traceview.reports.notices import Notice
    from traceview.statistics import StepTime
    from traceview.utilization import Utilization

DIGITS = 4
"""Of throughput and FLOP/s: published figures have as many."""

_GIGA, _TERA = 1e9, 1e12


def page(about: About, found: Utilization, notices: tuple[Notice, ...], *, every_notice: bool) -> list[Block]:
    """The page about one run.

    Args:
        about: The run.
        found: What its GPUs reach.
        notices: Diagnostics, grouped; those of ``found`` among them.
        every_notice: Whether to show all of them.
    """
    facts = Facts((*margins.facts(about), *margins.recorded(about), *_facts(found)))
    said = tuple(notice for notice in notices if notice.code != "mfu.withheld")
    return [
        facts,
        *_grids(found),
        *_withheld(found),
        *margins.foot(about, said, sentence(found), every_notice=every_notice),
    ]


def calculation(found: Utilization) -> list[Block]:
    """The page of a throughput that is known, without a trace."""
    return [Facts(tuple(_facts(found))), *_grids(found), *_withheld(found), Verdict(sentence(found))]


def sentence(found: Utilization) -> str:
    """The one line to remember."""
    tflops, row = found.tflops_per_gpu, found.headline
    if found.throughput is None:
        return "Throughput and MFU cannot be told: see above for what is missing."
    tokens = f"{_rate(found.throughput.median)} tokens/s/GPU"
    if tflops is None:
        return f"{tokens}; TFLOP/s and MFU need more than that: see above."
    reached = f"{tokens} are {_rate(tflops)} TFLOP/s/GPU"
    if row is None:
        return f"{reached}; MFU needs a peak."
    return f"{reached}: {_share(row)}, counted as {found.flops.convention if found.flops else ''} does."


def headline(found: Utilization) -> str | None:
    """Throughput, FLOP/s and MFU in one line, with what they rest on; None where FLOP/s are not known."""
    tflops, row = found.tflops_per_gpu, found.headline
    if tflops is None or found.throughput is None or found.flops is None:
        return None
    share = ""
    if row:
        peak = f"{row['precision'].upper()} peak {_tflops(row['peak_flops_per_s'])}, {row['peak_set']}"
        share = f", MFU {units.percent(row['mfu_ratio'])} ({peak})"
    return (
        f"{_rate(found.throughput.median)} tokens/s/GPU, {_rate(tflops)} TFLOP/s/GPU{share}; "
        f"{found.flops.basis}"
    )


def _share(row: Mapping[str, Any]) -> str:
    peak = f"{row['precision'].upper()} peak of {row['gpu']}"
    return (
        f"MFU {units.percent(row['mfu_ratio'])} of the {peak} ({_tflops(row['peak_flops_per_s'])} TFLOP/s, "
        f"{row['peak_set']})"
    )


# --- facts -------------------------------------------------------------------------------------------


def _facts(found: Utilization) -> Iterator[tuple[str, str]]:
    terms, by = found.terms, found.terms.said_by
    if found.step_time:
        yield "step time", _step_time(found.step_time)
    if terms.tokens_per_step:
        yield "tokens", f"{units.count(terms.tokens_per_step)} per step ({by['tokens_per_step']})"
    if terms.gpus:
        yield "GPUs", f"{units.count(terms.gpus)} ({by['gpus']})"
    if found.throughput:
        yield "throughput", _throughput(found)
    if terms.model:
        yield "model", f"{terms.model.name} ({by['model']}), shape from: {terms.model.source}"
    if terms.length:
        yield "sequence", f"{units.significant(terms.length, DIGITS)} tokens ({by['length']})"
    if found.flops:
        yield "counted", found.flops.counted
    if (published := _published(found)) is not None:
        yield "published", published


def _step_time(time: StepTime) -> str:
    interval = ""
    if time.low_ns is not None and time.high_ns is not None:
        interval = f" (95 % interval {units.duration(time.low_ns)} to {units.duration(time.high_ns)})"
    steps = units.plural(time.step_count, "step")
    median, p95 = units.duration(time.median_ns), units.duration(time.p95_ns)
    return f"median {median}{interval}, p95 {p95}, over {steps}; a profiler may have slowed them"


def _throughput(found: Utilization) -> str:
    rates = found.throughput
    if rates is None:
        return units.MISSING
    interval = ""
    if rates.low and rates.high:
        interval = f" (95 % interval {_rate(rates.low)} to {_rate(rates.high)})"
    slow = f", at the p95 step {_rate(rates.slow)}" if rates.slow else ""
    tflops = found.tflops_per_gpu
    arithmetic = f"; {_rate(tflops)} TFLOP/s/GPU" if tflops else ""
    return f"{_rate(rates.median)} tokens/s/GPU{interval}{slow}{arithmetic}"


def _published(found: Utilization) -> str | None:
    """The fastest published run of the model on the GPU, if length and MTP are the same too."""
    terms, counted = found.terms, found.flops
    best = best_run(terms.model.name, terms.gpu.name) if terms.model and terms.gpu else None
    if best is None or counted is None:
        return None
    if (best.seq_len, best.mtp_layers) != (terms.length, counted.mtp_layers):
        return None
    size = f"{units.count(best.gpus)} GPUs, " if best.gpus else ""
    reached = found.throughput.median / best.tokens_per_s_per_gpu if found.throughput else None
    here = f"; here {units.percent(reached)} of that" if reached else ""
    return (
        f"{_rate(best.tokens_per_s_per_gpu)} tokens/s/GPU, {_rate(best.tflops_per_gpu)} TFLOP/s/GPU "
        f"with forced balance ({size}{best.source}){here}"
    )


# --- tables ------------------------------------------------------------------------------------------


def _grids(found: Utilization) -> Iterator[Grid]:
    if found.flops:
        yield _parts(found.flops)
    if found.headline:
        yield _peaks(found)


def _parts(counted: Flops) -> Grid:
    heads = ("part", "GFLOP", "%")
    total = counted.per_token
    rows = [
        (part.replace("_", " "), f"{cost / _GIGA:,.3f}", units.percent_value(cost / total))
        for part, cost in sorted(counted.parts.items(), key=lambda item: -item[1])
        if cost
    ]
    rows.append(("all", f"{total / _GIGA:,.3f}", units.percent_value(1.0)))
    return Grid("operations per token, forward and backward", heads, tuple(rows))


def _peaks(found: Utilization) -> Grid:
    heads = ("peak", "source", "TFLOP/s", "MFU %", "from %", "to %", "best matmul TFLOP/s", "% of it")
    rows = tuple(_peak_cells(row) for row in found.frame.iter_rows(named=True))
    return Grid("share of the hardware, dense", heads, rows, label_count=2)


def _peak_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (row[name] for name in ("mfu_ratio", "mfu_low_ratio", "mfu_high_ratio"))
    return (
        f"{row['gpu']} {row['precision'].upper()}",
        f"{row['peak_set']}: {row['peak_source']}",
        _tflops(row["peak_flops_per_s"]),
        *(units.percent_value(share) for share in shares),
        _tflops(row["achievable_flops_per_s"]),
        units.percent_value(row["achieved_ratio"]),
    )


def _withheld(found: Utilization) -> Iterator[Note]:
    for note in found.notes.filter(code="mfu.withheld").iter_rows(named=True):
        yield Note(f"{note['text']}.", "missing")


def _rate(value: float) -> str:
    return units.significant(value, DIGITS)


def _tflops(flops_per_s: float | None) -> str:
    return units.MISSING if flops_per_s is None else units.significant(flops_per_s / _TERA)
