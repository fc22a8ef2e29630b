"""How fast an exchange can be expected to go: published measurements, else what the links can do.

The measurements are ``data/bandwidth.toml``, the links those of `hardware`. An expectation is that of a
large message on an idle GPU. A bus bandwidth above it is no error: switches that reduce in flight carry
each byte once.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, Self

import polars as pl

from traceview import hardware

_GB = 1e9  # decimal, as nccl-tests counts


@dataclass(frozen=True, slots=True)
class Measured:
    """One published rate of a collective or a transport (``what``) on some GPUs."""

    gpus: list[str]
    what: str
    group_size: int
    ranks_per_domain: int
    gb_per_s: float
    source: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Transport:
    """Kernels of one expert-parallel transport.

    ``crosses`` says whether they leave their scale-up domain, where their name tells.
    """

    what: str
    pattern: str
    source: str
    crosses: bool | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All sourced facts, each kind in the order of the file."""

    measured: tuple[Measured, ...]
    transport: tuple[Transport, ...]

    @classmethod
    def of(cls, document: dict[str, list[dict[str, Any]]]) -> Self:
        """The facts of a TOML document whose tables are named like the fields."""
        kinds = {"measured": Measured, "transport": Transport}
        return cls(**{f.name: tuple(kinds[f.name](**row) for row in document[f.name]) for f in fields(cls)})


@cache
def facts() -> Facts:
    """The facts that come with traceview."""
    return Facts.of(tomllib.loads((files("traceview.data") / "bandwidth.toml").read_text(encoding="utf-8")))


def transport(name: pl.Expr) -> pl.Expr:
    """The transport a kernel name belongs to; null for none."""
    said = {place: row.what for place, row in enumerate(facts().transport)}
    return _transport_row(name).replace_strict(said, default=None, return_dtype=pl.String)


def crosses(name: pl.Expr) -> pl.Expr:
    """Whether an exchange leaves its scale-up domain, as far as its kernel's name tells; else null."""
    said = {place: row.crosses for place, row in enumerate(facts().transport)}
    return _transport_row(name).replace_strict(said, default=None, return_dtype=pl.Boolean)


def far_ratio() -> pl.Expr:
    """Share of ``sent_bytes`` that leaves the scale-up domain, ``scale_out_bytes``; null where not known."""
    return pl.when(pl.col("sent_bytes") > 0).then(pl.col("scale_out_bytes") / pl.col("sent_bytes"))


def _transport_row(name: pl.Expr) -> pl.Expr:
    return pl.coalesce(
        pl.when(name.str.contains(row.pattern)).then(place) for place, row in enumerate(facts().transport)
    )


def with_expected(exchanges: pl.DataFrame) -> pl.DataFrame:
    """``exchanges`` plus ``expected_bytes_per_s`` and ``expected_source``, null where nothing is known.

    A published rate counts where GPU, collective or transport, role, group size and the ranks per
    scale-up domain are those of the measurement; of several variants the slowest. Else the links decide:

    - all-to-all: the share ``far`` of the bytes goes over the network and the rest over scale-up links, at
      once: ``1 / max(far / scale_out, (1 - far) / scale_up)``
    - send and receive: the network, once it leaves the domain
    - other collectives that leave the domain: their rings cross it over the adapters of all their
      ``near_count`` members there: ``min(scale_up, near_count * scale_out)``

    Args:
        exchanges: ``device_name, transport, collective, role`` (text), ``group_size``, ``near_count``
            (members in the rank's own domain), ``crosses`` (whether it leaves the domain), ``far_ratio``
            (share of sent bytes that leaves it); all may be null.
    """
    gpu = pl.coalesce(
        pl.when(pl.col("device_name").str.contains(device.pattern)).then(pl.lit(device.name))
        for device in hardware.devices()
    )
    keyed = exchanges.with_columns(
        gpu=gpu,
        what=pl.coalesce("transport", "collective"),
        measured_role=pl.when(pl.col("transport").is_not_null()).then("role"),
        size=pl.col("group_size").cast(pl.Int64),
    )
    joined = keyed.join(_links(), on="gpu", how="left", maintain_order="left").join(
        _slowest_measured(),
        on=["gpu", "what", "measured_role", "size"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    measured = pl.when(pl.col("near_count").is_null() | (pl.col("near_count") == pl.col("near")))
    exchanged = pl.when((pl.col("size") > 1).fill_null(value=True) & (pl.col("collective") != "barrier"))
    rate = pl.coalesce(measured.then("measured_rate"), _by_links())
    source = pl.coalesce(measured.then("measured_source"), "link_source")
    return joined.with_columns(expected_bytes_per_s=exchanged.then(rate)).select(
        *exchanges.columns,
        "expected_bytes_per_s",
        expected_source=pl.when(pl.col("expected_bytes_per_s").is_not_null()).then(source),
    )


def _by_links() -> pl.Expr:
    """What the links of one rank allow."""
    up, out, near = pl.col("scale_up"), pl.col("scale_out"), pl.col("near_count")
    evenly = pl.when(pl.col("size") > 1).then((pl.col("size") - near) / (pl.col("size") - 1))
    far = pl.coalesce("far_ratio", evenly, pl.col("crosses").cast(pl.Float64))
    mixed = pl.when(out.is_not_null()).then(1 / pl.max_horizontal(far / out, (1 - far) / up))
    ring = pl.when(out.is_not_null() & near.is_not_null()).then(pl.min_horizontal(up, near * out))
    return (
        pl.when(pl.col("collective") == "all_to_all")
        .then(pl.when(far == 0).then(up).when(far > 0).then(mixed))
        .when(~pl.col("crosses"))
        .then(up)
        .when("crosses")
        .then(pl.when(pl.col("collective") == "send_recv").then(out).otherwise(ring))
    )


@cache
def _links() -> pl.DataFrame:
    """``gpu, scale_up, scale_out`` (bytes/s), ``link_source``."""
    rows = [
        {
            "gpu": device.name,
            "scale_up": link.scale_up_gb_per_s * _GB,
            "scale_out": link.scale_out_gb_per_s * _GB if link.scale_out_gb_per_s else None,
            "link_source": f"link speed of {device.name} ({link.source})",
        }
        for device in hardware.devices()
        if (link := device.link)
    ]
    return pl.DataFrame(rows)


@cache
def _slowest_measured() -> pl.DataFrame:
    """One row per kind: ``gpu, what, measured_role, size, near, measured_rate, measured_source``."""
    rows = [
        {
            "gpu": gpu,
            "what": row.what,
            "measured_role": row.role,
            "size": row.group_size,
            "near": min(row.ranks_per_domain, row.group_size),
            "measured_rate": row.gb_per_s * _GB,
            "measured_source": f"published ({row.source})",
        }
        for row in facts().measured
        for gpu in row.gpus
    ]
    kind = ["gpu", "what", "measured_role", "size"]
    return pl.DataFrame(rows, infer_schema_length=None).sort("measured_rate").unique(kind, keep="first")
