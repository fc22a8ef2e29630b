"""What ran when: the work of each rank and stream as lanes, on one clock, exact to the nanosecond.

The timeline viewer draws lanes, and the export to Perfetto writes them as tracks. Besides the streams, each
rank has lanes for its steps, for the layers its compute belongs to, and for communication that is exposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from traceview.intervals import Spans, difference, union

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.trace import Trace

GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("matrix products", "#0072B2", ("gemm",)),
    ("expert products", "#56B4E9", ("grouped_gemm",)),
    ("attention", "#009E73", ("attention",)),
    ("routing and quantisation", "#CC79A7", ("route_permute", "quantize")),
    ("other compute", "#9aa3ad", ("norm", "elementwise", "optimizer", "graph", "other", "sync")),
    ("dispatch", "#D55E00", ("dispatch",)),
    ("combine", "#E69F00", ("combine",)),
    ("other communication", "#a8324a", ()),
    ("fused communication and compute", "#7b3294", ("fused_comm_compute",)),
    ("copies", "#6b6f57", ("memory",)),
    ("exposed communication", "#D5005E", ()),
    ("steps", "#5a616b", ()),
    ("layers", "#8fa8bf", ()),
)
"""What bars stand for: label, colour, and the categories of device work; the rest is other communication."""

OTHER_COMMUNICATION, EXPOSED, STEPS, LAYERS = 7, 10, 11, 12
"""Places in `GROUPS` of what no category names."""

COLUMNS = ("ts_ns", "dur_ns", "name", "context", "group")


@dataclass(frozen=True, slots=True)
class Clock:
    """How one rank's stamps become common ones; see `traceview.analyzers.clocks`."""

    offset_ns: float = 0.0
    drift_ppm: float = 0.0
    origin_ns: int = 0

    def aligned(self) -> pl.Expr:
        """Column ``ts_ns`` on the common clock."""
        shift = self.offset_ns + self.drift_ppm * 1e-6 * (pl.col("ts_ns") - self.origin_ns)
        return pl.col("ts_ns") + shift.round().cast(pl.Int64)


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars of one rank in one row.

    Attributes:
        rank: Whose.
        label: What the row is: "stream 7", "exposed", "steps", "layers".
        kind: "stream" or one of the other three.
        bars: `COLUMNS`, ordered by start: absolute ns on the common clock, and a place in `GROUPS`.
        device: Device on its host; 0 where lanes are of the rank.
        stream: Of a lane of kind "stream".
    """

    rank: int
    label: str
    kind: str
    bars: pl.DataFrame
    device: int = 0
    stream: int | None = None


def clocks(corrections: pl.DataFrame) -> dict[int, Clock]:
    """Clock by rank, of the result of `traceview.analyzers.clocks`."""
    columns = ("rank", "offset_ns", "drift_ppm", "origin_ns")
    return {rank: Clock(*values) for rank, *values in corrections.select(columns).iter_rows()}


def of_run(
    traces: Sequence[Trace], corrections: Mapping[int, Clock], *, step: int | None = None
) -> Iterator[Lane]:
    """Lanes of ``traces``, rank by rank.

    Args:
        traces: The ranks wanted.
        corrections: Clock by rank; a rank without one keeps its own.
        step: Only what overlaps this step's window on the device; everything if None.
    """
    for trace in traces:
        held = trace.held()
        yield from _of_rank(held, corrections.get(held.facts.rank or 0, Clock()), step)


def _of_rank(trace: Trace, clock: Clock, step: int | None) -> Iterator[Lane]:
    rank, steps = trace.facts.rank or 0, trace.table("steps")
    ops = trace.table("ops")
    if step is not None:
        steps = steps.filter(pl.col("step") == step)
        ops = ops.filter(_overlaps(steps))
    ops = ops.sort("ts_ns", maintain_order=True)
    bars = _bars(ops, trace.table("collectives"), clock)
    yield Lane(rank, "steps", "steps", _step_bars(steps, clock))
    layers = _layer_bars(ops, clock)
    if len(layers):
        yield Lane(rank, "layers", "layers", layers)
    several = bars["device"].n_unique() > 1
    for (device, stream), own in bars.sort("device", "stream", maintain_order=True).group_by(
        "device", "stream", maintain_order=True
    ):
        label = f"stream {stream}" if stream is not None else "no stream"
        if several:
            label = f"device {device} {label}"
        yield Lane(rank, label, "stream", own.select(COLUMNS), int(device), stream)
    exposed = _exposed_bars(ops, bars, clock)
    if len(exposed):
        yield Lane(rank, "exposed", "exposed", exposed)


def _overlaps(steps: pl.DataFrame) -> pl.Expr:
    if not len(steps):
        return pl.lit(value=False)
    begin, end = int(steps["ts_ns"][0]), int(steps["ts_ns"][0]) + int(steps["dur_ns"][0])
    return (pl.col("ts_ns") < end) & (pl.col("ts_ns") + pl.col("dur_ns") > begin)


def _bars(ops: pl.DataFrame, collectives: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """`COLUMNS` of device ops, with ``device, stream``."""
    place = {name: number for number, (_, _, names) in enumerate(GROUPS) for name in names}
    group = pl.col("category").cast(pl.String).replace_strict(place, default=OTHER_COMMUNICATION)
    role = pl.col("role").cast(pl.String).replace_strict(place, default=None, return_dtype=pl.Int64)
    named = ops.join(collectives.select("op", "axis", "collective"), on="op", how="left", suffix="_call")
    what = pl.concat_str(
        pl.col("axis").cast(pl.String),
        pl.col("collective_call").cast(pl.String),
        separator=" ",
        ignore_nulls=True,
    )
    parts = [
        pl.when(what != "").then(what),
        *(pl.format(f"{column} {{}}", pl.col(column)) for column in ("step", "layer", "microbatch")),
        pl.col("phase").cast(pl.String),
        pl.col("module").cast(pl.String).str.head(80),
    ]
    return named.select(
        "device",
        "stream",
        clock.aligned().alias("ts_ns"),
        "dur_ns",
        pl.col("name").cast(pl.String),
        context=pl.concat_str(parts, separator=" · ", ignore_nulls=True),
        group=pl.coalesce(role, group).cast(pl.UInt8),
    )


def _step_bars(steps: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    return steps.sort("ts_ns").select(
        clock.aligned().alias("ts_ns"),
        "dur_ns",
        name=pl.format("step {}", "step"),
        context=pl.when(pl.col("status") == "complete")
        .then(pl.lit(""))
        .otherwise(pl.col("status").cast(pl.String)),
        group=pl.lit(STEPS, pl.UInt8),
    )


def _layer_bars(ops: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Stretches in which successive compute belongs to one layer and phase."""
    compute = ops.filter(pl.col("class").is_in(["compute", "fused"]) & pl.col("layer").is_not_null())
    key = pl.struct("layer", "phase", "microbatch")
    grouped = compute.with_columns(run=key.rle_id()).group_by("run", maintain_order=True)
    end = (pl.col("ts_ns") + pl.col("dur_ns")).max()
    found = grouped.agg(
        pl.col("ts_ns").min(),
        pl.col("layer", "phase", "microbatch").first(),
        dur_ns=end - pl.col("ts_ns").min(),
    )
    return found.sort("ts_ns").select(
        clock.aligned().alias("ts_ns"),
        "dur_ns",
        name=pl.format("layer {}", "layer"),
        context=pl.concat_str(
            pl.col("phase").cast(pl.String),
            pl.format("microbatch {}", "microbatch"),
            separator=" · ",
            ignore_nulls=True,
        ),
        group=pl.lit(LAYERS, pl.UInt8),
    )


def _exposed_bars(ops: pl.DataFrame, bars: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Stretches of communication without compute, named after the communication that runs as they begin."""
    spans = _spans(ops)
    is_comm = (ops["class"] == "comm").to_numpy()
    computing = ops["class"].is_in(["compute", "fused"]).to_numpy()
    exposed = difference(union(spans.take(is_comm)), union(spans.take(computing)))
    shifted = pl.DataFrame({"ts_ns": exposed.start, "dur_ns": exposed.durations()}).sort("ts_ns")
    names = bars.filter(pl.Series(is_comm)).select("ts_ns", "context").sort("ts_ns")
    return (
        shifted.with_columns(clock.aligned().alias("ts_ns"))
        .join_asof(names, on="ts_ns")
        .select(
            "ts_ns",
            "dur_ns",
            name=pl.lit("exposed communication"),
            context="context",
            group=pl.lit(EXPOSED, pl.UInt8),
        )
    )


def _spans(ops: pl.DataFrame) -> Spans:
    start = ops["ts_ns"].to_numpy()
    return Spans.of(start, start + ops["dur_ns"].to_numpy(), key=ops["device"].to_numpy())


def merged(lane: Lane, *, begin_ns: int, span_ns: int, cells: int) -> Lane:
    """``lane`` with bars shorter than a cell drawn together, where several of a group begin in one cell.

    Args:
        lane: Any lane.
        begin_ns: Start of the window.
        span_ns: Its length.
        cells: Cells the window is cut into.
    """
    cell_ns = max(span_ns // cells, 1)
    bars = lane.bars.with_columns(cell=(pl.col("ts_ns") - begin_ns) // cell_ns)
    short = pl.col("dur_ns") < cell_ns
    end = (pl.col("ts_ns") + pl.col("dur_ns")).max()
    together = (
        bars.filter(short)
        .group_by("cell", "group", maintain_order=True)
        .agg(
            pl.col("ts_ns").min(),
            dur_ns=end - pl.col("ts_ns").min(),
            name=pl.when(pl.len() > 1)
            .then(pl.format("{} short ones", pl.len()))
            .otherwise(pl.col("name").first()),
            context=pl.when(pl.len() > 1)
            .then(pl.format("{} µs of work", pl.col("dur_ns").sum() / 1000))
            .otherwise(pl.col("context").first()),
        )
    )
    kept = pl.concat([bars.filter(~short).select(COLUMNS), together.select(COLUMNS)]).sort("ts_ns")
    return Lane(lane.rank, lane.label, lane.kind, kept, lane.device, lane.stream)
