"""What every report says first: which run, which ranks, and which steps its figures describe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from traceview.run import Run

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class About:
    """The identity of a run.

    Attributes:
        name: Name of the run.
        ranks: Ranks present, ascending.
        world_size: Ranks of the job as recorded, or None.
        formats: Trace formats met.
        device_names: Marketing names of the devices met.
        hosts: Hosts met.
    """

    name: str
    ranks: tuple[int, ...]
    world_size: int | None
    formats: tuple[str, ...]
    device_names: tuple[str, ...]
    hosts: tuple[str, ...]

    @classmethod
    def of(cls, run: Run) -> About:
        """What ``run`` is; reads no table."""
        facts = [trace.facts for trace in run.traces]
        return cls(
            name=run.name,
            ranks=run.ranks,
            world_size=run.world_size,
            formats=tuple(sorted({fact.format for fact in facts})),
            device_names=tuple(sorted({fact.device_name for fact in facts if fact.device_name})),
            hosts=tuple(sorted({fact.host for fact in facts if fact.host})),
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StepUse:
    """Which steps the figures describe.

    Attributes:
        used: Steps looked at; empty when the whole device window is one window.
        left_out: Steps not looked at by any rank, each with the reason; the whole window leaves none out.
    """

    used: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, steps: pl.DataFrame, windows: pl.DataFrame) -> StepUse:
        """From the run's `STEPS` and the windows an analysis looked at (column ``step``)."""
        used = windows["step"].drop_nulls().unique().sort()
        if used.is_empty():
            return cls((), ())
        unused = (
            steps.filter(~pl.col("step").is_in(used.implode()))
            .group_by("step")
            .agg(pl.col("status").cast(pl.String).mode().sort().first())
            .sort("step")
        )
        reasons = {"complete": NOT_ASKED}
        left_out = tuple((step, reasons.get(status, status)) for step, status in unused.iter_rows())
        return cls(tuple(used.to_list()), left_out)
