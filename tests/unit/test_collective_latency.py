"""Waiting, transfer and bandwidth of collectives other than all-to-alls, and of real ranks."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from traceview import api
from traceview.analyzers._latency import PARTIAL
from traceview.analyzers.collectives import ANALYSIS, DEFAULT_GRAIN
from traceview.contracts import Options
from traceview.synth import Workload, write

if TYPE_CHECKING:
    from pathlib import Path

# --- synthetic truth ---------------------------------------------------------------------------------

LEAST = {"all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_reduce": 2 * 7 / 8}
"""Of 8 ranks: what each must send, of the whole buffer."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(Workload(steps=2, tokens=512, hidden=1024), folder)
    return folder


def test_every_collective_has_the_waiting_and_the_bandwidth_of_the_truth(job: Path) -> None:
    truth = json.loads((job / "truth.json").read_text())["collectives"]
    rows = api.analyze(api.load(job), "collectives", by=DEFAULT_GRAIN, steps="all").frame
    assert rows["instance_count"].sum() == len(truth)
    for row in rows.iter_rows(named=True):
        kind = row["collective"]
        same = [
            one
            for one in truth
            if (one["axis"], one["collective"], one["role"] or "none") == (row["axis"], kind, row["role"])
        ]
        assert row["complete_count"] == len(same)
        assert row["wait_ns"] == sum(
            max(one["start_ns"]) - start for one in same for start in one["start_ns"]
        )
        assert row["transfer_max_ns"] == max(one["transfer_ns"] for one in same)
        if kind in LEAST:
            buffers = [max(*one["in_bytes"], *one["out_bytes"]) for one in same]
            rates = [size / one["transfer_ns"] * 1e9 for size, one in zip(buffers, same, strict=True)]
            assert row["algbw_bytes_per_s"] == pytest.approx(median(rates))
            assert row["busbw_bytes_per_s"] == pytest.approx(median(rates) * LEAST[kind], rel=1e-6)
            assert row["bytes_method"] == "least"
            assert row["sent_bytes"] == pytest.approx(8 * sum(buffers) * LEAST[kind], rel=1e-6)
            assert row["scale_up_bytes"] == row["sent_bytes"]


def test_a_gathers_and_scatters_sent_bytes_are_those_of_the_truth(job: Path) -> None:
    truth = json.loads((job / "truth.json").read_text())["collectives"]
    rows = api.analyze(api.load(job), "collectives", by=("collective",), steps="all").frame
    sent = dict(rows.select("collective", "sent_bytes").iter_rows())
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert sent[kind] == sum(sum(one["sent_bytes"]) for one in truth if one["collective"] == kind)


def test_windows_are_counted_once_however_many_kinds_there_are(job: Path) -> None:
    run = api.load(job)
    rows = api.analyze(run, "collectives", by=("rank", "step", "kind")).frame
    windows = api.breakdown(run, by=("rank", "step")).frame.select("rank", "step", "window_ns")
    joined = rows.join(windows, on=["rank", "step"], suffix="_of_breakdown")
    assert len(joined) == len(rows) > 0
    assert (joined["window_count"] == 1).all()
    assert joined["window_ns"].to_list() == joined["window_ns_of_breakdown"].to_list()


# --- hand-made exchanges -----------------------------------------------------------------------------


def asked(
    collective: str, members: list[tuple[int, int]], *, group_size: int, **facts: Any
) -> dict[str, Any]:
    """The one row of one exchange with these starts and ends."""
    ops = [
        {
            "op": 0,
            "rank": rank,
            "device": 0,
            "axis": "pp",
            "collective": collective,
            "group_size": group_size,
            "group_key": "g",
            "seq": 1,
            "ts_ns": start,
            "dur_ns": end - start,
            "in_bytes": 1000,
            "out_bytes": 1000,
            "host": "a",
            "is_host_known": True,
            "node": 0,
            "hidden_ns": 0,
            "resolved_by": "kernel_args",
            "confidence": 1.0,
            **facts,
        }
        for rank, (start, end) in enumerate(members)
    ]
    dtypes = {name: column.dtype for name, column in PARTIAL.columns.items()}
    partial = PARTIAL.frame(pl.DataFrame(ops, schema_overrides=dtypes))
    (row,) = ANALYSIS.reduce(partial, Options(by=("collective",))).to_dicts()
    return dict(row)


@pytest.mark.parametrize("collective", ["send_recv", "broadcast", "reduce"])
def test_a_transfer_recorded_by_all_its_members_is_split_and_its_end_is_the_median_one(
    collective: str,
) -> None:
    row = asked(collective, [(0, 90), (20, 100), (40, 104)], group_size=3)
    assert row["wait_ns"] == 40 + 20 + 0
    assert row["transfer_max_ns"] == 100 - 40
    assert row["busbw_bytes_per_s"] == row["algbw_bytes_per_s"] == pytest.approx(1000 / 60 * 1e9)


@pytest.mark.parametrize("collective", ["send_recv", "broadcast", "all_reduce"])
def test_a_transfer_that_lacks_a_member_is_not_split(collective: str) -> None:
    row = asked(collective, [(0, 90), (20, 100)], group_size=3)
    assert (row["instance_count"], row["complete_count"], row["dur_ns"]) == (1, 0, 170)
    assert row["wait_ns"] is row["transfer_ns"] is row["transfer_max_ns"] is row["busbw_bytes_per_s"] is None


def test_a_last_arriver_who_comes_after_the_others_left_gives_no_negative_transfer() -> None:
    row = asked("reduce", [(0, 10), (0, 12), (50, 60)], group_size=3)
    assert row["transfer_max_ns"] == 0
    assert row["busbw_bytes_per_s"] is None
    assert row["wait_ns"] == 10 + 12 + 0


def test_a_barrier_is_waiting_whatever_library_it_belongs_to() -> None:
    row = asked("barrier", [(0, 90), (20, 90)], group_size=2)
    assert (row["op_count"], row["dur_ns"], row["sync_count"], row["sync_ns"]) == (0, 0, 2, 160)


def test_unknown_sizes_give_no_bytes_and_no_bandwidth_but_the_times_stand() -> None:
    row = asked("all_reduce", [(0, 90), (20, 90)], group_size=2, in_bytes=None, out_bytes=None)
    assert (row["wait_ns"], row["transfer_max_ns"]) == (20, 70)
    unknown = (
        "sent_bytes",
        "bytes_method",
        "algbw_bytes_per_s",
        "busbw_bytes_per_s",
        "algbw_floor_bytes_per_s",
    )
    assert [row[name] for name in unknown] == [None] * len(unknown)


# --- real ranks --------------------------------------------------------------------------------------


def _nccl_kernels(folder: Path) -> dict[tuple[Any, ...], list[tuple[float, float]]]:
    """Start and duration (µs) of each NCCL kernel by what its ranks must agree on.

    Kernels of the steps before the recording have no metadata, and belong to no step.
    """
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for path in sorted(folder.glob("rank*.json.gz")):
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        nccl = [one for one in events if one.get("cat") == "kernel" and "Collective name" in one["args"]]
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        for event in sorted(nccl, key=lambda one: one["ts"]):
            facts = event["args"]
            kind = tuple(
                facts.get(name)
                for name in ("Collective name", "Process Group Name", "In msg nelems", "Out msg nelems")
            )
            found[(*kind, seen[kind])].append((event["ts"], event["dur"]))
            seen[kind] += 1
    return found


def test_of_eight_real_ranks_most_communication_is_waiting(traces: Path) -> None:
    folder = next((traces / "pytorch" / "KellerJordan-modded-nanogpt").iterdir())
    instances = _nccl_kernels(folder)
    assert [len(members) for members in instances.values()] == [8] * 56
    shortest_us = sum(min(dur for _, dur in members) for members in instances.values())
    mean_us = sum(dur for members in instances.values() for _, dur in members) / 8
    waited_us = sum(
        min(dur, max(start for start, _ in members) - start)
        for members in instances.values()
        for start, dur in members
    )
    (row,) = api.analyze(api.load(folder), "collectives", by=()).frame.to_dicts()
    assert (row["instance_count"], row["complete_count"], row["op_count"]) == (56, 56, 448)
    assert row["shortest_ns"] == pytest.approx(1000 * shortest_us, abs=56)
    assert row["dur_ns"] / 8 == pytest.approx(1000 * mean_us, abs=56)
    assert row["wait_ns"] == pytest.approx(1000 * waited_us, rel=1e-5)
    # what was published of these traces
    assert round(row["shortest_ns"] / 1e6, 1) == 12.9
    assert round(row["dur_ns"] / 8e6, 1) == 45.2
    assert round(1 - 8 * row["shortest_ns"] / row["dur_ns"], 2) == 0.71


def test_large_collectives_of_real_ranks_come_near_the_published_bandwidth(traces: Path) -> None:
    folder = next((traces / "pytorch" / "KellerJordan-modded-nanogpt").iterdir())
    rows = api.analyze(api.load(folder), "collectives", by=("size", "collective")).frame
    large = rows.filter(pl.col("size_bytes") == rows["size_bytes"].max())
    assert set(large["collective"]) == {"all_gather", "reduce_scatter"}
    assert ((large["expected_ratio"] > 0.75) & (large["expected_ratio"] < 1)).all()
    # dividing by the whole duration, as one rank alone must, would say far less
    assert (large["algbw_floor_bytes_per_s"] < large["algbw_bytes_per_s"]).all()
