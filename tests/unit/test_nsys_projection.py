"""Projections of ranges onto the device, as nsys recipes write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from nsys_reports import texts

from traceview.classify import Classifier
from traceview.parsers.nsys import PARSER
from traceview.prepare import prepare
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path


def _projection(layout: str) -> pl.DataFrame:
    scope = "jit(step)/transpose(jvp(model))/layers_3/moe/dispatch/mul"
    texts_ = [
        "XlaModule:#hlo_module=jit_step#",
        f"Thunk:#name={scope},hlo_op=fusion.7#",
        "Thunk:#hlo_op=all-gather-start.2#",
        "ncclGroupEnd",
    ]
    domains = ["TSL", "TSL", "TSL", "NCCL"]
    frame = pl.DataFrame(
        {
            "start": [100, 100, 150, 150, 7], "duration": [90, 30, 40, 40, 500],
            "host_start": [10.0, 11.0, 21.0, 22.0, None], "host_duration": [40.0, 5.0, 9.0, 2.0, None],
            "PID": [5] * 5, "TID": [6] * 5, "ops": [2, 1, 1, 1, 9],
            "id": [1.0, 2.0, 3.0, 4.0, None], "parent": [None, 1.0, 1.0, 3.0, None],
        }
    )  # fmt: skip
    joined = pl.Series([f"{d}:{t}" for d, t in zip(domains, texts_, strict=True)] + [None])
    if layout == "2024.4":
        spelled = {"start": "Projected Start", "duration": "Projected Duration", "host_start": "Orig Start",
                   "host_duration": "Orig Duration", "ops": "NumGPUOps", "id": "RangeId", "parent": "ParentId"}  # fmt: skip
        return frame.rename(spelled).with_columns(Name=joined)
    frame = frame.with_columns(end=pl.col("start") + pl.col("duration")).drop("duration").rename(
        {"start": "Projected Start", "end": "Projected End", "host_start": "Orig Start", "host_duration": "Orig Duration",
         "ops": "GPU Ops", "id": "Range ID", "parent": "Parent ID"}
    )  # fmt: skip
    if layout == "2024.5":
        return frame.with_columns(Text=joined)
    return frame.with_columns(Text=pl.Series([*texts_, None]), Domain=pl.Series([*domains, None]))


@pytest.mark.parametrize("layout", ["2024.4", "2024.5", "2026.1"])
def test_the_innermost_ranges_of_a_projection_stand_for_its_device_work(tmp_path: Path, layout: str) -> None:
    _projection(layout).write_parquet(tmp_path / "trace.parquet")
    [parsed] = PARSER.parse(Source(tmp_path / "trace.parquet"))
    trace = prepare(parsed, Classifier.default())
    ops = trace.table("ops")
    assert texts(ops, "name") == ["fusion.7", "all-gather-start.2"]
    assert ops.select("ts_ns", "dur_ns", "launch_ts_ns").rows() == [(100, 30, 11), (150, 40, 21)]
    assert texts(ops, "phase")[0] == "backward"
    assert ops["layer"].to_list() == [3, None]
    assert texts(trace.table("collectives"), "collective") == ["all_gather"]
    counts = dict(trace.diagnostics.select("code", "count").rows())
    assert counts["nsys.projection_outside"] == 9
