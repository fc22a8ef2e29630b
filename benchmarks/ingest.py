"""Load and summarise a Kineto trace: traceview beside HolisticTraceAnalysis, in one run.

Usage: python benchmarks/ingest.py [TRACE ...] [--mb 300] [--repeat 3] [--peers hta,traceinsight]

Every measurement is a fresh process: CPU seconds (user + system), wall seconds and peak RSS. Imports and a
small trace read first to warm up count in neither time; all tools read the same uncompressed bytes. Peers
are installed into a virtual environment of their own under the folder given by --work. Without TRACE a
synthetic file of --mb megabytes is written first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from traceview.synth import PRESETS, write

TRACEVIEW = """
import json, resource, sys, time
import polars, numpy, msgspec, traceview as tv
from traceview import registry
from traceview.classify import Classifier
registry.parsers(); registry.analyses(); Classifier.default()
def work(path):
    run = tv.load(path, workers=1, cache=None)
    tv.breakdown(run, steps="all")
    tv.overlap(run, by=("axis", "collective"), steps="all")

work(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, cpu = time.perf_counter(), time.process_time()
work(sys.argv[1])
took = time.perf_counter() - wall, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"wall": took[0], "cpu": took[1], "peak_mb": peak / 1024, "base_mb": before / 1024}))
"""

HTA = """
import json, os, resource, sys, time, warnings
warnings.filterwarnings("ignore")
import logging; logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
def work(path):
    folder = os.path.dirname(path)
    run = TraceAnalysis(trace_files={0: path}, trace_dir=folder, include_last_profiler_step=True)
    run.get_comm_comp_overlap(visualize=False)
    run.get_temporal_breakdown(visualize=False)

work(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, cpu = time.perf_counter(), time.process_time()
work(sys.argv[1])
took = time.perf_counter() - wall, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
children = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = took[1] + children.ru_utime + children.ru_stime
print(json.dumps({"wall": took[0], "cpu": cpu, "peak_mb": peak / 1024, "base_mb": before / 1024}))
"""

PEERS = {
    # pandas 3 breaks both on small traces; the bound gives them their best case
    "hta": ("HolisticTraceAnalysis==0.5.0", HTA),
    "traceinsight": ("traceinsight==0.6.1", HTA),
}


@dataclass(frozen=True)
class Measured:
    """Medians of one tool on one file."""

    wall: float
    cpu: float
    peak_mb: float
    base_mb: float


def small(folder: Path) -> Path:
    """One rank of a synthetic run, for warming up."""
    write(PRESETS["ep8-nccl-overlap"], folder / "seed", compress=False)
    return folder / "seed" / "rank0_trace.json"


def synthetic(folder: Path, megabytes: int) -> Path:
    """A Kineto file of about ``megabytes``: one rank of a synthetic run, its window repeated in time."""
    seed = small(folder)
    document = json.loads(seed.read_bytes())
    events = document["traceEvents"]
    stamps = [event["ts"] for event in events if "ts" in event]
    span = max(stamps) - min(stamps) + 1000
    one = ",\n  ".join(json.dumps(event) for event in events)
    copies = max(1, megabytes * 1_000_000 // len(one))
    path = folder / f"synthetic-{megabytes}mb.json"
    with path.open("w") as out:
        header = {key: value for key, value in document.items() if key != "traceEvents"}
        out.write(json.dumps(header)[:-1] + ', "traceEvents": [\n  ')
        for copy in range(copies):
            shifted = [_shifted(event, copy, span) for event in events]
            out.write((",\n  " if copy else "") + ",\n  ".join(map(json.dumps, shifted)))
        out.write("\n]}")
    return path


def _shifted(event: dict[str, object], copy: int, span: float) -> dict[str, object]:
    moved = dict(event)
    if "ts" in moved:
        moved["ts"] = round(float(str(moved["ts"])) + copy * span, 3)
    if str(moved.get("name", "")).startswith("ProfilerStep#"):
        moved["name"] = f"ProfilerStep#{int(str(moved['name']).partition('#')[2]) + 100 * copy}"
    args = moved.get("args")
    if isinstance(args, dict) and "correlation" in args:
        moved["args"] = args | {"correlation": args["correlation"] + copy * 1_000_000}
    return moved


def peer_python(work: Path, name: str) -> Path:
    """The interpreter of an environment that has the peer, made once."""
    home = work / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEERS[name][0], "pandas<3"], check=True)
    return python


def measure(python: Path | str, program: str, files: tuple[Path, Path], repeat: int) -> Measured | None:
    """Medians over ``repeat`` fresh processes; ``files`` are the trace and one to warm up with."""
    runs = []
    for _ in range(repeat):
        done = subprocess.run(
            [python, "-c", program, *map(str, files)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"  failed: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}")
            return None
        runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    median = {
        key: statistics.median(run[key] for run in runs) for key in ("wall", "cpu", "peak_mb", "base_mb")
    }
    return Measured(**median)


def main() -> None:
    """Measures every trace with traceview and the peers, and prints ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", default="hta,traceinsight")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "traceview-bench")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    traces = chosen.traces or [synthetic(chosen.work, chosen.mb)]
    warm = small(chosen.work)
    peers = [name for name in chosen.peers.split(",") if name]
    print(
        f"{'trace':42} {'tool':14} {'MB':>6} {'wall s':>7} {'CPU s':>7} {'peak MB':>8} {'x CPU':>6}"
        f" {'x RSS':>6}"
    )
    for trace in traces:
        plain = _plain(trace, chosen.work)
        size = plain.stat().st_size / 1e6
        ours = measure(sys.executable, TRACEVIEW, (plain, warm), chosen.repeat)
        if ours is None:
            continue
        _print(trace.name, "traceview", size, ours, ours)
        for name in peers:
            theirs = measure(peer_python(chosen.work, name), PEERS[name][1], (plain, warm), chosen.repeat)
            if theirs:
                _print("", name, size, theirs, ours)


def _plain(trace: Path, work: Path) -> Path:
    """The trace uncompressed, so that every tool reads the same bytes and none is charged for inflating."""
    if trace.suffix != ".gz":
        return trace
    plain = work / "plain" / trace.stem
    plain.parent.mkdir(exist_ok=True)
    with gzip.open(trace) as source, plain.open("wb") as out:
        shutil.copyfileobj(source, out)
    return plain


def _print(trace: str, tool: str, size: float, measured: Measured, ours: Measured) -> None:
    ratio, memory = measured.cpu / ours.cpu, measured.peak_mb / ours.peak_mb
    print(
        f"{trace[:42]:42} {tool:14} {size:6.1f} {measured.wall:7.2f} {measured.cpu:7.2f}"
        f" {measured.peak_mb:8.0f} {ratio:6.1f} {memory:6.1f}"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
