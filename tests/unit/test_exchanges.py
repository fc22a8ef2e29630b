"""Exchanges of synthetic runs against the generator's truth: who arrived when, who waited, what moved."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import traceview as tv
from traceview.analyzers._exchanges import Timed, collect, timed
from traceview.contracts import Options
from traceview.synth import PRESETS, Clock, write
from traceview.synth.workload import Straggler

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.run import Run
    from traceview.synth.workload import Workload

ALL = Options(steps="all")


def _timed(run: Run, options: Options = ALL) -> Timed:
    return timed(pl.concat([collect(trace, options) for trace in run.traces]))


def _expected(truth: dict[str, Any]) -> pl.DataFrame:
    """One row per rank and exchange, in the rank's order of start, from the truth alone."""
    rows = []
    for one in truth["collectives"]:
        last = max(one["start_ns"])
        for place, rank in enumerate(one["group_ranks"]):
            start, end = one["start_ns"][place], one["end_ns"][place]
            rows.append(
                {
                    "rank": rank,
                    "true_start": start,
                    "wait": min(last - start, end - start),
                    "transfer": end - start - min(last - start, end - start),
                    "last": one["last_arriver"],
                    "collective": one["collective"],
                    "sent": one["sent_bytes"][place],
                    "received": one["received_bytes"][place],
                    "has_metadata": one["seq"] is not None,
                }
            )
    return pl.DataFrame(rows).sort("rank", "true_start", "transfer")


@pytest.fixture(
    scope="module",
    params=[
        "ep8-nccl",
        "ep8-deepep-overlap",
        "ep8-straggler",
        "ep4-two-hosts",
        "ep16-four-hosts",
        "tp2-ep4",
        "ep8-no-sequence",
    ],
)
def known(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    write(PRESETS[request.param], folder)
    return tv.load(folder), json.loads((folder / "truth.json").read_text())


def test_waits_transfers_and_last_arrivals_are_the_true_ones(known: tuple[Run, dict[str, Any]]) -> None:
    run, truth = known
    result = _timed(run)
    found, expected = result.exchanges.sort("rank", "ts_ns", "transfer_ns"), _expected(truth)
    assert found["is_complete"].all()
    # a drifting clock stretches durations too: 20 ppm of a few ms are tens of ns
    slack = (result.clock.residual_p95_ns or 0) + 300
    for name, column in (("wait", "wait_ns"), ("transfer", "transfer_ns")):
        assert ((found[column] - expected[name]).abs() <= slack).all(), name
    named = found["last_rank"].is_not_null()
    assert named.sum() > 0.9 * expected["last"].count()
    assert found.filter(named)["last_rank"].to_list() == expected.filter(named)["last"].to_list()


def test_off_rank_bytes_are_exact_where_splits_were_recorded(known: tuple[Run, dict[str, Any]]) -> None:
    run, truth = known
    found, expected = _timed(run).exchanges.sort("rank", "ts_ns"), _expected(truth)
    is_exchange = (expected["collective"] == "all_to_all") & expected["has_metadata"]
    for name, column in (("sent", "sent_bytes"), ("received", "received_bytes")):
        assert found.filter(is_exchange)[column].to_list() == expected.filter(is_exchange)[name].to_list()
    unknown = (expected["collective"] == "all_to_all") & ~expected["has_metadata"]
    assert found.filter(unknown)["sent_bytes"].is_null().all()


def test_exposed_time_adds_up_to_the_breakdown_on_every_rank(known: tuple[Run, dict[str, Any]]) -> None:
    run, _ = known
    for steps in ("all", "auto"):
        result = _timed(run, Options(steps=steps))
        alone = result.exchanges.group_by("rank").agg(pl.col("exposed_ns").sum())
        several = result.windows.group_by("rank").agg(pl.col("several_ns").sum())
        both = alone.join(several, on="rank").sort("rank").select(pl.col("exposed_ns") + pl.col("several_ns"))
        assert both.to_series().to_list() == tv.breakdown(run, steps=steps).frame["exposed_comm_ns"].to_list()
    parts = result.exchanges.filter(pl.col("is_complete"))
    assert (parts["exposed_wait_ns"] + parts["exposed_transfer_ns"]).to_list() == parts[
        "exposed_ns"
    ].to_list()


def test_five_milliseconds_between_clocks_are_never_five_milliseconds_of_skew(tmp_path: Path) -> None:
    base = replace(PRESETS["ep8-nccl"], ranks_per_host=4, stragglers=())
    clocks = (Clock(), Clock(offset_ns=5_000_000, drift_ppm=10.0))
    results = {}
    for name, workload in {"one": base, "two": replace(base, clocks=clocks)}.items():
        write(workload, tmp_path / name)
        results[name] = _timed(tv.load(tmp_path / name)).exchanges
    waits = {name: int(frame["wait_ns"].sum()) for name, frame in results.items()}
    assert waits["two"] == pytest.approx(waits["one"], rel=1e-3)
    assert (results["two"]["wait_ns"] < 4_000_000).all()


def test_instances_with_missing_members_are_kept_and_not_used(tmp_path: Path) -> None:
    write(PRESETS["ep8-nccl"], tmp_path)
    (tmp_path / "rank3_trace.json.gz").unlink()
    found = _timed(tv.load(tmp_path)).exchanges
    assert not found["is_complete"].any()
    assert found["instance"].null_count() == 0
    assert found["wait_ns"].null_count() == len(found)
    assert found["exposed_ns"].sum() > 0


def test_a_group_of_unknown_size_is_whole_only_if_all_ranks_of_the_job_are_here(traces: Path) -> None:
    two_of_128 = _timed(tv.load(traces / "pytorch/facebookresearch-HolisticTraceAnalysis/trace_filter"))
    assert two_of_128.exchanges["group_key"].count() > 0
    assert not two_of_128.exchanges["is_complete"].any()


def test_the_copies_of_a_copy_engine_exchange_are_not_taken_for_exchanges(tmp_path: Path) -> None:
    write(PRESETS["ep8-copy-engine"], tmp_path)
    found = _timed(tv.load(tmp_path))
    copied = found.exchanges.filter(pl.col("collective") == "all_to_all")
    assert len(copied) > 0
    assert copied["instance"].is_null().all()
    assert copied["exposed_ns"].sum() > 0
    assert found.clock.residual_p95_ns is not None
    assert found.clock.residual_p95_ns <= 1


def test_one_rank_alone_has_durations_and_no_waits(tmp_path: Path) -> None:
    write(PRESETS["ep8-nccl"], tmp_path)
    found = _timed(tv.load(tmp_path / "rank0_trace.json.gz"))
    assert found.clock.residual_p95_ns is None
    assert found.exchanges["last_rank"].null_count() == len(found.exchanges)


def test_nanogpts_collectives_match_without_sequence_numbers(traces: Path) -> None:
    """All 56 that have metadata on every rank; 71 % of the time in them is waiting, by minimum durations."""
    run = tv.load(traces / "pytorch/KellerJordan-modded-nanogpt/2025-12-11_baseline_8ranks")
    found = _timed(run).exchanges
    complete = found.filter(pl.col("is_complete"))
    assert complete["instance"].n_unique() == 56
    assert len(complete) == 56 * 8
    per_rank = complete.group_by("rank").agg(pl.col("dur_ns").sum())["dur_ns"].mean()
    shortest = complete.group_by("instance").agg(pl.col("dur_ns").min())["dur_ns"].sum()
    assert per_rank == pytest.approx(45.2e6, rel=0.01)
    assert shortest == pytest.approx(12.9e6, rel=0.01)
    first = complete.filter(pl.col("collective") == "reduce_scatter").sort("instance", "ts_ns")
    earliest = first.filter(pl.col("instance") == first.sort("start_ns")["instance"][0])
    assert set(earliest["last_rank"].to_list()) == {5}
    assert earliest.filter(pl.col("rank") == 5)["dur_ns"][0] < 20_000


@pytest.mark.parametrize(
    ("folder", "ranks", "median_us"),
    [
        ("facebookresearch-param/dlrm_kineto", 8, 10),
        ("astra-sim-astra-sim/megatron-tp8", 8, 60),
        ("pytorch-torchrec/trace/sst_long_a2a_optimizer_3", 4, 100),
    ],
)
def test_sets_without_any_metadata_match_by_order_and_end_together(
    traces: Path, folder: str, ranks: int, median_us: float
) -> None:
    result = _timed(tv.load(traces / "pytorch" / folder), Options())
    complete = result.exchanges.filter(pl.col("is_complete"))
    assert complete["rank"].n_unique() == ranks
    assert complete["instance"].n_unique() > 5
    assert len(complete) > 0.9 * result.exchanges["group_key"].count()
    spread = complete.group_by("instance").agg(pl.col("end_ns").max() - pl.col("end_ns").min())["end_ns"]
    assert np.median(spread.to_numpy()) < median_us * 1000


def test_exposed_time_of_some_steps_adds_up_although_others_overlap_them(
    known: tuple[Run, dict[str, Any]],
) -> None:
    run, truth = known
    one = range(truth["workload"]["first_step"] + 1, truth["workload"]["first_step"] + 2)
    result = _timed(run, Options(steps=one))
    total = int(result.exchanges["exposed_ns"].sum()) + int(result.windows["several_ns"].sum())
    assert total == tv.breakdown(run, by=(), steps=one).frame["exposed_comm_ns"][0]


# --- whose clock is whose, where the host was not recorded ---------------------------------------------

_APART_NS = 123_000


def _without_host(folder: Path, place: Path, *, name: str | None = None) -> Path:
    """The run of ``folder`` as a profiler writes it that records no host (or ``name``) and sees one device."""
    place.mkdir()
    for path in folder.glob("rank*.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        document.pop("host_name", None)
        document |= {"host_name": name} if name else {}
        used = {event["args"]["device"] for event in document["traceEvents"] if event.get("cat") == "kernel"}
        seen = [device for device in document["deviceProperties"] if device["id"] in used]
        document["deviceProperties"] = seen
        (place / path.name).write_bytes(gzip.compress(json.dumps(document).encode()))
    return place


def _on_clocks(*offsets_ns: int) -> Workload:
    """Eight ranks on as many hosts as there are clocks; rank 5 is slow."""
    return replace(
        PRESETS["ep8-nccl"],
        expert_imbalance=0.0,
        ranks_per_host=8 // len(offsets_ns),
        clocks=tuple(Clock(offset_ns=offset) for offset in offsets_ns),
        stragglers=(Straggler(rank=5, cause="slow_kernels", factor=1.3),),
    )


@pytest.mark.parametrize("offsets", [(0,), (0, _APART_NS)])
def test_without_recorded_hosts_clocks_that_lie_apart_are_found_and_the_blame_is_the_same(
    tmp_path: Path, offsets: tuple[int, ...]
) -> None:
    write(_on_clocks(*offsets), tmp_path / "named")
    named = tv.load(tmp_path / "named")
    bare = tv.load(_without_host(tmp_path / "named", tmp_path / "bare"))
    assert tv.stragglers(bare).frame.equals(tv.stragglers(named).frame)
    split = ["role", "phase", "complete_count", "wait_ns", "transfer_ns", "exposed_wait_ns", "sent_bytes"]
    assert tv.all_to_all(bare).frame.select(split).equals(tv.all_to_all(named).frame.select(split))
    assert "run.host_unknown" in bare.diagnostics["code"].to_list()
    assert "run.host_unknown" not in named.diagnostics["code"].to_list()
    shifts = tv.clock_fit(bare).frame["offset_ns"]
    assert shifts[0] - shifts[7] == pytest.approx(offsets[-1] - offsets[0], abs=1)


@pytest.mark.parametrize("apart_ns", [40_000, _APART_NS, 5_000_000])
@pytest.mark.parametrize("expert_parallel", [4, 8])
def test_machines_of_one_name_are_told_apart_by_the_ends_of_what_they_share(
    tmp_path: Path, apart_ns: int, expert_parallel: int
) -> None:
    """Be it every exchange, or a few reductions beside many exchanges that stay within a machine."""
    write(replace(_on_clocks(0, apart_ns), expert_parallel=expert_parallel), tmp_path / "named")
    alike = tv.load(_without_host(tmp_path / "named", tmp_path / "alike", name="localhost"))
    expected = tv.stragglers(tv.load(tmp_path / "named")).frame
    assert tv.stragglers(alike).frame.equals(expected)


def test_what_ranks_of_unknown_hosts_disagree_by_stands_as_uncertainty(tmp_path: Path) -> None:
    """Ends that scatter within what one clock does are no reason for more clocks, and no certainty either."""
    write(_on_clocks(0), tmp_path / "named")
    run = tv.load(_without_host(tmp_path / "named", tmp_path / "bare"))
    collected = pl.concat([collect(trace, Options()) for trace in run.traces])
    late = pl.when((pl.col("rank") == 3) & (pl.col("op") % 2 == 0)).then(30_000).otherwise(0)
    longer = pl.when(pl.col("op").is_not_null()).then(pl.col("dur_ns") + late).otherwise("dur_ns")
    found = timed(collected.with_columns(longer.alias("dur_ns")))
    assert found.exchanges["host"].n_unique() == 8
    offsets = found.clock.corrections["offset_ns"].to_numpy()
    assert abs(offsets).max() < 1
    assert 0 < (found.clock.residual_p95_ns or 0) <= 30_000
