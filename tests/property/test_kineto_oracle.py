"""The Kineto parser against `json` and `Decimal`: any layout, any order of keys, any cut of the stream."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.parsers import _json_stream
from traceview.parsers.kineto import PARSER
from traceview.source import Source

if TYPE_CHECKING:
    from pathlib import Path

NASTY = st.sampled_from(
    ['}, {"ph": "X"', '"traceEvents": [', "]}", "\\", "\u2028", "é", "{lambda(float)#1}", "\n", "k" * 90]
)
NAMES = st.lists(st.one_of(NASTY, st.text(max_size=6)), max_size=3).map("".join)
# marks stamps until the quotes around them are taken off; longer than any drawn piece of a name
STAMP = "@bare-decimal@"
STAMPS = st.decimals(min_value=0, max_value=10**9, places=3)
EXTRA = st.dictionaries(
    st.sampled_from(["Input Dims", "note", "nested", "queued"]),
    st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | NASTY, lambda inner: st.lists(inner, max_size=3)
                 | st.dictionaries(NASTY, inner, max_size=2), max_leaves=6),
    max_size=3,
)  # fmt: skip
DEVICE_ARGS = st.fixed_dictionaries(
    {"stream": st.integers(-1, 2**40), "correlation": st.integers(0, 2**40)},
    optional={"device": st.integers(0, 7), "bytes": st.integers(0, 2**50), "grid": st.just([3, 5, 2])},
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    cat = draw(
        st.sampled_from(
            ["kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation", "python_function"]
        )
    )
    args = draw(DEVICE_ARGS) if cat in {"kernel", "gpu_memcpy"} else {"correlation": draw(st.integers(0, 99))}
    event = {
        "ph": draw(st.sampled_from("XXXXXXsfiMC")),
        "cat": cat,
        "name": draw(NAMES),
        "pid": draw(st.integers(0, 2**33) | st.just("Spans")),
        "tid": draw(st.integers(-(2**31), 2**63)),
        "ts": draw(STAMPS),
        "dur": draw(STAMPS),
        "args": args | draw(EXTRA),
    }
    return dict(draw(st.permutations(list(event.items()))))


def _text(rows: list[dict[str, Any]], indent: int | None, *, after: bool) -> bytes:
    header = {"deviceProperties": [{"id": 0, "name": "G"}], "distributedInfo": {"rank": 3, "world_size": 8}}
    plain = [row | {key: f"{STAMP}{row[key]}{STAMP}" for key in ("ts", "dur")} for row in rows]
    document = {"traceEvents": plain, **header} if after else {**header, "traceEvents": plain}
    # stamps are written as bare decimals, digit for digit
    return json.dumps(document, indent=indent).replace(f'"{STAMP}', "").replace(f'{STAMP}"', "").encode()


@given(
    rows=st.lists(events(), min_size=1, max_size=14),
    indent=st.sampled_from([None, 0, 1]),
    after=st.booleans(),
    chunk=st.integers(30, 3000),
)
def test_device_work_is_what_json_and_decimal_say(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    indent: int | None,
    *,
    after: bool,
    chunk: int,
) -> None:
    anchor = {"ph": "X", "cat": "kernel", "name": "anchor", "pid": 0, "tid": 7, "ts": Decimal("1.5"), "dur": Decimal(2),
              "args": {"stream": 7, "correlation": 1}}  # fmt: skip
    rows = [anchor, *rows]
    path: Path = tmp_path_factory.mktemp("oracle") / "t.json"
    text = _text(rows, indent, after=after)
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_json_stream, "CHUNK_BYTES", chunk)
        patch.setattr(_json_stream, "_OVERLAP", 40)
        [trace] = PARSER.parse(Source(path))
    decoded = json.loads(text, parse_float=Decimal)["traceEvents"]
    device = [row for row in decoded if row["ph"] == "X" and row["cat"] in {"kernel", "gpu_memcpy"}]
    expected = sorted(
        (int(row["ts"] * 1000), int(row["dur"] * 1000), row["name"], row["args"]["stream"], row["args"]["correlation"],
         row["args"].get("bytes"), 30 if "grid" in row["args"] else None)
        for row in device
    )  # fmt: skip
    columns = ("ts_ns", "dur_ns", "name", "stream", "correlation", "bytes", "grid_blocks")
    found = trace.table("ops").with_columns(pl.col("name").cast(pl.String)).select(columns).rows()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert (trace.facts.rank, trace.facts.world_size) == (3, 8)
    assert trace.facts.event_count == len(rows)
    annotations = [row["name"] for row in decoded if row["ph"] == "X" and row["cat"] == "user_annotation"]
    assert sorted(trace.table("ranges")["raw_name"].cast(pl.String).to_list()) == sorted(annotations)
    assert trace.diagnostics.filter(pl.col("code").str.starts_with("kineto.unread")).is_empty()
