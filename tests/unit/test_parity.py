"""The same run, as PyTorch's profiler writes it and as Nsight Systems exports it, gets the same answers.

What an export cannot tell, and what is therefore not compared (each test says which of these it leaves out):

- GROUPS: names, descriptions and members of process groups, hence the parallelism axis where no range tells it
- PEERS: element types, and so rows; source and destination of a transfer. NCCL records only what a rank really
  sends or receives, PyTorch the tensor in both directions, so the bytes of sends and receives differ
- PAYLOADS: how many ranks take part, and hence what all of them together put in or get out, where no payload of
  NCCL says so: other transports, communicators older than the recording, exports without blobs (JSON lines)
- LAUNCHES: which collective a kernel of sends and receives is, where its launch was not recorded: Kineto puts
  the metadata beside the kernel, NCCL's ranges lie around the launch. Nothing else differs in a late start
- SEQUENCE: the number of a collective within its group, hence which one it is once rows were lost
- ``module``, where NCCL's own range around a launch takes the place of PyTorch's
- the order of ops that is left to the file, hence their numbers
- the size of the job

Kineto in turn does not tell the host, so hosts are those that the ranks' numbers and devices suggest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import traceview as tv
from traceview.synth import Capture, Clock, LateStart, Workload, write

if TYPE_CHECKING:
    from traceview.run import Run

PLAN = Workload(
    ranks=2,
    ranks_per_host=4,
    expert_parallel=2,
    steps=2,
    microbatches=2,
    layers=1,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
)
LATE = Capture(late_starts=(LateStart(1, 1.2),))
TORN = Capture(late_starts=(LateStart(1, 0.5),), dropped_share=0.05)
WORKLOADS = {
    "all-to-all over NCCL": replace(PLAN, ranks=4, expert_parallel=4),
    "two hosts, two clocks": replace(
        PLAN,
        ranks=4,
        expert_parallel=4,
        ranks_per_host=2,
        clocks=(Clock(), Clock(offset_ns=-123_457, drift_ppm=31.0)),
    ),
    "tensor parallel": replace(PLAN, ranks=4, tensor_parallel=2),
    "pipeline": replace(PLAN, ranks=4, pipeline_parallel=2, layers=2),
    "1F1B overlap": replace(PLAN, overlap="1f1b"),
    "DeepEP": replace(PLAN, transport="deepep"),
    "copy engines": replace(PLAN, transport="copy_engine"),
    "graphs": replace(PLAN, graphs=True),
    "no metadata": replace(PLAN, capture=Capture(metadata=False)),
    # larger matrices, so that the device lags behind the host and runs at the start what no file saw launched
    "late start": replace(PLAN, hidden=2048, tokens=4096, capture=LATE),
    "dropped rows": replace(PLAN, capture=TORN),
    "hostile names": replace(PLAN, traps=True),
}
OPS = (
    "rank", "device", "stream", "ts_ns", "dur_ns", "kind", "name", "correlation", "graph_node_id", "grid_blocks",
    "bytes", "copy_kind", "category", "class", "collective", "role", "subrole", "rule_id", "launch_ts_ns", "step",
    "microbatch", "layer", "phase",
)  # fmt: skip
COLLECTIVES = (
    "rank", "device", "stream", "ts_ns", "dur_ns", "collective", "role", "subrole", "step", "microbatch", "layer", "phase",
)  # fmt: skip


FORMATS = ("nsys-sqlite", "nsys-parquetdir", "nsys-arrowdir", "nsys-arrow", "nsys-jsonlines")
EVERY_FORMAT = "hostile names"
"""The one workload that is written in every format; the others differ in their rows, not in how they lie."""

OF_GROUPS = (
    "scale_up_bytes", "scale_out_bytes", "expected_bytes_per_s", "expected_ratio", "expected_source",
)  # fmt: skip
"""Columns that GROUPS keeps from being compared: who of the peers is near is known of members only."""
OF_PAYLOADS = (
    "sent_bytes", "bytes_method", "bytes_imbalance", "busbw_bytes_per_s", "algbw_bytes_per_s",
    "algbw_floor_bytes_per_s",
)  # fmt: skip
"""Columns that PAYLOADS keep from being compared."""
LEDGER_SUMS = (
    "time_ns",
    "exposed_wait_ns",
    "exposed_transfer_ns",
    "exposed_unsplit_ns",
    "hidden_ns",
    "op_count",
)


@dataclass(frozen=True)
class Pair:
    """One run, read from both profilers' files."""

    kineto: Run
    nsys: Run
    workload: str
    trace_format: str

    def answers(self, name: str, by: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What both say to a question about the whole recording."""
        kineto, nsys = (
            tv.api.analyze(run, name, by=by, steps="all").frame for run in (self.kineto, self.nsys)
        )
        assert len(kineto) or (name == "alltoall" and self.workload == "graphs")  # a graph tells no kind
        return kineto, nsys


@pytest.fixture(
    scope="module",
    params=[(name, FORMATS[0]) for name in WORKLOADS] + [(EVERY_FORMAT, kind) for kind in FORMATS[1:]],
    ids=" as ".join,
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, trace_format = request.param
    folder = tmp_path_factory.mktemp("pair")
    # what is compressed is unpacked first: one format shows that it makes no difference
    write(WORKLOADS[name], folder / "nsys", trace_format=trace_format, compress=trace_format == "nsys-arrow")
    nsys = tv.load(folder / "nsys", cache=None, workers=1)
    return Pair(kineto_of(name), nsys, name, trace_format)


@cache
def kineto_of(name: str) -> Run:
    """The run as PyTorch's profiler saw it, read once for all formats it is compared with."""
    with TemporaryDirectory() as folder:
        write(WORKLOADS[name], folder, compress=False)
        return tv.load(folder, cache=None, workers=1)


@pytest.fixture
def whole(pair: Pair) -> Pair:
    """A pair whose collectives can be matched without SEQUENCE."""
    if pair.workload in {"late start", "dropped rows"}:
        pytest.skip("what was lost cannot be told without sequence numbers")
    return pair


def rows(run: Run, table: str, columns: tuple[str, ...]) -> pl.DataFrame:
    """Rows in an order that no file decides; categories as text, because their codes are the file's."""
    frame = run.table(table).select(columns).collect().with_columns(pl.col(pl.Categorical).cast(pl.String))
    return frame.sort("rank", "ts_ns", "stream", "dur_ns")


def test_device_work_has_the_same_times_meanings_and_places(pair: Pair) -> None:
    expected, found = (rows(run, "ops", OPS) for run in (pair.kineto, pair.nsys))
    assert len(expected)
    # LAUNCHES: what such a kernel carries, its name alone does not tell
    untold = (found["category"] == "p2p_or_a2a") & found["launch_ts_ns"].is_null()
    assert_frame_equal(found.filter(~untold), expected.filter(~untold))
    meanings = ("category", "collective", "role", "subrole", "rule_id")
    assert_frame_equal(found.drop(meanings), expected.drop(meanings))


def test_steps_are_the_same(pair: Pair) -> None:
    expected = pair.kineto.table("steps").collect()
    assert len(expected)
    assert_frame_equal(pair.nsys.table("steps").collect(), expected)


def launched(run: Run) -> pl.DataFrame:
    """`COLLECTIVES` of every op, and whether its launch was recorded; the category is the kernel's own."""
    of_ops = run.table("ops").select(
        "rank", "op", "category", is_launched=pl.col("launch_ts_ns").is_not_null()
    )
    joined = run.table("collectives").join(of_ops, on=["rank", "op"], how="left").collect()
    shown = joined.select(*COLLECTIVES, "category", "is_launched")
    texts = shown.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    return texts.sort("rank", "ts_ns", "stream", "dur_ns")


def test_collectives_are_the_same_but_for_sends_whose_launch_was_not_recorded(pair: Pair) -> None:
    expected, found = launched(pair.kineto), launched(pair.nsys)
    assert len(expected)
    untold = (found["collective"] == "unknown") & ~found["is_launched"]
    assert_frame_equal(found.filter(~untold), expected.filter(~untold))
    assert set(found.filter(untold)["category"]) <= {"p2p_or_a2a"}
    assert set(expected.filter(untold)["collective"]) <= {"all_to_all", "send_recv"}
    assert untold.any() == (pair.workload == "late start")


def test_sizes_are_the_same_wherever_an_export_tells_them(pair: Pair) -> None:
    columns = (*COLLECTIVES, "group_size", "in_bytes", "out_bytes")
    expected, found = (rows(run, "collectives", columns) for run in (pair.kineto, pair.nsys))
    told = found["group_size"].is_not_null() & (expected["collective"] != "send_recv")
    assert_frame_equal(found.filter(told), expected.filter(told))


def test_every_peer_of_an_all_to_all_gets_the_same_bytes(pair: Pair) -> None:
    sides = {"in_splits": "in_bytes", "out_splits": "out_bytes"}
    columns = (*COLLECTIVES, "group_size", *sides, *sides.values())
    expected, found = (rows(run, "collectives", columns) for run in (pair.kineto, pair.nsys))
    # NCCL counts bytes where PyTorch counts rows, each of as many bytes as make up the whole
    told = found["in_splits"].is_not_null() & expected["in_splits"].is_not_null()
    for splits, total in sides.items():
        width = pl.col(total) // pl.col(splits).list.sum()
        in_bytes = expected.filter(told).select(
            pl.when(pl.col(splits).list.sum() > 0).then(pl.col(splits) * width).otherwise(splits)
        )
        assert_frame_equal(in_bytes, found.filter(told).select(splits))
    untold = found.filter(
        ~told & (expected["collective"] == "all_to_all") & expected["in_splits"].is_not_null()
    )
    assert untold["group_size"].null_count() == len(untold)  # PAYLOADS
    assert told.any() == (
        pair.workload not in {"DeepEP", "copy engines", "no metadata", "graphs"}
        and pair.trace_format != "nsys-jsonlines"
    )


def test_expert_loads_are_in_proportion_and_bytes_are_never_called_rows(pair: Pair) -> None:
    if pair.workload != "all-to-all over NCCL":
        pytest.skip("one run shows it")
    expected, found = pair.answers("experts", ("rank",))
    assert (set(expected["evidence"]), set(found["evidence"])) == ({"splits"}, {"bytes"})
    assert_frame_equal(*(frame.select("rank", "load_over_mean", "cv") for frame in (found, expected)))


@pytest.mark.parametrize("by", [("rank",), ("rank", "step")], ids=" and ".join)
def test_the_breakdown_is_the_same(pair: Pair, by: tuple[str, ...]) -> None:
    expected, found = pair.answers("breakdown", by)
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("by", [("collective",), ("role",), ("rank", "collective")], ids=" and ".join)
def test_the_overlap_is_the_same(pair: Pair, by: tuple[str, ...]) -> None:
    expected, found = pair.answers("overlap", by)
    if (
        pair.workload == "late start"
    ):  # LAUNCHES: the untold ones are all-to-alls, which never meet each other
        merged = pl.col("collective").replace("unknown", "all_to_all")
        sums = ("op_count", "comm_ns", "hidden_ns", "exposed_ns", "exclusive_ns")
        expected, found = (
            frame.group_by("rank", "role", merged).agg(pl.col(sums).sum()).sort("rank", "role", "collective")
            for frame in (expected, found)
        )
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("by", [("role", "phase"), ("rank", "layer", "step")], ids=" and ".join)
def test_all_to_alls_wait_and_transfer_the_same(whole: Pair, by: tuple[str, ...]) -> None:
    expected, found = whole.answers("alltoall", by)
    hidden = (*OF_GROUPS, *(OF_PAYLOADS if whole.trace_format == "nsys-jsonlines" else ()))
    assert_frame_equal(found.drop(hidden), expected.drop(hidden))


@pytest.mark.parametrize("by", [("collective", "role"), ("rank", "step")], ids=" and ".join)
def test_every_collective_waits_and_transfers_the_same(whole: Pair, by: tuple[str, ...]) -> None:
    expected, found = whole.answers("collectives", by)
    hidden = (*OF_GROUPS, *(OF_PAYLOADS if whole.trace_format == "nsys-jsonlines" else ()))
    assert_frame_equal(found.drop(hidden), expected.drop(hidden))


@pytest.mark.parametrize("by", [("rank",), ("step",)], ids=" and ".join)
def test_the_same_ranks_are_blamed_for_the_same_reasons(whole: Pair, by: tuple[str, ...]) -> None:
    expected, found = whole.answers("stragglers", by)
    assert_frame_equal(found, expected)


def test_the_ledger_has_the_same_entries_whatever_axis_they_stand_for(whole: Pair) -> None:
    keys = ("rank", "part", "role")  # GROUPS: several axes are one to an export
    expected, found = (
        frame.group_by(keys).agg(pl.col(LEDGER_SUMS).sum(), pl.col("window_ns").max()).sort(keys)
        for frame in whole.answers("ledger", ("rank", "kind"))
    )
    assert_frame_equal(found, expected)
    assert (found["time_ns"].sum()) == found.group_by("rank").agg(pl.col("window_ns").max())[
        "window_ns"
    ].sum()
