"""The command line from outside: what it prints where, and the code it leaves with."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from traceview import api, cli
from traceview.commands import _options, _traces
from traceview.commands._gate import Condition
from traceview.errors import TraceViewError

# --- a trace small enough to work out by hand ---------------------------------------------------------

FIRST_STEP, STEP_COUNT, STEP_US = 5, 3, 1000


def kineto(
    rank: int = 0, *, world_size: int = 2, gemm_us: int = 600, name: str = "ampere_gemm_128x64"
) -> dict[str, Any]:
    """Three steps of 1000 us: a GEMM at [0, ``gemm_us``), an expert-parallel all-to-all at [500, 800).

    Step windows tile from first kernel to first kernel, so the last one ends with its work, at 800 us.
    """
    host: dict[str, Any] = {"ph": "X", "pid": 100, "tid": 1}
    device: dict[str, Any] = {"ph": "X", "cat": "kernel", "pid": 0}
    collective = {
        "Collective name": "all_to_allv",
        "dtype": "BFloat16",
        "In msg nelems": 4096,
        "Out msg nelems": 4096,
        "Group size": world_size,
        "Process Group Name": "7",
        "Process Group Description": "EXPERT_MODEL_PARALLEL_GROUP",
    }
    events = []
    for number in range(STEP_COUNT):
        begin = 1_000_000 + number * STEP_US
        marker = {
            "cat": "user_annotation",
            "name": f"ProfilerStep#{FIRST_STEP + number}",
            "ts": begin,
            "dur": 900,
        }
        events.append(host | marker)
        kernels = [
            (name, 0, gemm_us, 7, {}),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 500, 300, 20, collective),
        ]
        for place, (kernel, offset, length, stream, args) in enumerate(kernels):
            link = {"correlation": 10 * number + place + 1}
            call = {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": begin + 5 + place,
                "dur": 1,
                "args": link,
            }
            where = {"device": 0, "stream": stream, **link, **args}
            work = {"name": kernel, "tid": stream, "ts": begin + offset, "dur": length, "args": where}
            events += [host | call, device | work]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
        "traceEvents": events,
    }


EXPECTED = {
    "window_ns": 2_800_000,
    "compute_ns": 1_800_000,
    "comm_ns": 900_000,
    "hidden_comm_ns": 300_000,
    "exposed_comm_ns": 600_000,
    "exposed_copy_ns": 0,
    "idle_ns": 400_000,
}
"""Of one rank, over its three steps."""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the traces of two ranks; rank 1 computes longer, so it hides all but 50 us."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank, gemm_us in ((0, 600), (1, 750)):
        text = json.dumps(kineto(rank, gemm_us=gemm_us)).encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text))
    return folder


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, arguments)))


def rows_of(result: Result, table: str) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)[table]
    return rows


# --- results -----------------------------------------------------------------------------------------


def test_the_breakdown_is_the_one_worked_out_by_hand(job: Path) -> None:
    rank0, rank1 = rows_of(call("summary", job, "-f", "json"), "breakdown")
    assert next(iter(rank0)) == "run"
    assert {name: rank0[name] for name in EXPECTED} == EXPECTED
    assert rank0["overlap_ratio"] == pytest.approx(1 / 3)
    assert rank1["exposed_comm_ns"] == 3 * 50_000


def test_the_whole_window_of_one_rank_is_one_row(job: Path) -> None:
    result = call("summary", job / "rank0.json.gz", "--steps", "all", "--by", "rank", "-f", "json")
    (row,) = rows_of(result, "breakdown")
    assert row["step"] is None
    assert row["window_ns"] == EXPECTED["window_ns"]


def test_a_range_of_steps_is_half_open(job: Path) -> None:
    rows = rows_of(call("summary", job, "--steps", "5:7", "--by", "step", "-f", "json"), "breakdown")
    assert [row["step"] for row in rows] == [5, 6]


def test_left_out_steps_are_told_in_json(job: Path) -> None:
    content = json.loads(call("summary", job, "--steps", "6:7", "-f", "json").stdout)
    (run,) = content["runs"]
    assert run["steps_used"] == [6]
    assert {left["step"] for left in run["steps_left_out"]} == {5, 7}
    assert {row["used"] for row in content["steps"] if row["step"] == 6} == {True}


def test_ranks_can_be_chosen(job: Path) -> None:
    assert [
        row["rank"] for row in rows_of(call("summary", job, "--ranks", "1,3-9", "-f", "json"), "breakdown")
    ] == [1]


def test_step_time_pools_the_rank_steps(job: Path) -> None:
    (time,) = rows_of(call("summary", job, "-f", "json"), "step_time")
    assert (time["step_count"], time["rank_step_count"]) == (3, 6)
    assert time["median_ns"] == 1_000_000
    assert time["low_ns"] is None


def test_exposed_time_is_handed_to_its_axis(job: Path) -> None:
    (row,) = rows_of(call("overlap", job, "--by", "axis", "-f", "json"), "rows")
    assert (row["axis"], row["comm_ns"], row["exclusive_ns"]) == ("ep", 1_800_000, 600_000 + 150_000)


def test_a_label_in_by_regroups_the_communication_and_leaves_the_breakdown(job: Path) -> None:
    content = json.loads(call("summary", job, "--by", "collective", "-f", "json").stdout)
    assert [row["rank"] for row in content["breakdown"]] == [0, 1]
    assert [(row["collective"], row["axis"]) for row in content["collectives"]] == [("all_to_all", None)]


def test_the_same_question_gives_the_same_bytes(job: Path) -> None:
    assert call("summary", job, "-f", "json").stdout == call("summary", job, "-f", "json").stdout


def test_the_page_ends_with_the_verdict(job: Path) -> None:
    lines = call("summary", job).stdout.splitlines()
    exposed, window = 600_000 + 150_000, 2 * 2_800_000
    assert lines[-1].startswith(
        f"{100 * exposed / window:.1f} % of the step is exposed communication, mostly ep"
    )
    assert lines[-1].endswith("58.3 % of communication is hidden.")  # 1,050 of 1,800 us
    assert any(line.split() == ["ranks", "2", "of", "2", "(0-1)"] for line in lines)


def test_the_page_shows_few_rows_of_many_ranks(tmp_path: Path) -> None:
    for rank in range(9):
        trace = kineto(rank, world_size=9, gemm_us=810 + rank)  # the last window grows with the rank
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    lines = call("summary", tmp_path).stdout.splitlines()
    shown = [
        line.partition("  ")[0] for line in lines if line.startswith(("fastest", "median", "slowest", "all"))
    ]
    assert shown == ["fastest: rank 0", "median: rank 4", "slowest: rank 8", "all"]


def test_runs_are_shown_apart_and_never_mixed(job: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "job"
    other.mkdir(parents=True)
    (other / "rank0.json").write_text(json.dumps(kineto(0, gemm_us=100)))
    result = call("summary", job, other, "-f", "json")
    names = [row["run"] for row in rows_of(result, "breakdown")]
    assert len(names) == 3
    assert len(set(names)) == 2
    assert call("summary", job, other).stdout.count("% of communication is hidden.") == 2


def test_csv_is_one_table_with_one_header(job: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call("summary", job, "-f", "csv").stdout)))
    assert [(row["run"], row["rank"], row["idle_ns"]) for row in rows] == [
        ("job", "0", "400000"),
        ("job", "1", "400000"),
    ]


def test_info_counts_what_is_there_and_names_what_is_missing(job: Path) -> None:
    content = json.loads(call("info", job, "-f", "json").stdout)
    row = content["rows"][1]
    assert (row["rank"], row["rank_source"], row["world_size"]) == (1, "distributedInfo", 2)
    assert (row["step_count"], row["op_count"], row["stream_count"], row["collective_count"]) == (3, 6, 2, 3)
    assert row["span_ns"] == EXPECTED["window_ns"]
    assert row["device_name"] == "NVIDIA H100 80GB HBM3"
    assert {"shapes", "layers", "process_groups"} <= set(row["missing"])
    assert not {"rank", "steps", "launches", "collective_metadata"} & set(row["missing"])
    assert {gap["code"] for gap in content["missing"]} == set(row["missing"])


def test_doctor_needs_no_trace() -> None:
    rows = {row["name"]: row["value"] for row in rows_of(call("doctor", "-f", "json"), "rows")}
    assert rows["click"] == metadata.version("click")
    assert int(rows["cores"]) >= 1
    assert "cache" in rows


def test_presets_can_be_listed_and_written(tmp_path: Path) -> None:
    listed = call("synth", "--list").stdout.split()
    assert "ep8-nccl" in listed
    result = call("synth", "ep8-nccl", "-o", tmp_path / "out")
    assert result.exit_code == 0
    written = [Path(line) for line in result.stdout.splitlines()]
    assert set(written) == set((tmp_path / "out").iterdir())
    assert f"wrote {len(written)} files" in result.stderr


# --- output ------------------------------------------------------------------------------------------


def test_a_file_gets_the_result_and_stderr_the_remark(job: Path, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    result = call("summary", job, "-f", "json", "-o", target)
    assert result.stdout == ""
    assert f"wrote {target}" in result.stderr
    assert json.loads(target.read_text())["schema"] == "traceview/summary/1"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    assert call("summary", job, "-f", "json", "-o", target, "-q").stderr == ""


def test_an_unwritable_output_is_an_error_with_its_path(job: Path, tmp_path: Path) -> None:
    target = tmp_path / "nowhere" / "result.json"
    result = call("summary", job, "-o", target)
    assert result.exit_code == cli.USAGE
    assert "nowhere" in result.stderr
    assert not target.exists()


def test_a_device_is_written_to_and_not_replaced(job: Path) -> None:
    assert call("summary", job, "-o", os.devnull).exit_code == 0
    assert Path(os.devnull).is_char_device()


def test_names_from_traces_cannot_steer_the_terminal(tmp_path: Path) -> None:
    trace = kineto()
    trace["deviceProperties"][0]["name"] = "H100\x1b[2J\u202e"
    (tmp_path / "rank0.json").write_text(json.dumps(trace, ensure_ascii=False), encoding="utf-8")
    for command in ("info", "summary"):
        page = call(command, tmp_path).stdout
        assert "H100" in page
        assert "\x1b" not in page
        assert "\u202e" not in page


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_unicode_is_shown_and_does_not_fail(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"job\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"rank0\xff.json")).write_text(json.dumps(kineto()))
    for command in ("info", "summary", "overlap"):
        for form in ("table", "json", "csv", "md"):
            result = call(command, folder, "-f", form)
            assert result.exit_code == 0, result.stderr


def test_verbose_names_each_file_on_stderr(job: Path) -> None:
    result = call("info", job, "-v", "-f", "json")
    assert "read 2 of 2: rank1.json.gz" in result.stderr
    assert json.loads(result.stdout)["schema"] == "traceview/info/1"
    assert call("info", job).stderr == ""


# --- exit codes --------------------------------------------------------------------------------------


def test_a_condition_that_holds_exits_1_after_the_result(job: Path) -> None:
    result = call("summary", job, "-f", "json", "--fail-on", "exposed_comm_ratio > 0.2")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["breakdown"]) == 2
    assert "rank=0" in result.stderr
    assert "rank=1" not in result.stderr


def test_a_condition_that_does_not_hold_changes_nothing(job: Path) -> None:
    assert (
        call("summary", job, "--fail-on", "exposed_comm_ratio>0.9", "--fail-on", "idle_ns<0").exit_code == 0
    )


def test_an_unknown_ratio_fails_no_gate(tmp_path: Path) -> None:
    trace = kineto()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith("nccl")]
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    assert (
        call("summary", tmp_path, "--fail-on", "overlap_ratio<0.5", "--fail-on", "overlap_ratio!=2").exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--fail-on", "nonsense_ratio>1"], "exposed_comm_ratio"),
        (["--fail-on", "run>1"], "exposed_comm_ratio"),
        (["--fail-on", "__import__('os')"], "no condition"),
        (["--by", "galaxy"], "axis"),
        (["--steps", "7:7"], "5:10"),
        (["--steps", "0:99999999999"], "too long"),
        (["--steps", "soon"], "auto"),
        (["--ranks", "7-3"], "backwards"),
        (["--ranks", "one"], "0-7"),
        (["--ranks", "64"], "none of the ranks"),
        (["--format", "xml"], "json"),
        (["--jobs", "0"], "0"),
    ],
)
def test_a_wrong_request_exits_2_and_says_what_would_be_right(
    job: Path, arguments: list[str], hint: str
) -> None:
    result = call("summary", job, *arguments)
    assert result.exit_code == 2
    assert hint in result.stderr
    assert result.stdout == ""


def test_no_usable_trace_exits_3(tmp_path: Path) -> None:
    missing = call("summary", tmp_path / "nowhere")
    (tmp_path / "empty.json").touch()
    empty = call("info", tmp_path / "empty.json")
    for result in (missing, empty):
        assert result.exit_code == 3
        assert result.stderr.startswith("Error: ")
        assert "Hint: " in result.stderr
        assert "Traceback" not in result.stderr


def test_a_skipped_trace_exits_4_unless_that_is_allowed(job: Path, tmp_path: Path) -> None:
    broken = tmp_path / "rank2.json"
    broken.write_text('{"traceEvents": []}')
    arguments = ("summary", job, broken, "-f", "json")
    result = call(*arguments)
    assert result.exit_code == 4
    assert len(json.loads(result.stdout)["breakdown"]) == 2
    assert "rank2.json" in result.stderr
    assert call(*arguments, "--allow-partial").exit_code == 0
    assert call(*arguments, "--allow-partial", "--fail-on", "window_ns>0").exit_code == 1


def test_an_interrupt_exits_130_without_a_traceback(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "load_runs", interrupted)
    result = call("summary", job)
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


def test_a_bug_does_not_quote_the_trace_and_debug_shows_where(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*_: object, **__: object) -> None:
        message = "token=secret"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(api, "load_runs", buggy)
    result = call("summary", job)
    assert result.exit_code == cli.BUG
    assert "ZeroDivisionError in traceview.commands._traces:" in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" in call("summary", job, "--debug").stderr


def test_debug_keeps_the_exit_code_of_an_error(tmp_path: Path) -> None:
    result = call("summary", tmp_path / "nowhere", "--debug")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr


def test_an_error_message_cannot_steer_the_terminal(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(*_: object, **__: object) -> None:
        message = "no trace at 'a\x1b[2J'.\nHint: none"
        raise TraceViewError(message)

    monkeypatch.setattr(api, "load_runs", hostile)
    result = call("summary", job)
    assert "\x1b" not in result.stderr
    assert result.stderr.endswith("\nHint: none\n")


# --- pieces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a>0.2", ("a", ">", 0.2)),
        (" a_ns <= -1e6 ", ("a_ns", "<=", -1e6)),
        ("a==.5", ("a", "==", 0.5)),
        ("a>b", None),
        ("a>1; b>2", None),
        ("a>nan", None),
        ("1>a", None),
        ("", None),
    ],
)
def test_a_condition_is_one_column_one_operator_one_number(
    text: str, parsed: tuple[str, str, float] | None
) -> None:
    condition = Condition.parse(text)
    assert (condition and (condition.column, condition.operator, condition.threshold)) == parsed


def test_a_command_receives_its_options_as_one_request() -> None:
    seen = []

    @click.command()
    @_options.request(_options.READING, _options.ASKING, _options.OUTPUT, _options.REPORTING)
    def probe(request: _options.Request) -> None:
        seen.append(request)

    arguments = [
        "a",
        "b",
        "--ranks",
        "0-2,5",
        "--by",
        "rank,step",
        "--by",
        "axis,rank",
        "--steps",
        "3",
        "-vv",
    ]
    CliRunner().invoke(probe, [*arguments, "--no-progress", "--jobs", "4"], catch_exceptions=False)
    (request,) = seen
    assert request.places == ("a", "b")
    assert request.ranks == frozenset({0, 1, 2, 5})
    assert request.by == ("rank", "step", "axis")
    assert request.steps == range(3, 4)
    assert (request.verbosity, request.progress, request.workers) == (2, False, 4)


# --- as a process ------------------------------------------------------------------------------------


def _process(
    *arguments: str | Path, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "traceview", *map(str, arguments)],
        check=False,
        text=True,
        timeout=60,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


def test_exit_codes_leave_the_process(job: Path, tmp_path: Path) -> None:
    assert _process("summary", tmp_path / "nowhere").returncode == 3
    done = _process("summary", job, "--fail-on", "comm_ns>0")
    assert done.returncode == _traces.CONDITION_HOLDS
    assert done.stdout.rstrip().endswith("hidden.")


def test_a_reader_who_leaves_is_no_error(job: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _process("summary", job, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_ascii_terminal_gets_the_page_too(job: Path) -> None:
    done = _process("summary", job, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, traceview.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert loaded & {"polars", "numpy", "pyarrow", "holoviews", "bokeh", "rich"} == set()
    assert {name for name in loaded if name.startswith("traceview.commands.")} == set()
