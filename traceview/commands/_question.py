"""What a verb with one analysis does: ask it of every run, show the rows, and leave with the right code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from traceview.commands._options import Request
    from traceview.contracts import Analysis
    from traceview.reports.about import About
    from traceview.reports.layout import Block
    from traceview.reports.notices import Notice
    from traceview.run import Run


class Page(Protocol):
    """A report page of one run's rows, as the modules of `traceview.reports` have them."""

    def __call__(
        self, about: About, rows: pl.DataFrame, notices: tuple[Notice, ...], /, *, every_notice: bool
    ) -> Sequence[Block]:
        """The blocks of the page."""


def answer(
    request: Request, analysis: Analysis, page_of: Callable[[Run], Page], *, by: Sequence[str]
) -> None:
    """Answers ``analysis`` in the grain ``by``.

    Args:
        request: What the user asked for.
        analysis: The question.
        page_of: The page of a run; it is made only for the terminal.
        by: Grain of the rows, where the user names none.
    """
    from traceview import api
    from traceview.commands import _output, _questions, _traces
    from traceview.reports.about import About
    from traceview.reports.notices import notices

    for condition in request.fail_on:
        condition.check(analysis.result)
    _questions.check_grains(request.by, analysis.grains)
    runs = _traces.load(request)
    grain = request.by or tuple(by)
    frames = [api.analyze(run, analysis.name, by=grain, steps=request.steps).frame for run in runs]
    rows = _traces.tagged(frames, runs)

    def blocks() -> list[Block]:
        made: list[Block] = []
        for run, frame in zip(runs, frames, strict=True):
            found = tuple(notices(run.diagnostics))
            made += page_of(run)(About.of(run), frame, found, every_notice=request.verbosity > 0)
        return made

    found = _output.Answer(
        command=analysis.name,
        blocks=blocks,
        main=rows,
        tables={"rows": rows},
        runs=[About.of(run).as_dict() for run in runs],
        diagnostics=_traces.diagnostics(runs),
    )
    _output.deliver(found, request)
    _traces.leave(request, runs, rows)
