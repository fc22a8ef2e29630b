"""The synthetic truth, checked against the files it describes and against plainer arithmetic."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview.synth
from traceview.errors import UsageError
from traceview.synth import PRESETS, Capture, Clock, LateStart, Straggler, Workload, simulate, truth, write
from traceview.synth.figures import rank_figures, sweep

TINY = Workload(
    ranks=4,
    ranks_per_host=2,
    expert_parallel=2,
    steps=2,
    microbatches=2,
    hidden=256,
    expert_hidden=128,
    experts=8,
    top_k=2,
    tokens=256,
    vocabulary=1024,
    clocks=(Clock(), Clock(offset_ns=-123_457, drift_ppm=31.0)),
)
PLAIN = ("ep8-nccl", "ep8-nccl-overlap", "ep8-deepep", "ep8-straggler", "ep4-two-hosts", "tp2-ep4", "pp2-ep4")
COMMUNICATION = re.compile(r"^nccl|deep_ep::(intranode|internode)::")


class Written:
    """A written run: its documents by rank, and its truth."""

    def __init__(self, workload: Workload, directory: Path) -> None:
        *traces, known = write(workload, directory)
        self.documents: list[dict[str, Any]] = [json.loads(gzip.decompress(p.read_bytes())) for p in traces]
        self.truth: dict[str, Any] = json.loads(known.read_bytes())

    def rows(self, rank: int, *categories: str) -> list[dict[str, Any]]:
        events = self.documents[rank]["traceEvents"]
        return [event for event in events if event["ph"] == "X" and event.get("cat") in categories]


@pytest.fixture(scope="module", params=PLAIN)
def known(request: pytest.FixtureRequest) -> dict[str, Any]:
    workload = PRESETS[request.param]
    return truth(simulate(workload), {rank: f"rank{rank}.json" for rank in range(workload.ranks)})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(replace(TINY, overlap="1f1b", traps=True), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def deep_ep(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(PRESETS["ep8-deepep"], tmp_path_factory.mktemp("deepep"))


def start_ns(event: dict[str, float]) -> int:
    return round(event["ts"] * 1000)


def end_ns(event: dict[str, float]) -> int:
    return start_ns(event) + round(event["dur"] * 1000)


def hidden_share(workload: Workload) -> float:
    figures = rank_figures(simulate(workload), 0)["all"]
    return float(figures["hidden_comm_ns"] / figures["comm_ns"])


def device_rows(run: Written, rank: int) -> list[dict[str, Any]]:
    return run.rows(rank, "kernel", "gpu_memcpy", "gpu_memset")


def test_the_parts_of_a_window_add_up(known: dict[str, Any]) -> None:
    for rank in known["ranks"]:
        for figures in (rank["all"], *rank["steps"].values()):
            parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
            assert figures["window_ns"] == sum(figures[part] for part in parts)
            assert figures["comm_ns"] == figures["hidden_comm_ns"] + figures["exposed_comm_ns"]
            assert figures["exposed_comm_ns"] == sum(figures["exposed_comm_by_axis_ns"].values())


def test_steps_tile_the_whole_window(known: dict[str, Any]) -> None:
    for rank in known["ranks"]:
        for figure in ("window_ns", "compute_ns", "comm_ns", "idle_ns"):
            assert rank["all"][figure] == sum(step[figure] for step in rank["steps"].values())
        counts = sum((Counter(step["op_count_by_category"]) for step in rank["steps"].values()), Counter())
        assert rank["all"]["op_count_by_category"] == dict(counts)


def test_all_ranks_of_a_collective_leave_together_after_the_last_has_arrived(known: dict[str, Any]) -> None:
    assert known["collectives"]
    for instance in known["collectives"]:
        last = max(instance["start_ns"])
        assert set(instance["end_ns"]) == {last + instance["transfer_ns"]}
        assert instance["transfer_ns"] > 0
        if instance["start_ns"].count(last) == 1:
            blamed = instance["group_ranks"][instance["start_ns"].index(last)]
        else:
            blamed = None
        assert instance["last_arriver"] == blamed


def test_what_is_sent_in_a_group_is_received_there(known: dict[str, Any]) -> None:
    for instance in known["collectives"]:
        assert sum(instance["sent_bytes"]) == sum(instance["received_bytes"])
        if instance["collective"] == "all_to_all":
            assert sum(instance["in_bytes"]) == sum(instance["out_bytes"])
            own = np.subtract(instance["in_bytes"], instance["sent_bytes"])
            assert own.tolist() == np.subtract(instance["out_bytes"], instance["received_bytes"]).tolist()


def test_truth_agrees_with_a_bitmap_of_the_written_file(tiny: Written) -> None:
    for rank in range(TINY.ranks):
        rows = device_rows(tiny, rank)
        first = min(map(start_ns, rows))
        masks = {kind: np.zeros(max(map(end_ns, rows)) - first, bool) for kind in ("comm", "copy", "compute")}
        for row in rows:
            kind = "comm" if COMMUNICATION.search(row["name"]) else "compute"
            kind = kind if row["cat"] == "kernel" else "copy"
            masks[kind][start_ns(row) - first : end_ns(row) - first] = True
        comm, copy, compute = masks.values()
        expected = {
            "window_ns": len(comm),
            "compute_ns": compute.sum(),
            "comm_ns": comm.sum(),
            "hidden_comm_ns": (comm & compute).sum(),
            "exposed_comm_ns": (comm & ~compute).sum(),
            "exposed_copy_ns": (copy & ~comm & ~compute).sum(),
            "idle_ns": (~(comm | copy | compute)).sum(),
        }
        figures = tiny.truth["ranks"][rank]["all"]
        assert {name: figures[name] for name in expected} == expected


def test_a_step_window_begins_with_the_first_op_launched_in_the_step(tiny: Written) -> None:
    for rank in range(TINY.ranks):
        calls = {row["args"]["correlation"]: row for row in tiny.rows(rank, "cuda_runtime", "cuda_driver")}
        steps = [row for row in tiny.rows(rank, "user_annotation") if row["name"].startswith("ProfilerStep")]
        firsts: dict[str, int] = {}
        for row in device_rows(tiny, rank):
            launched = start_ns(calls[row["args"]["correlation"]])
            (step,) = [s["name"][13:] for s in steps if start_ns(s) <= launched < end_ns(s)]
            firsts[step] = min(start_ns(row), firsts.get(step, start_ns(row)))
        borders = [*sorted(firsts.values()), max(map(end_ns, device_rows(tiny, rank)))]
        windows = {step: figures["window_ns"] for step, figures in tiny.truth["ranks"][rank]["steps"].items()}
        assert windows == dict(zip(firsts, np.diff(borders).tolist(), strict=True))


@given(
    ops=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from(["compute", "copy", "comm ep"]))
    ),
    cuts=st.lists(st.integers(0, 55), min_size=2, max_size=5).map(sorted),
)
def test_sweep_agrees_with_looking_at_every_nanosecond(
    ops: list[tuple[int, int, str]], cuts: list[int]
) -> None:
    starts = np.array([start for start, _, _ in ops], dtype=np.int64)
    ends = np.array([start + length for start, length, _ in ops], dtype=np.int64)
    expected = [
        Counter(
            frozenset(kind for start, length, kind in ops if start <= instant < start + length)
            for instant in range(begin, end)
        )
        for begin, end in pairwise(cuts)
    ]
    assert sweep(starts, ends, [kind for _, _, kind in ops], cuts) == expected


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    once, again, other = (
        [path.read_bytes() for path in write(replace(TINY, seed=seed), tmp_path / name)]
        for name, seed in (("once", 5), ("again", 5), ("other", 6))
    )
    assert once == again
    assert all(a != b for a, b in zip(once, other, strict=True))


def test_uncompressed_traces_hold_the_same_text(tmp_path: Path) -> None:
    packed = write(TINY, tmp_path / "gz")
    plain = write(TINY, tmp_path / "json", compress=False)
    assert [path.name for path in plain] == [*(f"rank{rank}_trace.json" for rank in range(4)), "truth.json"]
    for one, other in zip(packed[:-1], plain[:-1], strict=True):
        assert gzip.decompress(one.read_bytes()) == other.read_bytes()


def test_every_device_row_links_to_its_call_and_its_operator(tiny: Written) -> None:
    for rank in range(TINY.ranks):
        calls = tiny.rows(rank, "cuda_runtime", "cuda_driver")
        by_correlation = {row["args"]["correlation"]: row for row in calls}
        assert len(by_correlation) == len(calls)
        operators = {row["args"]["External id"]: row for row in tiny.rows(rank, "cpu_op")}
        for row in device_rows(tiny, rank):
            call = by_correlation[row["args"]["correlation"]]
            assert start_ns(row) >= end_ns(call)
            assert row["args"]["External id"] == call["args"]["External id"]
            operator = operators[row["args"]["External id"]]
            assert start_ns(operator) <= start_ns(call)
            assert end_ns(call) <= end_ns(operator)
            assert operator["tid"] == call["tid"]


def test_every_launch_has_both_ends_of_its_flow(tiny: Written) -> None:
    for rank in range(TINY.ranks):
        ends: defaultdict[int, str] = defaultdict(str)
        for event in tiny.documents[rank]["traceEvents"]:
            if event.get("cat") == "ac2g":
                ends[event["id"]] += event["ph"]
        correlations = {row["args"]["correlation"] for row in device_rows(tiny, rank)}
        assert {"".join(sorted(ends[correlation])) for correlation in correlations} == {"fs"}


def test_a_forward_flow_ends_in_a_backward_on_the_other_thread(tiny: Written) -> None:
    flows = [event for event in tiny.documents[0]["traceEvents"] if event.get("cat") == "fwdbwd"]
    begins = {event["id"]: event for event in flows if event["ph"] == "s"}
    finishes = {event["id"]: event for event in flows if event["ph"] == "f"}
    assert begins.keys() == finishes.keys()
    assert begins
    for number, begin in begins.items():
        assert begin["ts"] < finishes[number]["ts"]
        assert begin["tid"] != finishes[number]["tid"]


def test_work_on_one_stream_never_overlaps(tiny: Written) -> None:
    for rank in range(TINY.ranks):
        streams = defaultdict(list)
        for row in device_rows(tiny, rank):
            streams[row["tid"]].append((start_ns(row), end_ns(row)))
        for spans in streams.values():
            assert spans == sorted(spans)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("overlap", ["none", "shared", "1f1b"])
def test_ranges_around_a_launch_name_its_place_in_the_step(overlap: str, tmp_path: Path) -> None:
    workload = replace(TINY, overlap=overlap)  # type: ignore[arg-type]
    timeline = simulate(workload)
    run = Written(workload, tmp_path)
    calls = {row["args"]["correlation"]: row for row in run.rows(0, "cuda_runtime", "cuda_driver")}
    ranges = run.rows(0, "user_annotation")
    named = []
    for row in device_rows(run, 0):
        call = calls[row["args"]["correlation"]]
        around = " ".join(
            r["name"]
            for r in ranges
            if r["tid"] == call["tid"] and r["ts"] <= call["ts"] < r["ts"] + r["dur"]
        )
        layer, place = re.search(r"layer_(\d+)([fb])", around), re.search(r"PP:0([FB])(\d+)", around)
        phase = {"F": "forward", "B": "backward"}[place[1]] if place else "optimizer"
        named.append((phase, place and int(place[2]), layer and int(layer[1])))
        assert layer is None or place is None or layer[2].upper() == place[1]
    assert named == [(op.scope.phase, op.scope.microbatch, op.scope.layer) for op in timeline.ops]


def test_gpu_annotations_are_a_nanosecond_wider_than_their_kernels(tiny: Written) -> None:
    shadows = [row for row in tiny.rows(0, "gpu_user_annotation") if row["name"].startswith("nccl:")]
    kernels = [row for row in device_rows(tiny, 0) if row["name"].startswith("nccl")]
    wider = sorted((start_ns(row) - 1, end_ns(row) + 1, row["tid"]) for row in kernels)
    assert sorted((start_ns(row), end_ns(row), row["tid"]) for row in shadows) == wider


def test_nccl_kernels_repeat_the_recorded_call(tiny: Written) -> None:
    recorded = {
        row["args"]["External id"]: row["args"]
        for row in tiny.rows(0, "cpu_op")
        if row["name"] == "record_param_comms"
    }
    kernels = [row["args"] for row in device_rows(tiny, 0) if row["name"].startswith("nccl")]
    assert len(kernels) == len(recorded)
    for kernel in kernels:
        call = recorded[kernel["External id"]]
        shared = kernel.keys() & call.keys()
        assert {"Collective name", "In msg nelems", "In split size", "Seq", "Process Group Ranks"} <= shared
        assert {key: kernel[key] for key in shared} == {key: call[key] for key in shared}


def test_split_sizes_are_rows_of_the_message_and_mirror_the_peers(tiny: Written) -> None:
    exchanges: defaultdict[tuple[str, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for rank in range(TINY.ranks):
        for row in device_rows(tiny, rank):
            if row["args"].get("Collective name") == "all_to_allv":
                key = row["args"]["Process Group Ranks"], row["args"]["Seq"]
                exchanges[key][rank] = row["args"]
    assert exchanges
    for (ranks, _), calls in exchanges.items():
        members = json.loads(ranks)
        sent = np.array([json.loads(calls[rank]["In split size"]) for rank in members])
        received = np.array([json.loads(calls[rank]["Out split size"]) for rank in members])
        assert sent.T.tolist() == received.tolist()
        elements = [calls[rank]["In msg nelems"] for rank in members]
        assert (sent.sum(axis=1) * TINY.hidden).tolist() == elements


def test_long_lists_are_cut_as_pytorch_cuts_them(tmp_path: Path) -> None:
    wide = replace(TINY, ranks=32, ranks_per_host=8, expert_parallel=32, experts=32, clocks=(Clock(),))
    run = Written(replace(wide, steps=1, microbatches=1, layers=1), tmp_path)
    texts = {
        row["args"][key]
        for row in device_rows(run, 0)
        if row["args"].get("Collective name") == "all_to_allv"
        for key in ("In split size", "Out split size", "Process Group Ranks")
    }
    assert all(re.fullmatch(r"\[(\d+, ){30}\.\.\.\]", text) for text in texts)
    (group,) = [
        entry
        for entry in run.documents[0]["distributedInfo"]["pg_config"]
        if entry["pg_desc"] == "EXPERT_MODEL_PARALLEL_GROUP"
    ]
    assert group["ranks"] == list(range(32))


def test_overlap_hides_communication_without_changing_it() -> None:
    plain = replace(PRESETS["ep8-nccl"], microbatches=2, steps=1)
    shares = [hidden_share(replace(plain, overlap=overlap)) for overlap in ("none", "shared", "1f1b")]
    assert shares[0] < shares[1] < shares[2]
    moved = [
        sorted(int(e.message.traffic.in_elements.sum()) for e in simulate(w).exchanges)
        for w in (plain, replace(plain, overlap="1f1b"))
    ]
    assert moved[0] == moved[1]


def expert_loads(workload: Workload) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Tokens per expert of every routing, as shares of the mean."""
    entries = truth(simulate(workload), dict.fromkeys(range(workload.ranks), ""))["experts"]
    tokens = np.array([entry["tokens"] for entry in entries], dtype=float)
    return np.asarray(tokens / tokens.mean(axis=-1, keepdims=True))


def test_imbalance_spreads_the_experts_and_zero_forces_balance() -> None:
    spreads = [float(expert_loads(replace(TINY, expert_imbalance=x)).std()) for x in (0.0, 0.3, 0.9)]
    assert spreads[0] == 0
    assert 0 < spreads[1] < spreads[2]


def test_every_choice_of_every_token_is_counted() -> None:
    for routing in simulate(TINY).routings:
        assert routing.rows_out.sum(axis=1).tolist() == [TINY.tokens * TINY.top_k] * TINY.ranks
        assert routing.rows_out.sum() == routing.rows_in.sum() == routing.loads.sum()


def test_clocks_shift_the_stamps_and_nothing_else(tmp_path: Path) -> None:
    offset = 5_000_017
    plain = replace(TINY, clocks=(Clock(),))
    there, shifted = (
        Written(replace(plain, clocks=clocks), tmp_path / name)
        for name, clocks in (("plain", (Clock(),)), ("shifted", (Clock(), Clock(offset_ns=offset))))
    )
    assert there.truth["collectives"] == shifted.truth["collectives"]
    for rank, moved in enumerate((0, 0, offset, offset)):
        for figures in ("all", "steps"):
            assert there.truth["ranks"][rank][figures] == shifted.truth["ranks"][rank][figures]
        delta = {
            start_ns(b) - start_ns(a)
            for a, b in zip(device_rows(there, rank), device_rows(shifted, rank), strict=True)
        }
        assert delta == {moved}


def test_a_drifting_clock_stretches_the_window() -> None:
    true, fast = (
        rank_figures(simulate(replace(TINY, clocks=(Clock(drift_ppm=ppm),))), 0)["all"]["window_ns"]
        for ppm in (0.0, 1000.0)
    )
    assert fast == pytest.approx(true * 1.001, abs=2)


def test_traffic_between_hosts_is_slower_than_within_one() -> None:
    def all_to_all(workload: Workload) -> int:
        exchanges = simulate(workload).exchanges
        return sum(int(e.transfer_ns.max()) for e in exchanges if e.message.role)

    near = replace(PRESETS["ep8-balanced"], steps=1)
    assert all_to_all(replace(near, ranks_per_host=4)) > 3 * all_to_all(near)


def test_deep_ep_leaves_no_metadata(deep_ep: Written) -> None:
    rows = [row for row in device_rows(deep_ep, 0) if "deep_ep::intranode" in row["name"]]
    assert {re.search(r"::(\w+)[<(]", row["name"])[1] for row in rows} == {  # type: ignore[index]
        "notify_dispatch",
        "cached_notify_dispatch",
        "cached_notify_combine",
        "dispatch",
        "combine",
    }
    assert not any("Collective name" in row["args"] for row in rows)


def test_deep_ep_notifications_absorb_the_wait(deep_ep: Written) -> None:
    waits: Counter[str] = Counter()
    for instance in deep_ep.truth["collectives"]:
        waits[instance["category"]] += sum(max(instance["start_ns"]) - t for t in instance["start_ns"])
    assert waits["ep_sync"] > 10 * (waits["dispatch"] + waits["combine"])


def test_the_backward_of_a_combine_is_a_dispatch(deep_ep: Written) -> None:
    roles = {
        (instance["phase"], instance["part"], instance["role"])
        for instance in deep_ep.truth["collectives"]
        if instance["part"]
    }
    assert roles == {
        ("forward", "dispatch", "dispatch"),
        ("forward", "combine", "combine"),
        ("backward", "combine", "dispatch"),
        ("backward", "dispatch", "combine"),
    }


def test_traps_are_written_on_request_only(tiny: Written, deep_ep: Written) -> None:
    def trapped(run: Written) -> set[str]:
        rows = run.rows(0, "cpu_op", "python_function")
        hostile = {row["name"] for row in rows if re.search(r'["{}\\✓]', row["name"])}
        frames = {row["name"] for row in rows if row["cat"] == "python_function"}
        return hostile | frames | {row["name"] for row in rows if "stream" in row["args"]}

    assert {"triton_poi_fused_embedding_0", "close }, {", "train.py(41): train_step"} <= trapped(tiny)
    assert trapped(deep_ep) == set()


def test_progress_counts_the_ranks_and_nothing_partial_stays(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    paths = write(TINY, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept, *_) = write(TINY, tmp_path)
    before = kept.read_bytes()

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError):  # noqa: PT011 - a bare OSError, as the patch raises it
        write(replace(TINY, seed=9), tmp_path)
    assert kept.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranks": 0},
        {"expert_parallel": 3},
        {"experts": 9},
        {"top_k": 99},
        {"overlap": "1f1b", "microbatches": 1},
        {"transport": "pigeon"},
        {"clocks": (Clock(), Clock(), Clock())},
        {"jitter": -1.0},
        {"stragglers": (Straggler(rank=77, cause="slow_kernels", factor=2.0),)},
        {"stragglers": (Straggler(rank=0, cause="slow_kernels", factor=0.0),)},
        {"stragglers": (Straggler(rank=0, cause="late_launch", extra_ns=-1),)},
        {"stragglers": (Straggler(rank=0, cause="bad_luck"),)},  # type: ignore[arg-type]
        {"platform": "abacus"},
        {"group_names": "none"},
        {"tensor_parallel": 3},
        {"pipeline_parallel": 4},
        {"tensor_parallel": 4, "tokens": 254},
        {"overlap": "1f1b", "pipeline_parallel": 2},
        {"compact": True, "pipeline_parallel": 2},
        {"transport": "copy_engine", "expert_parallel": 4},
        {"capture": Capture(late_starts=(LateStart(rank=4, steps=1),))},
        {"capture": Capture(late_starts=(LateStart(rank=0, steps=2),))},
        {"capture": Capture(missing_ranks=(0, 1, 2, 3))},
        {"capture": Capture(dropped_share=1.0)},
    ],
)
def test_impossible_workloads_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        replace(TINY, **wrong)


def test_unknown_presets_and_formats_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ep8-nccl"):
        write("ep9", tmp_path)
    with pytest.raises(UsageError, match="kineto"):
        write(TINY, tmp_path, trace_format="otf2")


def test_a_lone_rank_sends_nothing(tmp_path: Path) -> None:
    alone = Written(replace(TINY, ranks=1, expert_parallel=1, clocks=(Clock(),)), tmp_path)
    assert {tuple(instance["sent_bytes"]) for instance in alone.truth["collectives"]} == {(0,)}
    assert alone.documents[0]["distributedInfo"]["world_size"] == 1


def test_the_generator_shares_no_code_with_the_analysis() -> None:
    imported = {
        node.module
        for path in Path(traceview.synth.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("traceview")
    }
    assert {module for module in imported if not module.startswith("traceview.synth")} == {"traceview.errors"}
