"""The answer in sentences: one verdict, then each kind of exposed communication by what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers.breakdown import MEASURES
from traceview.analyzers.overlap import NONE, SEVERAL
from traceview.schema import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KIND = ("axis", "collective", "role")
"""The grain in which exposed communication is named."""

FINDINGS = Table(
    "findings",
    "One row per sentence with the numbers behind it; the verdict first, then the most expensive kind.",
    {
        "code": Column(pl.String(), "verdict or exposed_comm"),
        "text": Column(pl.String(), "the sentence"),
        "axis": Column(pl.String(), "parallelism axis", nullable=True),
        "collective": Column(pl.String(), "kind of exchange", nullable=True),
        "role": Column(pl.String(), "dispatch, combine, or none", nullable=True),
        "exposed_ns": Column(pl.Int64(), "exposed time it is about, over all windows", "ns"),
        "exposed_per_window_ns": Column(pl.Float64(), "the same per window", "ns", nullable=True),
        "exposed_ratio": Column(pl.Float64(), "the same over the time looked at", nullable=True),
        "overlap_ratio": Column(pl.Float64(), "hidden / communication of this kind", nullable=True),
    },
)


@dataclass(frozen=True, slots=True)
class Total:
    """The breakdown over all ranks and windows; times in ns."""

    window_ns: int
    compute_ns: int
    comm_ns: int
    hidden_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    window_count: int

    @classmethod
    def of(cls, breakdown: pl.DataFrame) -> Total:
        """Sums of a `breakdown` result, whatever its grain."""
        sums = breakdown.select(pl.col(*MEASURES, "window_count").sum()).row(0, named=True)
        return cls(**sums)

    def share(self, part_ns: float) -> float | None:
        """``part_ns`` over the time looked at; None for an empty window."""
        return part_ns / self.window_ns if self.window_ns else None

    def per_window(self, part_ns: float) -> float | None:
        """``part_ns`` per window (rank, device and step); None without windows."""
        return part_ns / self.window_count if self.window_count else None

    @property
    def overlap_ratio(self) -> float | None:
        """Hidden over all communication; None without communication."""
        return self.hidden_comm_ns / self.comm_ns if self.comm_ns else None


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its evidence; the fields are the columns of `FINDINGS`."""

    code: str
    text: str
    axis: str | None
    collective: str | None
    role: str | None
    exposed_ns: int
    exposed_per_window_ns: float | None
    exposed_ratio: float | None
    overlap_ratio: float | None


def findings(total: Total, kinds: pl.DataFrame, *, window: str) -> list[Finding]:
    """The verdict, then every kind with exposed time, the most expensive first.

    Args:
        total: The breakdown over everything.
        kinds: `overlap` by `KIND`.
        window: What one window is called: "step" or "window".
    """
    exposed = kinds.filter(pl.col("exclusive_ns") > 0)
    ranked = exposed.sort(-pl.col("exclusive_ns"), *KIND)
    costs = list(_costs(total, ranked, window))
    return [_verdict(total, costs, window), *costs]


def table(found: list[Finding]) -> pl.DataFrame:
    """``found`` as `FINDINGS`."""
    return FINDINGS.conform(pl.DataFrame([asdict(finding) for finding in found], schema=FINDINGS.schema()))


def kind_name(row: Mapping[str, Any]) -> str:
    """``ep all_to_all dispatch``, from the columns of `KIND`."""
    if row["axis"] == SEVERAL:
        return "several kinds at once"
    return " ".join(str(row[column]) for column in KIND if row[column] not in {None, NONE})


def _costs(total: Total, ranked: pl.DataFrame, window: str) -> Iterator[Finding]:
    for row in ranked.iter_rows(named=True):
        exposed, hidden = row["exclusive_ns"], row["overlap_ratio"]
        text = (
            f"{kind_name(row)}: {_each(total, exposed, window)} exposed "
            f"({units.percent(total.share(exposed))} of the {window})"
        )
        if hidden is not None:
            text += f"; {units.percent(hidden)} of it is hidden"
        yield Finding(
            "exposed_comm",
            text,
            row["axis"],
            row["collective"],
            row["role"],
            exposed,
            total.per_window(exposed),
            total.share(exposed),
            hidden,
        )


def _verdict(total: Total, costs: list[Finding], window: str) -> Finding:
    exposed = total.exposed_comm_ns
    axis, collective, role = (
        (costs[0].axis, costs[0].collective, costs[0].role) if costs else (None, None, None)
    )
    return Finding(
        "verdict",
        _verdict_text(total, costs, window),
        axis,
        collective,
        role,
        exposed,
        total.per_window(exposed),
        total.share(exposed),
        total.overlap_ratio,
    )


def _verdict_text(total: Total, costs: list[Finding], window: str) -> str:
    if not total.window_ns:
        return "No device work was recorded, so there is nothing to measure."
    idle = f"the device idles {units.percent(total.share(total.idle_ns))} of the {window}"
    if not total.comm_ns:
        return f"No communication was recorded; {idle}."
    if not costs:
        return f"All communication is hidden under compute; {idle}."
    return (
        f"{units.percent(total.share(total.exposed_comm_ns))} of the {window} is exposed communication, "
        f"mostly {_name(costs[0])} ({_each(total, costs[0].exposed_ns, window)}); "
        f"{units.percent(total.overlap_ratio)} of communication is hidden."
    )


def _name(finding: Finding) -> str:
    return kind_name({column: getattr(finding, column) for column in KIND})


def _each(total: Total, part_ns: int, window: str) -> str:
    suffix = "/step" if window == "step" else ""
    return units.duration(total.per_window(part_ns)).replace(" ", " ") + suffix
