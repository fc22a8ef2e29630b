"""Traceview's own stages as NVTX ranges, seen by a stand-in for nvtx; off unless asked for."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import jobs, stages
from traceview.cli import main
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VARIABLE = "TRACEVIEW_NVTX"
TINY = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=2, microbatches=1, layers=1)


class Recorder:
    """An nvtx that writes down the ranges that were opened and closed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.open = 0
        self.domains: set[str] = set()

    @contextmanager
    def annotate(self, message: str, domain: str) -> Iterator[None]:
        self.opened.append(message)
        self.domains.add(domain)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "nvtx", recorder)
    monkeypatch.setattr(stages, "_nvtx", None)
    return recorder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(TINY, folder)
    return folder


def test_nothing_is_marked_unless_asked_for(nvtx: Recorder, job: Path) -> None:
    assert CliRunner().invoke(main, ["overlap", str(job)], env={VARIABLE: None}).exit_code == 0
    assert CliRunner().invoke(main, ["overlap", str(job)], env={VARIABLE: "0"}).exit_code == 0
    assert nvtx.opened == []
    assert not stages.enabled()


def test_every_stage_of_a_command_is_marked_in_our_domain_and_closed(nvtx: Recorder, job: Path) -> None:
    result = CliRunner().invoke(main, ["overlap", str(job), "-f", "json"], env={VARIABLE: "1"})
    assert result.exit_code == 0
    assert nvtx.domains == {"traceview"}
    assert nvtx.open == 0
    per_rank = ["read", "parse kineto", "prepare"]
    assert nvtx.opened[:6] == [*per_rank, *per_rank]
    assert nvtx.opened[6:] == ["map overlap", "map overlap", "reduce overlap", "render json"]


def test_a_cached_trace_is_read_and_not_parsed(nvtx: Recorder, job: Path, tmp_path: Path) -> None:
    tv.load(job, cache=tmp_path, workers=1)
    stages.enable()
    tv.load(job, cache=tmp_path, workers=1)
    assert nvtx.opened == ["read", "read cache"] * 2


def test_a_stage_that_fails_is_closed(nvtx: Recorder, tmp_path: Path) -> None:
    stages.enable()
    (tmp_path / "rank0.json").write_text('{"traceEvents": [}')
    with pytest.raises(tv.TraceViewError):
        tv.load(tmp_path / "rank0.json")
    assert nvtx.opened
    assert nvtx.open == 0


def test_a_page_is_marked_too(nvtx: Recorder, job: Path, tmp_path: Path) -> None:
    stages.enable()
    tv.report(tv.load(job), tmp_path / "r.html")
    assert nvtx.opened[-1] == "render html"


def test_worker_processes_mark_theirs_if_and_only_if_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Any] = []

    class Pool:
        def __init__(self, _workers: int, **how: Any) -> None:
            pools.append(how["initializer"])
            raise KeyboardInterrupt  # nothing more is asked of it

    monkeypatch.setattr(jobs, "ProcessPoolExecutor", Pool)
    for module in (None, Recorder()):
        monkeypatch.setattr(stages, "_nvtx", module)
        with pytest.raises(KeyboardInterrupt):
            jobs.run_jobs(str, [1, 2], workers=2)
    assert pools == [None, stages.enable]


def test_a_process_without_the_wish_never_loads_nvtx(job: Path) -> None:
    code = (
        f"import sys; sys.argv = ['traceview', 'overlap', {str(job)!r}]\n"
        "from traceview.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: assert not done.code\n"
        "assert 'nvtx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
