"""Match, align and time collectives of many ranks: seconds, peak RSS, and how they grow.

Usage: python benchmarks/collectives.py [RANKSxCOLLECTIVES ...]     (default: 64x1000 256x1000 1024x2000)

The exchanges are made in memory: hosts of 8 ranks with clock offsets and drift, expert groups of up to 64
ranks and one world group. Every size is a fresh process; "x rows" is the growth of CPU time over that of rows
since the size before: about 1 is linear.
"""

from __future__ import annotations

import json
import subprocess
import sys

DEFAULT = ("64x1000", "256x1000", "1024x2000")

PROGRAM = """
import json, resource, sys, time
import numpy as np
import polars as pl
from traceview.analyzers._exchanges import EXCHANGES, timed

ranks, count = map(int, sys.argv[1].split("x"))
numbered = sys.argv[2] == "seq"
random = np.random.default_rng(1)
rank = np.repeat(np.arange(ranks), count)
number = np.tile(np.arange(count), ranks)
host = rank // 8
group = np.where(number % 4 == 0, 0, 1 + rank // 64)
true_end = number * 1_000_000
arrival = true_end - 300_000 - random.integers(0, 100_000, len(rank))
offset, drift = random.integers(-50_000_000, 50_000_000, ranks), random.normal(0, 10, ranks)
stamp = lambda t: 1_765_000_000_000_000_000 + t + offset[host] + (t * drift[host] * 1e-6).astype(np.int64)
start, end = stamp(arrival), stamp(true_end)
size = np.where(group == 0, ranks, np.minimum(ranks, 64))
frame = pl.DataFrame({
    "op": number, "rank": rank, "device": 0, "step": number // (count // 4), "group_size": size,
    "axis": np.where(group == 0, "dp", "ep"), "host": host.astype(str), "node": host,
    "collective": np.where(group == 0, "all_reduce", "all_to_all"), "ts_ns": start, "dur_ns": end - start,
    "in_bytes": 1 << 20, "out_bytes": 1 << 20, "group_key": group.astype(str), "resolved_by": "kernel_args",
    "confidence": 1.0,
})
if numbered:
    frame = frame.with_columns(seq=pl.col("op"))
after = pl.col("ts_ns") + 1000
frame = frame.with_columns(alone_start_ns=pl.concat_list("ts_ns"), alone_end_ns=pl.concat_list(after))
frame = EXCHANGES.frame(frame)
wall, cpu = time.perf_counter(), time.process_time()
result = timed(frame)
complete = result.exchanges["is_complete"].sum()
assert complete == len(frame), (complete, len(frame))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "peak_mb": peak,
                  "residual_us": (result.clock.residual_p95_ns or 0) / 1000}))
"""


def main() -> None:
    """Measures every size with and without sequence numbers."""
    sizes = sys.argv[1:] or DEFAULT
    widths = {"size": 12, "matched by": 11, "rows": 10, "wall s": 7, "CPU s": 7, "peak MB": 8, "x rows": 7}
    print(" ".join(f"{name:>{width}}" for name, width in widths.items()))
    for matched_by in ("seq", "order"):
        before = None
        for size in sizes:
            command = [sys.executable, "-c", PROGRAM, size, matched_by]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            ranks, count = map(int, size.split("x"))
            rows = ranks * count
            growth = (found["cpu"] / before[1]) / (rows / before[0]) if before else float("nan")
            before = (rows, found["cpu"])
            print(
                f"{size:>12} {matched_by:>11} {rows:10,} {found['wall']:7.2f} {found['cpu']:7.2f}"
                f" {found['peak_mb']:8.0f} {growth:7.2f}"
            )


if __name__ == "__main__":
    main()
