"""Read a SQLite export of Nsight Systems: traceview beside plain sqlite3, in one run.

Usage: python benchmarks/nsys.py [KERNELS] [--repeat 3] [--work DIR]     (default: 5000000 kernels)

The export has a kernel and a launch per kernel, 300 names, and a range every 100 launches. Every
measurement is a fresh process: CPU seconds (user + system), rows per CPU second, and peak RSS beyond that
after the imports. All read the same columns of the same tables; "parse" goes on to a whole trace: names,
launches and ranges in order, and checked. ADBC and pandas take part where they are installed. The ratios
say how many times faster than plain sqlite3 into polars a program is by CPU time, and how much more memory it
takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traceview.synth.nsys_tables import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = 300
_CHUNK = 100_000
_RANGE_EVERY = 100
_EPOCH_NS = 1_760_000_000_000_000_000
_PROCESS = 1 << 56 | 1 << 48 | 4711 << 24
_COLUMNS_OF = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId globalPid streamId correlationId demangledName "
    "shortName mangledName gridX gridY gridZ graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid nameId correlationId",
    "NVTX_EVENTS": "start end eventType globalTid text textId endGlobalTid domainId binaryData",
    "StringIds": "id value",
}
"""What traceview reads of these tables."""

_MEASURED = """
import json, resource, sqlite3, sys, time
from pathlib import Path
{setup}
path, queries = sys.argv[1], json.loads(sys.argv[2])
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu = time.process_time()
{work}
cpu = time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
print(json.dumps({{"cpu": cpu, "rows": rows, "peak_mb": peak / 1024}}))
"""

_ADBC = """
import adbc_driver_sqlite.dbapi as adbc
import polars as pl
"""

_TRACEVIEW = """
import numpy
import polars as pl
from traceview.source import Source
from traceview.parsers import _nsys_files
from traceview.parsers.nsys import PARSER
"""

_PROGRAMS = {
    "sqlite3 + polars": (
        "import polars as pl",
        """
rows, tables = 0, {}
connection = sqlite3.connect(path)
for table, query in queries.items():
    cursor, parts = connection.execute(query), []
    names = [column[0] for column in cursor.description]
    while batch := cursor.fetchmany(200_000):
        parts.append(pl.DataFrame(batch, schema=names, orient="row", infer_schema_length=None))
    tables[table] = pl.concat(parts, how="vertical_relaxed")
    rows += len(tables[table])
""",
    ),
    "pandas.read_sql": (
        "import pandas",
        """
connection = sqlite3.connect(path)
tables = {table: pandas.read_sql(query, connection) for table, query in queries.items()}
rows = sum(map(len, tables.values()))
""",
    ),
    "ADBC": (
        _ADBC,
        """
rows, tables = 0, {}
with adbc.connect(f"file:{path}?mode=ro&immutable=1") as connection:
    for table, query in queries.items():
        # a column is typed by its first batch, so nulls at its beginning would make it one of numbers
        typed = query.replace("text,", "ifnull(text, '') AS text,")
        typed = typed.replace("binaryData", "ifnull(binaryData, x'')")
        with connection.cursor(adbc_stmt_kwargs={"adbc.sqlite.query.batch_rows": 65_536}) as cursor:
            cursor.execute(typed)
            tables[table] = pl.from_arrow(cursor.fetch_arrow_table())
        rows += len(tables[table])
""",
    ),
    "traceview, tables": (
        _TRACEVIEW,
        """
with _nsys_files.opened(Source(Path(path))) as export:
    tables = {table: pl.concat(export.batches(table)) for table in queries}
rows = sum(map(len, tables.values()))
""",
    ),
    "traceview, parse": (
        _TRACEVIEW,
        """
[trace] = PARSER.parse(Source(Path(path)))
rows = sum(len(trace.table(name)) for name in ("ops", "launches", "ranges"))
""",
    ),
}
_YARDSTICK = "sqlite3 + polars"
_NEEDS = {"pandas.read_sql": "pandas", "ADBC": "adbc_driver_sqlite"}


def write_export(path: Path, kernels: int) -> None:
    """An export of one process with ``kernels`` kernels, one launch each."""
    names = [(number, f"void kernel_{number}<float, {number}>(Params)") for number in range(_NAMES)]
    names.append((_NAMES, "cudaLaunchKernel_v7000"))
    ranges = ((n * 5_000, (n + 90) * 5_000, 59, f"layer_{n % 48}f") for n in range(0, kernels, _RANGE_EVERY))
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in COLUMNS.items():
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
        _insert(connection, "StringIds", "id value", names)
        _insert(connection, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", [(_EPOCH_NS,)])
        nvtx = "start end eventType text globalTid domainId"
        _insert(connection, "NVTX_EVENTS", nvtx, ((*row, _PROCESS | 4711, 0) for row in ranges))
        for first in range(0, kernels, _CHUNK):
            _insert_work(connection, first, min(_CHUNK, kernels - first))
        connection.commit()


def _insert_work(connection: sqlite3.Connection, first: int, count: int) -> None:
    rng = np.random.default_rng(first)
    number = np.arange(first, first + count)
    launched = number * 5_000
    start = launched + rng.integers(4_000, 90_000, count)
    kernels = {
        "start": start,
        "end": start + rng.integers(1_000, 40_000, count),
        "deviceId": np.zeros_like(number),
        "contextId": np.ones_like(number),
        "streamId": rng.choice([7, 35, 39], count),
        "correlationId": number + 1,
        "globalPid": np.full_like(number, _PROCESS),
        "graphNodeId": np.zeros_like(number),
        "demangledName": rng.integers(0, _NAMES, count),
        "shortName": rng.integers(0, _NAMES, count),
        **{size: np.ones_like(number) for size in ("registersPerThread", "dynamicSharedMemory")},
        **{f"{what}{side}": rng.integers(1, 512, count) for what in ("grid", "block") for side in "XYZ"},
    }
    calls = {
        "start": launched,
        "end": launched + 3_000,
        "eventClass": np.zeros_like(number),
        "globalTid": np.full_like(number, _PROCESS | 4711),
        "correlationId": number + 1,
        "nameId": np.full_like(number, _NAMES),
        "returnValue": np.zeros_like(number),
    }
    for table, columns in {"KERNEL": kernels, "RUNTIME": calls}.items():
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        _insert(connection, f"CUPTI_ACTIVITY_KIND_{table}", " ".join(columns), rows)


def _insert(
    connection: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[object, ...]]
) -> None:
    names = columns.split()
    query = f'INSERT INTO "{table}" ({", ".join(names)}) VALUES ({", ".join("?" * len(names))})'  # noqa: S608 - our own names
    connection.executemany(query, rows)


def measure(program: str, path: Path) -> dict[str, float]:
    """One run of a program in a process of its own."""
    queries = {
        table: f'SELECT {", ".join(columns.split())} FROM "{table}"'  # noqa: S608 - our own names
        for table, columns in _COLUMNS_OF.items()
    }
    setup, work = _PROGRAMS[program]
    code = _MEASURED.format(setup=setup, work=work)
    command = [sys.executable, "-c", code, str(path), json.dumps(queries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measures every program on one export and prints a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("kernels", nargs="?", type=int, default=5_000_000)
    options.add_argument("--repeat", type=int, default=3, help="runs of each program; the median counts")
    options.add_argument("--work", type=Path, help="folder for the export (default: a temporary one)")
    given = options.parse_args()
    programs = [
        name for name in _PROGRAMS if name not in _NEEDS or importlib.util.find_spec(_NEEDS[name]) is not None
    ]
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        path = Path(folder) / "report.sqlite"
        write_export(path, given.kernels)
        print(f"{given.kernels:,} kernels, {path.stat().st_size / 1e6:.0f} MB")
        # in turn, so that a slow spell of the machine meets them all
        rounds = [{name: measure(name, path) for name in programs} for _ in range(given.repeat)]
    median = {
        name: {fact: statistics.median(run[name][fact] for run in rounds) for fact in rounds[0][name]}
        for name in programs
    }
    print(f"{'':20} {'CPU s':>7} {'rows/s':>11} {'peak MB':>8} {'faster':>7} {'memory':>7}")
    yardstick = median[_YARDSTICK]
    for name, found in median.items():
        times, more = yardstick["cpu"] / found["cpu"], found["peak_mb"] / yardstick["peak_mb"]
        speed = found["rows"] / found["cpu"]
        print(
            f"{name:20} {found['cpu']:7.2f} {speed:11,.0f} {found['peak_mb']:8.0f} {times:6.1f}x {more:6.1f}x"
        )


if __name__ == "__main__":
    main()
