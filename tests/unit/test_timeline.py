"""Lanes of the timeline, what the viewer is sent, and the merged trace for Perfetto: nothing lost, nothing added."""

from __future__ import annotations

import base64
import gzip
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import api
from traceview.cli import main
from traceview.errors import UsageError
from traceview.reports import html, lanes, perfetto, timeline
from traceview.reports.sections import timeline as section
from traceview.schema import OPS
from traceview.synth import PRESETS, write

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.reports.timeline import Timeline
    from traceview.run import Run

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e" + "k" * 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks on two hosts whose clocks are 750 µs apart."""
    made = tmp_path_factory.mktemp("runs") / "two-hosts"
    write(
        replace(
            PRESETS["ep8-straggler"], ranks=4, expert_parallel=4, ranks_per_host=2, steps=3, stragglers=()
        ),
        made,
    )
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return tv.load(folder)


def decoded(made: Timeline) -> list[dict[str, Any]]:
    """What a reader makes of `timeline.item`, by its own arithmetic: one entry per lane."""
    item = json.loads(timeline.text(made))
    data = gzip.decompress(base64.b64decode(item["data"]))
    offset, found = 0, []
    for lane in item["lanes"]:
        columns = []
        for kind in lane["types"]:
            size = lane["count"] * int(kind[1])
            columns.append(np.frombuffer(data[offset : offset + size], f"<{kind}").astype(np.int64))
            offset += size
        gap, dur, name, context, group = columns
        found.append(
            lane
            | {
                "start": np.cumsum(gap).tolist(),
                "dur": dur.tolist(),
                "name": [item["names"][place] for place in name],
                "context": [item["contexts"][place] for place in context],
                "group": [item["groups"][place][0] for place in group],
            }
        )
    assert offset == len(data)
    return found


def test_the_viewer_is_sent_every_op_of_every_stream_to_the_nanosecond(run: Run) -> None:
    made = api.timeline(run)
    ops = run.ops.collect()
    clocks = {row["rank"]: row for row in tv.clock_fit(run).summary()}
    sent = [lane for lane in decoded(made) if lane["kind"] == "stream"]
    assert sum(lane["count"] for lane in sent) == len(ops)
    for lane in sent:
        stream = int(lane["label"].removeprefix("stream "))
        own = ops.filter((pl.col("rank") == lane["rank"]) & (pl.col("stream") == stream)).sort("ts_ns")
        assert lane["dur"] == own["dur_ns"].to_list()
        assert lane["name"] == [str(name)[: timeline.LETTERS] for name in own["name"]] or "…" in "".join(
            lane["name"]
        )
        shift = np.array(lane["start"]) + made.begin_ns - own["ts_ns"].to_numpy()
        fit = clocks[lane["rank"]]
        since = own["ts_ns"].to_numpy() - fit["origin_ns"]
        assert np.abs(shift - fit["offset_ns"] - fit["drift_ppm"] * 1e-6 * since).max() <= 0.5


def test_exposed_stretches_add_up_to_the_exposed_communication_of_the_breakdown(run: Run) -> None:
    expected = dict(tv.breakdown(run, steps="all").frame.select("rank", "exposed_comm_ns").iter_rows())
    sums = {
        lane["rank"]: sum(lane["dur"]) for lane in decoded(api.timeline(run)) if lane["kind"] == "exposed"
    }
    assert sums == expected


def test_steps_are_the_device_windows_of_the_steps(run: Run) -> None:
    steps = run.steps.collect()
    for lane in decoded(api.timeline(run)):
        if lane["kind"] == "steps":
            own = steps.filter(pl.col("rank") == lane["rank"]).sort("ts_ns")
            assert lane["dur"] == own["dur_ns"].to_list()
            assert lane["name"] == [f"step {step}" for step in own["step"]]


def test_layers_hold_the_compute_of_one_layer_and_never_overlap(run: Run) -> None:
    ops = run.ops.collect().filter(
        pl.col("class").is_in(["compute", "fused"]) & pl.col("layer").is_not_null()
    )
    for lane in decoded(api.timeline(run)):
        if lane["kind"] != "layers":
            continue
        ends = np.array(lane["start"]) + np.array(lane["dur"])
        assert (ends[:-1] <= np.array(lane["start"])[1:]).all()
        in_all = ops.filter(pl.col("rank") == lane["rank"])["layer"].unique().to_list()
        assert {int(name.removeprefix("layer ")) for name in lane["name"]} == set(in_all)


def test_hosts_are_put_on_one_clock(run: Run) -> None:
    """Exchanges that end together do so on the timeline, though stamps are 750 µs apart."""
    ends = {
        lane["rank"]: [
            start + dur
            for start, dur, name in zip(lane["start"], lane["dur"], lane["context"], strict=True)
            if name.startswith("ep all_to_all")
        ]
        for lane in decoded(api.timeline(run))
        if lane["kind"] == "stream" and any("all_to_all" in text for text in lane["context"])
    }
    assert sorted(ends) == [0, 1, 2, 3]
    apart = np.ptp(np.array(list(ends.values())), axis=0)
    assert apart.max() < 5_000
    offsets = tv.clock_fit(run).frame["offset_ns"].to_list()
    assert offsets[0] - offsets[3] == pytest.approx(750_000, abs=5_000)


def test_only_the_step_asked_for_is_shown_and_an_unknown_one_is_refused(run: Run) -> None:
    steps = run.steps.collect().filter(pl.col("step") == 11)
    made = api.timeline(run, step=11)
    ops = run.ops.collect()
    for lane in decoded(made):
        if lane["kind"] == "steps":
            assert lane["name"] == ["step 11"]
    inside = ops.join(steps, on="rank", suffix="_step").filter(
        (pl.col("ts_ns") < pl.col("ts_ns_step") + pl.col("dur_ns_step"))
        & (pl.col("ts_ns") + pl.col("dur_ns") > pl.col("ts_ns_step"))
    )
    assert sum(lane["count"] for lane in decoded(made) if lane["kind"] == "stream") == len(inside)
    with pytest.raises(UsageError, match="no step 99"):
        api.timeline(run, step=99)


def test_beyond_the_limit_short_bars_are_drawn_together_and_cover_what_they_stand_for(run: Run) -> None:
    whole = api.timeline(run)
    cut = api.timeline(run, most_bars=whole.bar_count // 3)
    assert cut.bar_count <= whole.bar_count // 3
    assert cut.merged_ns > 0
    for before, after in zip(whole.lanes, cut.lanes, strict=True):
        begin, end = (frame["ts_ns"].to_numpy() for frame in (after.bars, before.bars))
        reach = np.maximum.accumulate(begin + after.bars["dur_ns"].to_numpy())
        place = np.searchsorted(begin, end, side="right") - 1
        assert (place >= 0).all()
        assert (reach[place] >= end + before.bars["dur_ns"].to_numpy()).all()
    long = sum(int((lane.bars["dur_ns"] >= cut.merged_ns).sum()) for lane in whole.lanes)
    kept = sum(int((~lane.bars["name"].str.contains("short ones")).sum()) for lane in cut.lanes)
    assert kept >= long


def test_a_gap_longer_than_32_bits_of_nanoseconds_is_exact() -> None:
    far = 5 * 10**9 + 1
    bars = pl.DataFrame(
        {
            "ts_ns": [7, 7 + far],
            "dur_ns": [1, 2 * far],
            "name": ["a", "b"],
            "context": ["", None],
            "group": [0, 1],
        },
        schema_overrides={"group": pl.UInt8},
    )
    made = timeline.Timeline((lanes.Lane(0, "stream 1", "stream", bars),), 7, 3 * far)
    [lane] = decoded(made)
    assert (lane["start"], lane["dur"]) == ([0, far], [1, 2 * far])
    assert lane["types"][:2] == ["f8", "f8"]


def test_a_hostile_name_is_short_and_inert_on_the_page(run: Run) -> None:
    traces = []
    for trace in run.traces[:1]:
        ops = trace.table("ops").with_columns(name=pl.lit(HOSTILE).cast(OPS.columns["name"].dtype))
        traces.append(trace.with_tables(ops=ops))
    made = timeline.compose(traces, {})
    page = html.timeline_page(made, title=HOSTILE, caption=HOSTILE, method="")
    assert "<img" not in page
    assert "\u202e" not in page
    assert len(page) < 200_000
    assert max(len(text) for text in timeline.item(made)["names"]) <= timeline.LETTERS


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    first, second = (timeline.text(api.timeline(run)) for _ in range(2))
    assert first == second


def test_nothing_recorded_is_an_empty_timeline_and_a_reason_in_the_report() -> None:
    made = timeline.compose([], {})
    assert (made.bar_count, made.span_ns, decoded(made)) == (0, 0, [])


# --- Perfetto ----------------------------------------------------------------------------------------


def test_the_merged_trace_holds_every_bar_exactly_and_names_every_track(run: Run) -> None:
    made = api.timeline(run)
    file = io.BytesIO()
    assert perfetto.write(made, file) == made.bar_count
    document = json.loads(gzip.decompress(file.getvalue()))
    bars = [event for event in document["traceEvents"] if event["ph"] == "X"]
    named = {
        (event["pid"], event["tid"]) for event in document["traceEvents"] if event["name"] == "thread_name"
    }
    assert len(bars) == made.bar_count
    assert {(event["pid"], event["tid"]) for event in bars} == named
    assert len(named) == len(made.lanes)
    stamps = sorted(round(event["ts"] * 1000) for event in bars)
    assert stamps == sorted(int(ts) - made.begin_ns for lane in made.lanes for ts in lane.bars["ts_ns"])
    assert sum(round(event["dur"] * 1000) for event in bars) == sum(
        int(lane.bars["dur_ns"].sum()) for lane in made.lanes
    )
    processes = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in run.ranks}


def test_an_export_that_fails_leaves_the_earlier_file_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "merged.json.gz"
    path.write_bytes(b"earlier")

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(perfetto, "write", fail)
    with pytest.raises(OSError):  # noqa: PT011 - raised above
        tv.export_perfetto(run, path)
    assert [one.name for one in tmp_path.iterdir()] == ["merged.json.gz"]
    assert path.read_bytes() == b"earlier"


# --- commands and section ----------------------------------------------------------------------------


def test_the_commands_write_their_files_and_say_so(folder: Path, tmp_path: Path) -> None:
    page, merged = tmp_path / "t.html", tmp_path / "m.json.gz"
    done = CliRunner().invoke(
        main, ["timeline", str(folder), "--ranks", "0-1", "--step", "11", "-o", str(page)]
    )
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"wrote {page}" in done.stderr
    assert page.read_text().startswith("<!doctype html>")
    done = CliRunner().invoke(main, ["export", str(folder), "--to", "perfetto", "-o", str(merged)])
    assert done.exit_code == 0, done.output
    assert gzip.decompress(merged.read_bytes()).endswith(b"]}\n")


def test_the_clocks_page_says_how_far_apart_and_how_sure(folder: Path) -> None:
    done = CliRunner().invoke(main, ["clocks", str(folder)])
    assert "Clocks are up to 75" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("longest", "typical"), [({1: 5, 2: 9, 3: 7}, 3), ({1: 5, 2: 9}, 1), ({4: 1}, 4), ({}, None)]
)
def test_the_typical_step_is_the_one_of_median_length(longest: dict[int, int], typical: int | None) -> None:
    rows = pl.DataFrame(
        {"step": list(longest), "window_ns": list(longest.values())},
        schema={"step": pl.Int64, "window_ns": pl.Int64},
    )
    assert section.typical_step(rows) == typical


def test_the_ranks_shown_have_the_least_the_median_and_the_most_compute() -> None:
    rows = pl.DataFrame({"rank": [0, 1, 2, 3, 4], "compute_ns": [50, 10, 40, 30, 20]})
    assert section.telling_ranks(rows) == (0, 1, 3)
    assert section.telling_ranks(rows.head(1)) == (0,)
