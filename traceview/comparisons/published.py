"""What of their speed published jobs retained as they grew; the facts are ``data/scaling.toml``."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Curve:
    """One published job, at two sizes.

    Attributes:
        who: Framework, and the model where it is named.
        hardware: What it ran on.
        from_ranks: GPUs of the smaller job.
        to_ranks: GPUs of the larger job.
        retention: Tokens per second and GPU of the larger over those of the smaller job.
        source: Where it was published.
    """

    who: str
    hardware: str
    from_ranks: int
    to_ranks: int
    retention: float
    source: str

    @property
    def per_doubling(self) -> float:
        """Retention of one doubling, were every doubling alike: what jobs of other sizes compare with."""
        return float(self.retention ** (1 / math.log2(self.to_ranks / self.from_ranks)))


@cache
def curves() -> tuple[Curve, ...]:
    """The published curves that come with traceview."""
    text = (files("traceview.data") / "scaling.toml").read_text(encoding="utf-8")
    return tuple(Curve(**row) for row in tomllib.loads(text)["curve"])
