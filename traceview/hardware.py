"""What a GPU can do: matmul peaks and what of them was ever reached, memory, links. Dense figures only.

The facts are ``data/hardware.toml``, each with its source. A device is recognised by the name profilers
record; one that nobody listed, or whose name leaves open which board it is, is unknown and gets no figure.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Self

from traceview.errors import UsageError

PRECISIONS = ("bf16", "fp16", "fp8", "fp4")
"""Operand types of matmuls that peaks are known for."""

_LONGEST_NAME = 256  # no device is called more than that
_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class Peak:
    """A matmul rate without sparsity, and who says so.

    Attributes:
        tflops: 10^12 floating-point operations per second; a multiply-add is two.
        precision: One of `PRECISIONS`.
        name: Which set of published figures it belongs to.
        source: Where it was published.
    """

    tflops: float
    precision: str
    name: str
    source: str

    @property
    def flops_per_s(self) -> float:
        """Floating-point operations per second."""
        return self.tflops * _TERA


@dataclass(frozen=True, slots=True)
class Rates:
    """One published set of matmul rates of a GPU in TFLOP/s; None where the set has no figure.

    ``fp16`` is given only where it differs from ``bf16``.
    """

    name: str
    source: str
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    fp4: float | None = None

    def at(self, precision: str) -> Peak | None:
        """The rate for ``precision``; None where the set has none."""
        tflops = getattr(self, precision)
        if precision == "fp16":
            tflops = self.fp16 or self.bf16
        return Peak(tflops, precision, self.name, self.source) if tflops else None


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one variant of a GPU: decimal GB and GB/s. ``pattern`` tells variants by device name."""

    gb: float
    gb_per_s: float
    source: str
    pattern: str = ""

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth in bytes/s."""
        return self.gb_per_s * _GIGA


@dataclass(frozen=True, slots=True)
class Link:
    """Links of one GPU, decimal GB/s in one direction, and how many GPUs share the fast ones.

    ``scale_out_gb_per_s`` is None where systems differ.
    """

    scale_up_ranks: int
    scale_up_gb_per_s: float
    source: str
    scale_out_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """What is known about one GPU.

    Attributes:
        name: Short name, such as "GB300".
        pattern: Regular expression searched in device names.
        peaks: Published sets of peaks; the first is the default.
        achieved: Best rates that were ever measured for a matmul.
        memories: Memory, one entry per variant the name leaves open.
        link: NVLink or xGMI and the network adapter; None for boards that have neither in common.
    """

    name: str
    pattern: str
    peaks: tuple[Rates, ...]
    achieved: tuple[Rates, ...] = ()
    memories: tuple[Memory, ...] = field(default=())
    link: Link | None = None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        """The device a ``[[gpu]]`` table describes."""
        return cls(
            name=row["name"],
            pattern=row["pattern"],
            peaks=tuple(Rates(**rates) for rates in row["peak"]),
            achieved=tuple(Rates(**rates) for rates in row.get("achieved", ())),
            memories=tuple(Memory(**memory) for memory in row["memory"]),
            link=Link(**row["link"]) if "link" in row else None,
        )

    @property
    def memory(self) -> Memory | None:
        """Its memory; None where the name leaves open which variant it is."""
        return self.memories[0] if len(self.memories) == 1 else None

    def peak(self, precision: str = "bf16", *, name: str | None = None) -> Peak | None:
        """The peak for ``precision``; None where the GPU has no such matmuls, or nobody published it.

        Args:
            precision: One of `PRECISIONS`.
            name: Which published set; the default one if None.

        Raises:
            UsageError: There is no such precision, or no such set for this GPU.
        """
        names = [rates.name for rates in self.peaks]
        if name is not None and name not in names:
            message = f"no peak set '{name}' for {self.name}; there is: {', '.join(names)}."
            raise UsageError(message)
        chosen = next(rates for rates in self.peaks if name in {None, rates.name})
        return chosen.at(_known(precision))

    def achievable(self, precision: str = "bf16") -> Peak | None:
        """The best rate measured for a matmul in ``precision``; None where nobody published one.

        Raises:
            UsageError: There is no such precision.
        """
        _known(precision)
        return next((peak for rates in self.achieved if (peak := rates.at(precision))), None)

    def ridge(self, precision: str = "bf16") -> float | None:
        """Operations per byte of memory traffic above which the peak is the limit, not the bandwidth.

        Raises:
            UsageError: There is no such precision.
        """
        peak = self.peak(precision)
        return peak.flops_per_s / self.memory.bytes_per_s if peak and self.memory else None


@cache
def devices() -> tuple[Device, ...]:
    """All GPUs that facts are known for, in the order their patterns are tried."""
    document = tomllib.loads((files("traceview.data") / "hardware.toml").read_text(encoding="utf-8"))
    return tuple(Device.from_row(row) for row in document["gpu"])


def of(device_name: str | None) -> Device | None:
    """The GPU that profilers call ``device_name``, such as "NVIDIA H100 80GB HBM3"; None for any other."""
    name = (device_name or "")[:_LONGEST_NAME]
    found = next((device for device in devices() if re.search(device.pattern, name, re.ASCII)), None)
    return _variant(found, name) if found else None


def named(text: str) -> Device:
    """The GPU somebody means by ``text``: a short name ("H100"), or what profilers call it.

    Raises:
        UsageError: Nothing is known about such a GPU.
    """
    wanted = text.strip().casefold()
    short = next((device for device in devices() if device.name.casefold() == wanted), None)
    if found := short or of(text):
        return found
    message = f"no facts about a GPU '{text[:64]}'; there are: {', '.join(d.name for d in devices())}."
    raise UsageError(message)


def _variant(device: Device, device_name: str) -> Device:
    """``device`` with those of its memories that fit the name."""
    fitting = tuple(m for m in device.memories if re.search(m.pattern, device_name, re.ASCII))
    return replace(device, memories=fitting)


def _known(precision: str) -> str:
    if precision not in PRECISIONS:
        message = f"no peaks for '{precision[:64]}'; choose from: {', '.join(PRECISIONS)}."
        raise UsageError(message)
    return precision
