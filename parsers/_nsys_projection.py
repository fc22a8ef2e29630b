"""What the recipe ``nvtx_gpu_proj_trace`` writes: ranges with the stretch of device work each launched.

There is no device work in these files as such. The innermost ranges stand for it, each with the time from
the start of its first piece of device work to the end of its last; that is what JAX's thunks are, one
instruction of the compiled program each. Column names differ by nsys release.

nsys-jax keeps what it knows of the device in a file above; XLA's rank stands only there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview import schema
from traceview.errors import ParseError, UnknownFormatError
from traceview.parsers import _nsys_ids, _nsys_process, _nsys_ranges
from traceview.parsers._nsys_columns import STORED
from traceview.trace import Facts, Trace, diagnostic
from traceview.units import plural

if TYPE_CHECKING:
    from pathlib import Path

    from traceview.source import Source

MAGIC = b"PAR1"
"""How a Parquet file begins."""

_SPELLINGS = {
    "name": ("Name", "Text"),
    "domain": ("Domain",),
    "start": ("Projected Start", "Start"),
    "duration": ("Projected Duration", "Duration"),
    "end": ("Projected End", "End"),
    "host_start": ("Orig Start", "Original Start"),
    "host_duration": ("Orig Duration", "Original Duration"),
    "pid": ("PID",),
    "tid": ("TID",),
    "op_count": ("NumGPUOps", "GPU Ops"),
    "id": ("RangeId", "Range ID"),
    "parent": ("ParentId", "Parent ID"),
}
_NUMBERS = [name for name in _SPELLINGS if name not in {"name", "domain"}]

_DOMAIN = r"^([A-Za-z][\w.-]*):(?:[^:]|$)"  # older releases write Domain:text, but a::b is C++
_INSTRUCTION = r"[#,]hlo_op=([^,#]+)"
_SCOPE = r"^Thunk:#name=(.*?),hlo_op="

_HIGHEST = 1 << 61  # sums of stamps stay within int64

_DEVICE_FILE = "device-metadata.parquet"
_DEVICE_FACTS = {
    "('TARGET_INFO_NVTX_CUDA_DEVICE', 'name')": "label",
    "cuDevice": "device",
    "('TARGET_INFO_GPU', 'name')": "name",
    "('TARGET_INFO_GPU', 'totalMemory')": "memory_bytes",
    "('TARGET_INFO_GPU', 'smCount')": "sm_count",
}


def trace(source: Source) -> Trace:
    """The one process of a projection.

    Raises:
        UnknownFormatError: It is some other Parquet file.
        ParseError: It cannot be read.
    """
    rows = _rows(source.path)
    bundle = source.path.parent.parent
    device = _device(bundle / _DEVICE_FILE)
    home = source.path if device is None else bundle
    rank, rank_source = _rank(home, device)
    number = pl.lit(rank or 0)
    owner = {"rank": number, "device": pl.lit(0 if device is None else device["device"][0])}
    ops = schema.PARSED_OPS.admit(_ops(rows).with_columns(**owner))
    tables = {
        "ops": ops,
        "launches": schema.LAUNCHES.admit(_launches(rows).with_columns(rank=number)),
        "ranges": schema.PARSED_RANGES.admit(_ranges(rows).with_columns(rank=number)),
        "host_ops": schema.HOST_OPS.empty(),
        "syncs": schema.SYNCS.empty(),
        "comm_calls": schema.COMM_CALLS.empty(),
        "groups": schema.PARSED_GROUPS.empty(),
        "devices": schema.DEVICES.empty()
        if device is None
        else schema.DEVICES.admit(device.with_columns(rank=number)),
    }
    facts = Facts(
        path=str(home),
        format="nsys",
        rank=rank,
        rank_source=rank_source,
        # every report counts from a start of its own, which is not recorded here: none shares a clock
        host=f"report {home.name}",
        device_name=None if device is None else device["name"][0],
        clock="session start",
        start_ns=int(ops["ts_ns"].to_numpy().min()),
        end_ns=int((ops["ts_ns"] + ops["dur_ns"]).to_numpy().max()),
        event_count=len(rows),
    )
    return Trace(facts, tables).with_diagnostics(*_notes(rows, ops, rank or 0))


def _rows(path: Path) -> pl.DataFrame:
    """The file's rows under the names of `_SPELLINGS`, with ``host_*``, ``domain`` and ``id`` where known."""
    try:
        stored = list(pl.read_parquet_schema(path))
        known = {
            name: next((spelling for spelling in spellings if spelling in stored), None)
            for name, spellings in _SPELLINGS.items()
        }
        found = {name: spelling for name, spelling in known.items() if spelling is not None}
        if not {"name", "start", "id"} <= found.keys() or not {"duration", "end"} & found.keys():
            raise _another_file(path, stored)
        raw = pl.read_parquet(path, columns=list(found.values()))
    except (OSError, pl.exceptions.PolarsError) as error:
        what = f"a Parquet file that cannot be read ({type(error).__name__})"
        raise UnknownFormatError.of(path, what, "copy it again, or write it again") from error
    rows = raw.select(pl.col(spelling).alias(name) for name, spelling in found.items())
    absent = [pl.lit(None, pl.String).alias(name) for name in _SPELLINGS if name not in found]
    typed = rows.with_columns(absent).with_columns(
        pl.col(*_NUMBERS).cast(pl.Int64, strict=False), pl.col("name", "domain").cast(pl.String)
    )
    whole = _told(typed).filter(pl.col("start").is_between(-_HIGHEST, _HIGHEST), pl.col("duration") >= 0)
    if not len(whole.drop_nulls("id")):
        raise ParseError.reading(
            path, "rows", "no range launched any device work", "record with --trace=cuda,nvtx"
        )
    return whole.sort("start", maintain_order=True)


def _told(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with their domain and their text apart, and a duration."""
    domain = pl.coalesce("domain", pl.col("name").str.extract(_DOMAIN))
    text = pl.when(pl.col("name").str.starts_with(domain + ":")).then(
        pl.col("name").str.slice(domain.str.len_chars() + 1)
    )
    return rows.with_columns(
        domain=domain,
        text=pl.coalesce(text, "name").str.slice(0, _nsys_ids.MAX_NAME),
        duration=pl.coalesce("duration", pl.col("end") - pl.col("start")),
    )


def _another_file(path: Path, columns: list[str]) -> UnknownFormatError:
    if path.stem in STORED:
        what, hint = "one table of an Nsight Systems export", "pass its directory"
    elif any(name.startswith("('TARGET_INFO_") for name in columns):
        what, hint = "what nsys-jax noted about a device", "pass the trace.parquet in the folder beside it"
    else:
        what, hint = "a Parquet file", "pass the trace it was made from"
    return UnknownFormatError.of(path, what, hint)


def _device(path: Path) -> pl.DataFrame | None:
    """The device of the process as nsys-jax noted it; None unless it noted exactly one."""
    try:
        noted = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
    if len(noted) != 1 or not _DEVICE_FACTS.keys() <= set(noted.columns):
        return None
    facts = noted.select(pl.col(column).alias(name) for column, name in _DEVICE_FACTS.items())
    numbers = pl.col("device", "memory_bytes", "sm_count").cast(pl.Int64, strict=False)
    typed = facts.with_columns(numbers, pl.col("name", "label").cast(pl.String))
    return typed.with_columns(pl.when(pl.col("device").is_between(0, 1 << 16)).then("device").fill_null(0))


def _rank(home: Path, device: pl.DataFrame | None) -> tuple[int | None, str]:
    number = None if device is None else device["label"].str.extract(_nsys_process.RANK_IN_DEVICE)[0]
    return _nsys_process.named_rank(home) if number is None else (int(number), "XLA device name")


def _ops(rows: pl.DataFrame) -> pl.DataFrame:
    """The innermost ranges as device work, in order; NCCL's own count for the range around them."""
    # NCCL's ranges are inside of the instruction that is wanted here
    own = rows.drop_nulls("id").filter(
        (pl.col("domain") != _nsys_ranges.NCCL_DOMAIN).fill_null(value=True) | pl.col("parent").is_null()
    )
    innermost = own.filter(~pl.col("id").is_in(own["parent"].drop_nulls().implode()))
    return innermost.with_row_index("op").select(
        "op",
        ts_ns="start",
        dur_ns="duration",
        kind=pl.lit("kernel"),
        name=pl.coalesce(pl.col("text").str.extract(_INSTRUCTION), "text"),
        correlation="id",
    )


def _launches(rows: pl.DataFrame) -> pl.DataFrame:
    """One call per range, at its start on the host: it stands for those that launched its work."""
    return rows.drop_nulls(["id", "host_start"]).select(
        "pid", "tid", ts_ns="host_start", dur_ns=pl.lit(0), name=pl.lit("range"), correlation="id"
    )


def _ranges(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges on the host; a thunk goes by the scope of the model it was compiled from."""
    return rows.drop_nulls(["id", "host_start", "host_duration"]).select(
        "pid",
        "tid",
        "domain",
        ts_ns="host_start",
        dur_ns=pl.col("host_duration").clip(lower_bound=0),
        raw_name=pl.coalesce(pl.col("text").str.extract(_SCOPE), "text"),
    )


def _notes(rows: pl.DataFrame, ops: pl.DataFrame, rank: int) -> list[pl.DataFrame]:
    text = (
        f"{plural(len(ops), 'innermost range')} stand for the device work, which a projection does not hold: "
        "gaps inside them count as work, and copies cannot be told from kernels"
    )
    notes = [diagnostic("warning", "nsys.projection", text, count=len(ops), rank=rank)]
    outside = int(rows.filter(pl.col("id").is_null())["op_count"].sum())
    if outside:
        text = f"{plural(outside, 'piece')} of device work lie in no range and are left out"
        notes.append(diagnostic("warning", "nsys.projection_outside", text, count=outside, rank=rank))
    return notes
