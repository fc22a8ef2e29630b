"""Who a traced process of an Nsight Systems report is: its rank, its devices, its host, and the versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from traceview.parsers import _nsys_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from traceview.parsers._nsys_export import Export

HOST = "Hostname"
_SYSTEM_FACTS = {"NvDriverVersion": "driver_version", "CudaDriverVersion": "cuda_driver_version"}
_EXPORT_FACTS = {"EXPORT_PRODUCT_VERSION": "nsys_version", "EXPORT_SCHEMA_VERSION": "nsys_schema_version"}
_MAX_FACT = 256

RANK_IN_DEVICE = r"\bglobal=(\d{1,9})\b"
"""Where XLA's name of a device tells the rank: ``Xla:#global=3,local=3,process=3#``."""

_RANK_IN_RANGE = r"^rank=(\d{1,9});"  # PithTrain labels its processes: rank=3; pp=0/2 dp=0/4 ...
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:global_?)?(?:rank|proc)[-_ ]?(\d{1,9})", re.IGNORECASE)


def host(export: Export) -> str | None:
    """Name of the machine the report was recorded on."""
    name = export.named("TARGET_INFO_SYSTEM_ENV", [HOST]).get(HOST)
    return name[:_MAX_FACT] if name else None


def versions(export: Export) -> dict[str, str]:
    """Versions of nsys and of the driver, as far as they are recorded."""
    found = export.named("META_DATA_EXPORT", _EXPORT_FACTS) | export.named(
        "TARGET_INFO_SYSTEM_ENV", _SYSTEM_FACTS
    )
    names = _EXPORT_FACTS | _SYSTEM_FACTS
    return {names[key]: value[:64] for key, value in found.items() if value}


def rank(
    export: Export, process: int, ranges: pl.DataFrame, communicators: pl.DataFrame, *, alone: bool
) -> tuple[int | None, str]:
    """The global rank of a process, and the evidence for it.

    In order: MPI's own table, device names set by XLA, a label among the ranges, the largest NCCL
    communicator, the name of the file, of its folder. The last two need the process to be ``alone`` in the
    report, and so do device names, which are not recorded by process.
    """
    answers = _recorded_rank(export, process, ranges, communicators, alone=alone)
    if (answer := next(answers, None)) is not None:
        return answer
    return named_rank(export.path) if alone else (None, "none")


def _recorded_rank(
    export: Export, process: int, ranges: pl.DataFrame, communicators: pl.DataFrame, *, alone: bool
) -> Iterator[tuple[int, str]]:
    ranks = export.table("MPI_RANKS").filter(_nsys_ids.process("globalTid") == process)["rank"]
    mpi = ranks.drop_nulls().unique()
    if len(mpi) == 1 and 0 <= mpi[0] < 1 << 31:
        yield int(mpi[0]), "MPI_RANKS"
    devices = export.table("TARGET_INFO_NVTX_CUDA_DEVICE")["name"].str.extract(RANK_IN_DEVICE)
    if alone and len(numbers := devices.drop_nulls()) == 1:
        yield int(numbers[0]), "XLA device name"
    labels = ranges["name"].unique().cast(pl.String).str.extract(_RANK_IN_RANGE).drop_nulls().unique()
    if len(labels) == 1:
        yield int(labels[0]), "NVTX label"
    largest = communicators.filter(pl.col("ranks") == pl.col("ranks").max())["rank"].unique()
    if len(largest) == 1 and largest[0] >= 0:
        yield int(largest[0]), "largest NCCL communicator"


def named_rank(path: Path) -> tuple[int | None, str]:
    """The rank in the name of the file, or of its folder."""
    for text, evidence in ((path.name, "file name"), (path.parent.name, "folder name")):
        if match := _RANK_IN_NAME.search(text):
            return int(match[1]), evidence
    return None, "none"


def devices(export: Export, pid: int) -> pl.DataFrame:
    """`DEVICES` as the process numbers them, but for the rank; and ``gpu``, the number nsys gives each.

    A process numbers its devices on its own (CUDA_VISIBLE_DEVICES); where the report does not say how, its
    numbers are taken to be the machine's.
    """
    gpus = export.table("TARGET_INFO_GPU").unique("id", keep="first", maintain_order=True)
    own = export.table("TARGET_INFO_CUDA_DEVICE").filter(pl.col("pid") == pid)
    if len(own):
        told = own.join(gpus, left_on="gpuId", right_on="id", how="left", maintain_order="left").with_columns(
            device="cudaId", gpu="gpuId", smCount=pl.coalesce("smCount", "numMultiprocessors")
        )
    else:
        told = gpus.with_columns(device=pl.coalesce("cuDevice", "id"), gpu="id")
    capability = pl.format("{}.{}", "computeMajor", "computeMinor")
    return told.select(
        "device",
        "gpu",
        name=_nsys_ids.clean("name"),
        memory_bytes="totalMemory",
        sm_count="smCount",
        compute_capability=capability,
    ).filter(pl.col("device").is_between(0, (1 << 31) - 1))
