"""The verbs shared by the command line and notebooks: load traces, ask a question.

>>> import traceview as tv
>>> run = tv.load("sample_traces/ep8-deepep")            # doctest: +SKIP
>>> tv.breakdown(run, by=("rank", "step")).frame         # doctest: +SKIP
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import inputs, jobs, recipe, registry, sink, stages, store, utilization
from traceview import run as runs
from traceview.comparisons import compare as comparison
from traceview.comparisons import scaling as comparing
from traceview.contracts import Analysis, Options
from traceview.errors import (
    NoTraceError,
    TraceViewError,
    UnknownFormatError,
    UsageError,
)
from traceview.plugins import Broken
from traceview.prepare import prepare
from traceview.result import Result
from traceview.terms import Asked
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from collections.abc import Collection

    from traceview.classify import Classifier
    from traceview.comparisons.compare import Comparison
    from traceview.comparisons.scaling import Scaling
    from traceview.contracts import Parser
    from traceview.inputs import Candidate
    from traceview.reports.explain import Explanation
    from traceview.reports.report import Report
    from traceview.reports.summary import Summary
    from traceview.reports.timeline import Timeline
    from traceview.run import Run
    from traceview.source import Source
    from traceview.trace import Trace
    from traceview.utilization import Utilization

PLACE = str | Path
Steps = str | range
SPILL_BYTES = 64 << 20
"""Inputs larger than this together go through the cache and are read in parallel."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How to read traces; made once by the caller.

    Attributes:
        rules: A TOML file of kernel rules, tried before the built-in ones.
        cache: Folder for prepared tables; None keeps small inputs in memory, large ones in a default folder.
        workers: Processes for large inputs; None means one per core.
        progress: Told about each file.
    """

    rules: Path | None = None
    cache: Path | None = None
    workers: int | None = None
    progress: jobs.Progress = jobs.silent


def load(places: PLACE | Sequence[PLACE], *, ranks: Collection[int] | None = None, **how: Any) -> Run:  # noqa: ANN401 - the fields of Loading
    """The run at ``places``: a file, a directory, a glob, or several of them.

    Args:
        places: Where the traces are.
        ranks: Keep only these ranks.
        how: Fields of `Loading`.

    Raises:
        UsageError: Several runs lie there; `load_runs` returns them all.
        NoTraceError: Nothing usable lies there.
    """
    return only_run(load_runs(places, ranks=ranks, **how))


def only_run(found: Sequence[Run]) -> Run:
    """The one run among those found at a place.

    Raises:
        UsageError: There are several.
    """
    if len(found) > 1:
        names = ", ".join(f"'{run.name}' ({len(run.ranks)} ranks)" for run in found[:8])
        message = (
            f"several runs lie there, and they are never mixed: {names}."
            "\nHint: pass one of them; in Python, load_runs returns them all."
        )
        raise UsageError(message)
    return found[0]


def load_runs(
    places: PLACE | Sequence[PLACE],
    *,
    ranks: Collection[int] | None = None,
    **how: Any,  # noqa: ANN401 - the fields of Loading
) -> list[Run]:
    """Every run at ``places``, each with its ranks; see `load`."""
    listed = [places] if isinstance(places, str | Path) else list(places)
    loading = Loading(**how)
    candidates = inputs.candidates(listed)
    outcomes = _read_all(candidates, loading)
    traces = [trace for outcome in outcomes if not isinstance(outcome, TraceViewError) for trace in outcome]
    if not traces:
        raise _nothing_usable(listed, candidates, outcomes)
    skipped = [*_skipped(candidates, outcomes), *_left_out_plugins()]
    found = [_with_recipe(replace(run, notes=pl.concat([run.notes, *skipped]))) for run in runs.group(traces)]
    return [runs.only_ranks(run, ranks) for run in found] if ranks is not None else found


def analyze(
    run: Run, name: str | Analysis, *, by: Sequence[str] = ("rank",), steps: Steps = "auto"
) -> Result:
    """The answer to question ``name`` (see `registry.analyses`), or to one of your own, about ``run``.

    Raises:
        UsageError: There is no such question, or it cannot be answered by one of ``by``.
        MissingTableError: A rank lacks a table the question needs.
    """
    return analyze_all(run, [(name, by)], steps=steps)[0]


def analyze_all(
    run: Run, questions: Sequence[tuple[str | Analysis, Sequence[str]]], *, steps: Steps = "auto"
) -> list[Result]:
    """The answers to several questions, given as (name, by), from one look at each rank. See `analyze`."""
    asked = [(_analysis(name, by), Options(steps=steps, by=tuple(by))) for name, by in questions]
    shared = [(analysis.map, options.by if analysis.maps_by else None) for analysis, options in asked]
    wanted = dict(zip(shared, asked, strict=True))  # questions with the same map share its partials
    partials: dict[object, list[pl.DataFrame]] = {key: [] for key in wanted}
    for trace in run.traces:
        held = trace.held()
        for key, (analysis, options) in wanted.items():
            with stages.stage("map", analysis.name):
                partials[key].append(analysis.map(held, options))
    results = []
    for place, (key, (analysis, options)) in enumerate(zip(shared, asked, strict=True)):
        whole = pl.concat(partials[key])
        partials[key] = [whole] if key in shared[place + 1 :] else []  # let go of what is answered
        with stages.stage("reduce", analysis.name):
            frame = analysis.result.conform(analysis.reduce(whole, options))
        results.append(Result(frame, analysis, options))
    return results


def _analysis(name: str | Analysis, by: Sequence[str]) -> Analysis:
    """The analysis asked for, once it is sure that it can be shown ``by``."""
    analysis = _known(name) if isinstance(name, str) else name
    wrong = [grain for grain in by if grain not in analysis.grains]
    if wrong:
        choice = ", ".join(analysis.grains)
        message = f"'{analysis.name}' cannot be shown by {', '.join(wrong)}; choose from: {choice}."
        raise UsageError(message)
    return analysis


def _known(name: str) -> Analysis:
    """The analysis that is registered as ``name``."""
    known = registry.analyses()
    if name not in known:
        message = f"no analysis '{name}'; there are: {', '.join(sorted(known))}."
        raise UsageError(message)
    return known[name]


def summary(run: Run, *, by: Sequence[str] = (), steps: Steps = "auto") -> Summary:
    """``run`` summed up, as ``traceview summary`` does: breakdown, communication, findings, the verdict.

    The breakdown takes the grains it has (rank, step), the communication table takes all; either falls back
    to its own where it is given none. ``print`` shows the page of the command line.

    Raises:
        UsageError: A grain is unknown to both.
    """
    from traceview.reports import summary as summaries  # noqa: PLC0415 - only this question needs it
    from traceview.reports.findings import Evidence  # noqa: PLC0415 - likewise

    questions = [
        ("breakdown", ("rank", "step")),
        ("overlap", summaries.kind_grain(by)),
        ("overlap", summaries.DEFAULT_KIND),
        ("collectives", summaries.DEFAULT_KIND),
        ("stragglers", ("rank",)),
        ("experts", ("layer",)),
    ]
    windows, collectives, *evidence = analyze_all(run, questions, steps=steps)
    return summaries.summarize(
        run,
        windows=windows.frame,
        breakdown=windows.coarser(summaries.span_grain(by)).frame,
        collectives=collectives.frame,
        evidence=Evidence(*(result.frame for result in evidence)),
    )


def findings(run: Run, *, steps: Steps = "auto") -> pl.DataFrame:
    """The verdict on ``run``, then what costs most: one row per sentence, with the numbers behind it.

    Costs overlap and must not be added; ``reports.findings.FINDINGS`` says what each column means.
    """
    from traceview.reports.findings import table  # noqa: PLC0415 - only this question needs it

    return table(list(summary(run, steps=steps).findings))


def explain(metric: str) -> Explanation:
    """What ``metric`` means: a column of any result, or what people call it (``"mfu"``, ``"busbw"``).

    Raises:
        UsageError: There is no such column; the message has the nearest names.
    """
    from traceview.reports import explain as explanations  # noqa: PLC0415 - only this question needs it

    return explanations.explain(metric)


def breakdown(run: Run, *, by: Sequence[str] = ("rank",), steps: Steps = "auto") -> Result:
    """Where the step goes: compute, exposed communication, exposed copies, idle. See `analyze`."""
    return analyze(run, "breakdown", by=by, steps=steps)


def overlap(run: Run, *, by: Sequence[str] = ("axis",), steps: Steps = "auto") -> Result:
    """Which communication is hidden and which is exposed. See `analyze`."""
    return analyze(run, "overlap", by=by, steps=steps)


def ledger(run: Run, *, by: Sequence[str] = ("kind",), steps: Steps = "auto") -> Result:
    """Every nanosecond of the step on one row, communication by what it was for. See `analyze`."""
    return analyze(run, "ledger", by=by, steps=steps)


def all_to_all(run: Run, *, by: Sequence[str] = ("role", "phase"), steps: Steps = "auto") -> Result:
    """What every all-to-all costs: waiting or moving bytes, and how fast they move. See `analyze`."""
    return analyze(run, "alltoall", by=by, steps=steps)


def collective_latency(
    run: Run, *, by: Sequence[str] = ("axis", "collective", "role"), steps: Steps = "auto"
) -> Result:
    """The same of every collective. See `analyze`."""
    return analyze(run, "collectives", by=by, steps=steps)


def latencies(
    run: Run, *, by: Sequence[str] = ("collective", "role", "phase"), steps: Steps = "auto"
) -> Result:
    """How the durations of exchanges are spread: quantiles from 0 to 1. See `analyze`."""
    return analyze(run, "latencies", by=by, steps=steps)


def traffic(run: Run, *, by: Sequence[str] = ("pair",), steps: Steps = "auto") -> Result:
    """Who sends how many bytes to whom. See `analyze`."""
    return analyze(run, "traffic", by=by, steps=steps)


def stragglers(run: Run, *, by: Sequence[str] = ("rank",), steps: Steps = "auto") -> Result:
    """Who made whom wait, what it cost, and why they were late. See `analyze`."""
    return analyze(run, "stragglers", by=by, steps=steps)


def expert_load(run: Run, *, by: Sequence[str] = ("layer",), steps: Steps = "auto") -> Result:
    """How evenly the experts are loaded, and what unevenness costs. See `analyze`."""
    return analyze(run, "experts", by=by, steps=steps)


def idle(run: Run, *, by: Sequence[str] = ("cause",), steps: Steps = "auto") -> Result:
    """Why devices idle, and how far the hosts are ahead; see `traceview.analyzers.idle`."""
    return analyze(run, "idle", by=by, steps=steps)


def interference(run: Run, *, by: Sequence[str] = ("category",), steps: Steps = "auto") -> Result:
    """What overlap costs the kernels that communication runs beside. See `analyze`."""
    return analyze(run, "interference", by=by, steps=steps)


def hideability(
    run: Run, *, by: Sequence[str] = ("axis", "collective", "role"), steps: Steps = "auto"
) -> Result:
    """Which communication could be hidden, and which never. See `analyze`."""
    return analyze(run, "hideability", by=by, steps=steps)


def compare(
    before: Run,
    after: Run,
    *,
    by: Sequence[str] = ("phase",),
    steps: Steps | tuple[Steps, Steps] = "auto",
    log_step_ns: tuple[float | None, float | None] = (None, None),
) -> Comparison:
    """Whether ``after`` beats ``before``, and where: differences per rank and step, with their certainty.

    Args:
        before: The first run; differences are relative to it.
        after: The second run; the same one with other steps compares parts of a run.
        by: Labels that rows are told apart by beside axis and role: ``phase``, ``layer``.
        steps: Steps of both, or of each; see `contracts.Options`.
        log_step_ns: Step times of both without a profiler, where they are known.

    Raises:
        UsageError: Rows cannot be told apart by one of ``by``.
    """
    asked = comparison.questions(by)
    chosen = steps if isinstance(steps, tuple) else (steps, steps)
    first, second = (
        comparison.Side(run, *(result.frame for result in analyze_all(run, asked, steps=which)))
        for run, which in zip((before, after), chosen, strict=True)
    )
    return comparison.compare(first, second, log_step_ns=log_step_ns)


def efficiency(run: Run, *, by: Sequence[str] = (), steps: Steps = "auto") -> Result:
    """How much of the device time is useful work, as a product of factors. See `analyze`."""
    return analyze(run, "efficiency", by=by, steps=steps)


def scaling(
    runs: Sequence[Run],
    *,
    tokens_per_step: int | Mapping[str, int] | None = None,
    experts: int | Mapping[str, int] | None = None,
    steps: Steps = "auto",
) -> Scaling:
    """What of its speed a rank retains as the job grows, and what the rest is lost to.

    Args:
        runs: Runs of jobs of different size, each under a name of its own.
        tokens_per_step: Tokens that a whole job trains on in a step: of every run, or by name of the run;
            where there is no number for a run, that of its ``run.toml``.
        experts: Routed experts of the model, likewise.
        steps: Steps to look at.

    Raises:
        UsageError: Names repeat, or a number is given for a run that is not there.
    """
    asked = list(comparing.QUESTIONS.items())
    names = [run.name for run in runs]
    tokens = _by_name(tokens_per_step, names, "tokens_per_step")
    of_model = _by_name(experts, names, "experts")
    return comparing.scaling(
        [
            comparing.Size(
                name=run.name,
                rank_count=run.world_size or len(run.ranks),
                recorded_count=len(run.ranks),
                is_world_known=run.world_size is not None,
                answers={
                    result.analysis.name: result.frame for result in analyze_all(run, asked, steps=steps)
                },
                tokens_per_step=tokens.get(run.name, run.recipe.tokens_per_step),
                experts=of_model.get(run.name, run.recipe.model.experts if run.recipe.model else None),
            )
            for run in runs
        ]
    )


def _by_name(given: int | Mapping[str, int] | None, names: Sequence[str], what: str) -> Mapping[str, int]:
    """A number per run that has one."""
    if not isinstance(given, Mapping):
        return {} if given is None else dict.fromkeys(names, given)
    if strangers := sorted(set(given) - set(names)):
        message = f"{what}: there is no run '{strangers[0]}'; there are: {', '.join(names)}."
        raise UsageError(message)
    return given


def counters(run: Run, *, by: Sequence[str] = ("metric",), steps: Steps = "auto") -> Result:
    """What memory, SMs, DRAM and links read, and what while communication was exposed. See `analyze`."""
    return analyze(run, "counters", by=by, steps=steps)


def kernels(run: Run, *, by: Sequence[str] = ("category",), steps: Steps = "auto") -> Result:
    """Which kernels take the device's time. See `analyze`."""
    return analyze(run, "kernels", by=by, steps=steps)


def roofline(
    run: Run, *, by: Sequence[str] = ("operator", "precision", "name"), steps: Steps = "auto"
) -> Result:
    """How fast matrix products run, and how fast they could. See `analyze`."""
    return analyze(run, "roofline", by=by, steps=steps)


def ranges(run: Run, *, by: Sequence[str] = ("name",), steps: Steps = "auto") -> Result:
    """What annotations cost on the device. See `analyze`."""
    return analyze(run, "ranges", by=by, steps=steps)


def mfu(run: Run, *, steps: Steps = "auto", **said: Any) -> Utilization:  # noqa: ANN401 - the fields of Asked
    """How much of the GPUs' peak ``run`` reaches; what is not known is withheld, with the reason.

    Args:
        run: The run; what ``run.toml`` beside its traces says need not be repeated.
        steps: Steps to look at.
        said: Fields of `terms.Asked`, with model and GPU by name: ``model="deepseek-v3"``, ``seq_len=4096``,
            ``global_batch_size=15360``, ``gpu="GB300"`` ...

    Raises:
        UsageError: Something said is not known.
    """
    return utilization_of(run, Asked.of(**said), steps=steps)


def utilization_of(run: Run, asked: Asked, *, steps: Steps = "auto") -> Utilization:
    """The same, asked with an object; see `mfu`."""
    windows = analyze(run, "breakdown", by=("rank", "step"), steps=steps)
    return utilization.of_run(run, windows.frame, asked)


def report(  # noqa: PLR0913 - what a page may be asked for
    run: Run,
    path: str | Path,
    *,
    baseline: Run | None = None,
    title: str | None = None,
    compact: bool = False,
    steps: Steps = "auto",
) -> Path:
    """Writes everything about ``run`` as one HTML page that needs no network; the file it wrote.

    Args:
        run: The run.
        path: File to write; an earlier one is replaced at the end.
        baseline: Run that the numbers at the top are compared with.
        title: Of the page; else the name of the run.
        compact: Half the size, for browsers of 2023 and newer.
        steps: Steps to look at, as in `analyze`.
    """
    page = Path(path)
    sink.write(compose(run, baseline=baseline, title=title, steps=steps).html(compact=compact), page)
    return page


def compose(
    run: Run, *, baseline: Run | None = None, title: str | None = None, steps: Steps = "auto"
) -> Report:
    """Everything about ``run`` as data, from one look at each rank; see `report`."""
    from traceview.reports import report as reports  # noqa: PLC0415 - sections load what draws

    sections = registry.sections()
    before = None
    if baseline is not None:
        before = baseline.name, reports.figures(baseline, _answers(baseline, reports.HEAD, steps))
    frames = _answers(run, reports.questions(sections), steps)
    return reports.compose(run, frames, sections, title=title, baseline=before)


def clock_fit(run: Run) -> Result:
    """How the clocks of the hosts differ, and how exactly that is known. See `analyze`."""
    return analyze(run, "clocks", by=("rank",), steps="all")


def timeline(run: Run, *, step: int | None = None, most_bars: int = 1_000_000) -> Timeline:
    """What ran when on every rank of ``run``, on one clock.

    Args:
        run: The run; `load` with ``ranks`` to see fewer.
        step: Only this step.
        most_bars: Beyond so many, short bars are drawn together.

    Raises:
        UsageError: No rank has this step.
    """
    from traceview.reports import lanes  # noqa: PLC0415 - like every page, loaded where it is asked for
    from traceview.reports import timeline as timelines  # noqa: PLC0415 - likewise

    if step is not None and not any(step in trace.table("steps")["step"] for trace in run.traces):
        message = f"run '{run.name}' has no step {step}."
        raise UsageError(message)
    corrections = lanes.clocks(clock_fit(run).frame)
    return timelines.compose(run.traces, corrections, step=step, most_bars=most_bars)


def export_perfetto(run: Run, path: str | Path, *, step: int | None = None) -> Path:
    """Writes ``run`` as one merged trace for Perfetto, gzipped; the file it wrote.

    Args:
        run: The run; `load` with ``ranks`` to see fewer.
        path: File to write; an earlier one is replaced at the end.
        step: Only this step.
    """
    from traceview.reports import perfetto  # noqa: PLC0415 - like every page, loaded where it is asked for

    merged = timeline(run, step=step, most_bars=sys.maxsize)
    with sink.replacing(Path(path)) as file:
        perfetto.write(merged, file)
    return Path(path)


def _answers(
    run: Run, questions: Sequence[tuple[str, tuple[str, ...]]], steps: Steps
) -> dict[tuple[str, tuple[str, ...]], pl.DataFrame]:
    """The answer to each question."""
    results = analyze_all(run, questions, steps=steps)
    return {question: result.frame for question, result in zip(questions, results, strict=True)}


# --- reading -----------------------------------------------------------------------------------------


def _read_all(candidates: Sequence[Candidate], loading: Loading) -> list[list[Trace] | TraceViewError]:
    registry.parsers()  # plugins that clash are one error, and not one for each file
    registry.classifier()
    large = sum(candidate.source.size for candidate in candidates) > SPILL_BYTES
    cache = loading.cache or (store.default_folder() if large else None)
    workers = (loading.workers or jobs.default_workers()) if cache else 1
    read = partial(_read, rules=loading.rules, cache=cache)
    return jobs.run_jobs(read, candidates, workers=workers, progress=loading.progress)


def _read(candidate: Candidate, *, rules: Path | None, cache: Path | None) -> list[Trace]:
    """The prepared traces of one file, from the cache if they are there."""
    classifier = registry.classifier(rules)
    source = candidate.source
    with stages.stage("read"):
        parser = inputs.parser_for(source, registry.parsers())
    if cache is None:
        return [_prepared(trace, classifier) for trace in _parsed(parser, source)]
    folder = cache / store.key(source.path, parser.name, parser.version, classifier.digest)
    if not store.is_whole(folder / "0"):
        for number, trace in enumerate(_parsed(parser, source)):
            store.write(_prepared(trace, classifier), folder / str(number))
    with stages.stage("read", "cache"):
        return [store.read(part) for part in sorted(folder.iterdir()) if store.is_whole(part)]


def _parsed(parser: Parser, source: Source) -> list[Trace]:
    with stages.stage("parse", parser.name):
        return parser.parse(source)


def _prepared(trace: Trace, classifier: Classifier) -> Trace:
    with stages.stage("prepare"):
        return prepare(trace, classifier)


def _with_recipe(run: Run) -> Run:
    """``run`` with what stands in ``run.toml`` beside it."""
    if Path(run.traces[0].facts.path).name.startswith(inputs.STDIN_PREFIX):
        return run
    found, notes = recipe.read(run.folder)
    return replace(run, recipe=found, notes=pl.concat([run.notes, notes]))


def _nothing_usable(
    places: Sequence[PLACE], candidates: Sequence[Candidate], outcomes: Sequence[list[Trace] | TraceViewError]
) -> TraceViewError:
    """The one error that explains why no file could be used."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, TraceViewError)]
    if len(errors) == 1:
        return errors[0]
    reasons = [str(error).splitlines()[0] for error in errors]
    shown = "\n".join(f"  {reason}" for reason in reasons[:5])
    more = f"\n  and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    where = ", ".join(map(str, places))
    return NoTraceError(f"no usable trace at '{where}' ({len(candidates)} files looked at):\n{shown}{more}")


def _left_out_plugins() -> list[pl.DataFrame]:
    """A warning for every plugin that cannot be used."""
    broken = [found for found in registry.contributed() if isinstance(found, Broken)]
    return [diagnostic("warning", "plugin.broken", str(found), count=1) for found in broken]


def _skipped(
    candidates: Sequence[Candidate], outcomes: Sequence[list[Trace] | TraceViewError]
) -> list[pl.DataFrame]:
    """Diagnostics for files that were not used: an error for traces, a remark for other files."""
    notes = []
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        if not isinstance(outcome, TraceViewError):
            continue
        foreign = isinstance(outcome, UnknownFormatError) and not candidate.named
        severity, code = ("info", "input.not_a_trace") if foreign else ("error", "input.skipped")
        notes.append(diagnostic(severity, code, str(outcome).replace("\n", " "), count=1))
    return notes
