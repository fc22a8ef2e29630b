"""Counters of an Nsight Systems report: metrics of GPUs, NICs and switches, and memory of devices.

Each function returns ``start, end`` (the same instant) and the columns of `COUNTERS` but for the rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import schema
from traceview.parsers import _nsys_ids
from traceview.parsers._nsys_device import MEMORY_KINDS

if TYPE_CHECKING:
    from traceview.parsers._nsys_export import Export

GPU_METRICS = "GPU_METRICS"
NETWORKS = {
    "NET_NIC_METRIC": "NIC",
    "NET_IB_SWITCH_METRIC": "InfiniBand switch",
    "NET_ETH_SWITCH_METRIC": "Ethernet switch",
}
"""Tables of network metrics, and what their samples are of."""
MEMORY_EVENTS = "CUDA_GPU_MEMORY_USAGE_EVENTS"

_AS_RECORDED = "as recorded"  # the unit of what nobody described
_ALLOCATED, _FREED = 0, 1
_VALUE = schema.COUNTERS.columns["value"].dtype
_COLUMNS = ("device", "start", "end", "metric", "unit", "value", "holds")


def gpu_metrics(export: Export, owned: pl.DataFrame) -> pl.DataFrame:
    """Samples of the metrics of some devices.

    Args:
        export: The report.
        owned: ``device, gpu`` of the devices wanted.
    """
    samples = export.table(GPU_METRICS).drop_nulls("value")
    described = export.table("TARGET_INFO_GPU_METRICS").unique(["typeId", "metricId"], keep="first")
    unit = pl.col("metricName").str.extract(r"\[(?:Throughput )?([^\]]*)\]$")
    gpu = pl.col("typeId") & 0xFF  # the rest is where the GPU is: hardware, virtual machine
    return (
        samples.with_columns(gpu=gpu)
        .join(owned.select("device", "gpu").unique("gpu", keep="first"), on="gpu")
        .join(described, on=["typeId", "metricId"])
        .select(
            "device",
            start="timestamp",
            end="timestamp",
            metric=pl.col("metricName").str.replace(r"\s*\[[^\]]*\]$", ""),
            unit=unit.fill_null(_AS_RECORDED),
            value=pl.col("value").cast(_VALUE),
            holds=pl.lit("before"),
        )
        .sort("start", maintain_order=True)
    )


def network_metrics(export: Export) -> pl.DataFrame:
    """Samples of the NICs of the machine and of switches, at the end of the span that each is about.

    The metric says whose it is: ``mlx5_0: IB: Bytes sent``.
    """
    described = export.table("TARGET_INFO_NETWORK_METRICS")
    described = described.unique(["metricsListId", "metricsIdx"], keep="first")
    nics = _nics(export)
    parts = [_network(export, table, what, described, nics) for table, what in NETWORKS.items()]
    return pl.concat(parts).sort("start", maintain_order=True)


def _network(
    export: Export, table: str, what: str, described: pl.DataFrame, nics: pl.DataFrame
) -> pl.DataFrame:
    number = pl.col("globalId").reinterpret(signed=False)
    port = pl.format(" port {}", "portId").fill_null("")
    owner = pl.concat_str(pl.coalesce("nic", pl.format(what + " {}", number)), port)
    metric = pl.coalesce("name", pl.format("metric {} of list {}", "metricsIdx", "metricsListId"))
    return (
        export.table(table)
        .drop_nulls("value")
        .join(described, on=["metricsListId", "metricsIdx"], how="left", maintain_order="left")
        .join(nics, on="globalId", how="left", maintain_order="left")
        .select(
            device=pl.lit(None, pl.Int32),
            start="end",
            end="end",
            metric=pl.format("{}: {}", owner, metric).str.slice(0, _nsys_ids.MAX_NAME),
            unit=pl.when(pl.col("unit").str.len_chars() > 0).then("unit").otherwise(pl.lit(_AS_RECORDED)),
            value=pl.col("value").cast(_VALUE),
            holds=pl.lit("before"),
        )
    )


def _nics(export: Export) -> pl.DataFrame:
    """Names of NICs: ``globalId, nic``. Older exports have the global number in the table itself."""
    told = export.table("TARGET_INFO_NIC_INFO").with_columns(nic=_nsys_ids.clean("name"))
    mapped = export.table("NIC_ID_MAP").join(told.select("nicId", "nic"), on="nicId")
    both = pl.concat([mapped.select("globalId", "nic"), told.select("globalId", "nic")])
    return both.drop_nulls().unique("globalId", keep="first", maintain_order=True)


def memory_events(export: Export) -> pl.DataFrame:
    """Events of device memory in order: ``process, device, start, bytes, kind, address, freed``."""
    return (
        export.table(MEMORY_EVENTS)
        .drop_nulls("bytes")
        .filter(pl.col("memoryOperationType").is_in([_ALLOCATED, _FREED]))
        .select(
            "start",
            "bytes",
            "address",
            process=_nsys_ids.process("globalPid"),
            device=pl.col("deviceId").cast(pl.Int32, strict=False),
            kind=pl.col("memKind").replace_strict(MEMORY_KINDS, default="Unknown", return_dtype=pl.String),
            freed=pl.col("memoryOperationType") == _FREED,
        )
        .sort("start", maintain_order=True)
    )


def memory(events: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Bytes allocated and freed, each where it happened, and where that is exact also what is held.

    Held is what was allocated while recording and not freed yet, per device and kind of memory. It is left
    out where an event has no counterpart: at each address an allocation and a release of as many bytes must
    take turns.

    Args:
        events: `memory_events` of one process.

    Returns:
        The samples, and how many events have no counterpart.
    """
    place = ("device", "kind", "address")
    turn = pl.int_range(pl.len()).over(place) % 2 == pl.col("freed").cast(pl.Int64)
    fits = ~pl.col("freed") | (pl.col("bytes") == pl.col("bytes").shift(1).over(place))
    what = pl.when("freed").then(pl.lit("freed")).otherwise(pl.lit("allocated"))
    judged = events.with_columns(
        metric=pl.format("Memory {} ({})", what, "kind"),
        paired=(turn & fits).fill_null(value=False),
        change=pl.when("freed").then(-pl.col("bytes")).otherwise("bytes"),
    )
    pool = ("device", "kind")
    held = judged.filter(pl.col("paired").all().over(pool)).with_columns(
        metric=pl.format("Memory held ({})", "kind"),
        bytes=pl.col("change").cum_sum().over(pool),
        holds=pl.lit("after"),
    )
    moved = judged.with_columns(holds=pl.lit(None, pl.String))
    samples = pl.concat([moved, held]).sort("start", maintain_order=True)
    told = samples.select(
        "device",
        "start",
        "metric",
        "holds",
        end="start",
        unit=pl.lit("bytes"),
        value=pl.col("bytes").cast(_VALUE),
    )
    return told.select(_COLUMNS), int((~judged["paired"]).sum())
