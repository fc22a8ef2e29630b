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

MOST = 7
"""Sentences shown, the verdict included; what costs less is in the tables."""

WORTH_RATIO = 0.005
"""A cost below this share of the time looked at is not worth a sentence."""

SLOW_RATIO = 0.7
"""A transfer below this share of the expected bandwidth is called slow."""

FINDINGS = Table(
    "findings",
    "One row per sentence with the numbers behind it: the verdict, then what costs most per rank and window. "
    "Costs overlap (a straggler's cost is part of the waiting of its exchanges) and must not be added.",
    {
        "code": Column(pl.String(), "verdict, exposed_comm, straggler, imbalance, idle or exposed_copy"),
        "text": Column(pl.String(), "the sentence"),
        "advice": Column(pl.String(), "what to try", nullable=True),
        "method": Column(pl.String(), "how the cost was found", nullable=True),
        "command": Column(pl.String(), "the command that shows the evidence", nullable=True),
        "axis": Column(pl.String(), "parallelism axis", nullable=True),
        "collective": Column(pl.String(), "kind of exchange", nullable=True),
        "role": Column(pl.String(), "dispatch, combine, or none", nullable=True),
        "rank": Column(pl.Int32(), "rank it is about", nullable=True),
        "exposed_ns": Column(pl.Int64(), "time it costs, over all ranks and windows", "ns"),
        "exposed_per_window_ns": Column(pl.Float64(), "the same per rank and window", "ns", nullable=True),
        "exposed_ratio": Column(pl.Float64(), "the same over the time looked at", nullable=True),
        "overlap_ratio": Column(pl.Float64(), "hidden / communication of this kind", nullable=True),
        "wait_ratio": Column(pl.Float64(), "waiting over exposed time of this kind", nullable=True),
        "expected_ratio": Column(pl.Float64(), "bandwidth over the expected one", nullable=True),
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
class Evidence:
    """Results the findings rest on, beside the breakdown.

    Attributes:
        kinds: `overlap` by `KIND`.
        latency: `collectives` by `KIND`.
        blame: `stragglers` by rank.
        loads: `experts` by layer.
    """

    kinds: pl.DataFrame
    latency: pl.DataFrame
    blame: pl.DataFrame
    loads: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its evidence; the fields are the columns of `FINDINGS`."""

    code: str
    text: str
    exposed_ns: int
    exposed_per_window_ns: float | None
    exposed_ratio: float | None
    advice: str | None = None
    method: str | None = None
    command: str | None = None
    axis: str | None = None
    collective: str | None = None
    role: str | None = None
    rank: int | None = None
    overlap_ratio: float | None = None
    wait_ratio: float | None = None
    expected_ratio: float | None = None


def findings(total: Total, evidence: Evidence, *, window: str) -> list[Finding]:
    """The verdict, then at most `MOST` - 1 costs, the largest first.

    Args:
        total: The breakdown over everything.
        evidence: What is known beside it.
        window: What one window is called: "step" or "window".
    """
    kinds = list(_kinds(total, evidence, window))
    costs = [
        *kinds,
        *_stragglers(total, evidence.blame, window),
        *_imbalance(total, evidence.loads, window),
        *_idle(total, window),
        *_copies(total, window),
    ]
    worth = [cost for cost in costs if (cost.exposed_ratio or 0) >= WORTH_RATIO]
    ranked = sorted(worth, key=lambda cost: (-cost.exposed_ns, cost.code, cost.text))
    return [_verdict(total, kinds, window), *ranked[: MOST - 1]]


def table(found: list[Finding]) -> pl.DataFrame:
    """``found`` as `FINDINGS`."""
    return FINDINGS.conform(pl.DataFrame([asdict(finding) for finding in found], schema=FINDINGS.schema()))


def kind_name(row: Mapping[str, Any]) -> str:
    """``ep all_to_all dispatch``, from the columns of `KIND`."""
    if row["axis"] == SEVERAL:
        return "several kinds at once"
    return " ".join(str(row[column]) for column in KIND if row[column] not in {None, NONE})


def _cost(total: Total, code: str, text: str, cost_ns: float, **more: Any) -> Finding:  # noqa: ANN401 - fields
    return Finding(code, text, round(cost_ns), total.per_window(cost_ns), total.share(cost_ns), **more)


def _kinds(total: Total, evidence: Evidence, window: str) -> Iterator[Finding]:
    """Each kind of exposed communication: waiting or moving bytes, and how fast."""
    exposed = evidence.kinds.filter(pl.col("exclusive_ns") > 0)
    known = evidence.latency.select(
        *KIND,
        "exposed_wait_ns",
        "exposed_transfer_ns",
        "sync_exposed_ns",
        "expected_ratio",
        "busbw_bytes_per_s",
    )
    joined = exposed.join(known, on=KIND, how="left", nulls_equal=True, maintain_order="left")
    for row in joined.sort(-pl.col("exclusive_ns"), *KIND).iter_rows(named=True):
        cost, split = row["exclusive_ns"], row["exposed_wait_ns"]
        moving = row["exposed_transfer_ns"]
        waiting = (
            split / (split + moving) if split is not None and moving is not None and split + moving else None
        )
        text = f"{kind_name(row)}: {_each(total, cost, window)} exposed ({_of(total, cost, window)})"
        if row["overlap_ratio"] is not None:
            text += f"; {units.percent(row['overlap_ratio'])} of it is hidden"
        if waiting is not None:
            text += f"; {units.percent(waiting)} of the exposed time is waiting for late ranks"
        if row["expected_ratio"] is not None:
            text += f", the transfer reaches {units.percent(row['expected_ratio'])} of the expected bandwidth"
        yield _cost(
            total,
            "exposed_comm",
            text,
            cost,
            advice=_advice(row, waiting),
            method="exposed while no other kind communicates; waiting = until the last rank's arrival",
            command=f"traceview {'alltoall' if row['collective'] == 'all_to_all' else 'collectives'}",
            **{column: row[column] for column in KIND},
            overlap_ratio=row["overlap_ratio"],
            wait_ratio=waiting,
            expected_ratio=row["expected_ratio"],
        )


def _advice(row: Mapping[str, Any], waiting: float | None) -> str | None:
    if row["axis"] == SEVERAL:
        return None  # what several kinds share is mended where each of them is
    if row["collective"] == "barrier":
        return (
            "this is waiting, not payload: see which rank arrives last (stragglers) and the balance (experts)"
        )
    if waiting is not None and waiting > 0.5:
        return "find who arrives last (stragglers) before touching the network"
    if row["expected_ratio"] is not None and row["expected_ratio"] < SLOW_RATIO:
        return "check message sizes, links and the SMs the transport may use: the transfer itself is slow"
    if row["axis"] == "ep":
        return "overlap it (shared experts, another microbatch), or move fewer bytes (FP8 dispatch)"
    return "start it earlier or give it work to hide under (hideability shows how much there is)"


def _stragglers(total: Total, blame: pl.DataFrame, window: str) -> Iterator[Finding]:
    """The rank that costs the others most, if it stands out."""
    blamed = blame.filter(pl.col("rank").is_not_null() & (pl.col("blamed_ns") > 0))
    everything = int(blame["blamed_ns"].sum()) + int(blame["unblamed_ns"].sum())
    for row in blamed.sort("blamed_ns", descending=True, maintain_order=True).head(1).iter_rows(named=True):
        share = row["blamed_ns"] / everything
        if share < _STANDS_OUT:
            return
        cause = f", mostly: {str(row['cause']).replace('_', ' ')}" if row["cause"] else ""
        suspect = f"; suspect: its {SUSPECTS.get(row['suspect'], row['suspect'])}" if row["suspect"] else ""
        text = (
            f"rank {row['rank']} arrives last: the others wait {_each(total, row['blamed_ns'], window)} "
            f"for it on average ({units.percent(share)} of all exposed waiting){_blur(row)}{cause}{suspect}"
        )
        yield _cost(
            total,
            "straggler",
            text,
            row["blamed_ns"],
            rank=row["rank"],
            advice=_STRAGGLER_ADVICE.get(
                row["cause"], "compare its kernels and launches with another rank's"
            ),
            method="exposed waiting of the others in exchanges whose last arrival it was",
            command="traceview stragglers",
        )


def _blur(row: Mapping[str, Any]) -> str:
    """How far apart the clocks of the hosts may be, where several meet."""
    return f", arrivals ± {units.duration(row['uncertainty_ns'])}" if row["uncertainty_ns"] else ""


_STANDS_OUT = 0.25  # a rank with less of the blame is one of many
SUSPECTS = {"gpu": "GPU", "link": "network link"}
"""What suspects are called in sentences, where not by their own name."""
_STRAGGLER_ADVICE = {
    "more_tokens": "balance the router, or move hot experts to other ranks (experts)",
    "slower_kernels": "check clocks, power and temperature of this GPU",
    "late_launch": "look at the host: launches come late (CPU, data loading, garbage collection)",
    "earlier_comm": "it was held up by an earlier exchange: follow that one",
}


def _imbalance(total: Total, loads: pl.DataFrame, window: str) -> Iterator[Finding]:
    """What uneven experts cost, where a line through the exchanges prices it."""
    priced = loads.drop_nulls("saving_ns")
    if not len(priced):
        return
    of_layers = priced.group_by("layer").agg(pl.col("saving_ns").mean())
    # the saving is per step of a group, and every rank of the group would be that much faster
    saving = float(of_layers["saving_ns"].sum()) * total.window_count
    worst = priced.sort("exchange_max_over_mean", descending=True).row(0, named=True)
    factor, fit = (units.significant(worst[name]) for name in ("exchange_max_over_mean", "price_r_squared"))
    text = (
        f"experts are uneven: the most loaded rank has up to {factor} times the mean load; "
        f"perfect balance would save at most {_each(total, saving, window)}"
    )
    yield _cost(
        total,
        "imbalance",
        text,
        saving,
        advice="raise the load-balancing loss or bias, or re-place hot experts",
        method=f"line of slowest-rank time over max/mean load, R² {fit}",
        command="traceview experts",
    )


def _idle(total: Total, window: str) -> Iterator[Finding]:
    if total.idle_ns:
        text = f"the device idles {_each(total, total.idle_ns, window)} ({_of(total, total.idle_ns, window)})"
        advice = "see what it waits for (idle): late launches, host synchronisation, other streams, graphs"
        method = "window without any device work"
        yield _cost(
            total, "idle", text, total.idle_ns, advice=advice, method=method, command="traceview idle"
        )


def _copies(total: Total, window: str) -> Iterator[Finding]:
    if total.exposed_copy_ns:
        cost = total.exposed_copy_ns
        text = f"copies alone take {_each(total, cost, window)} ({_of(total, cost, window)})"
        advice = "pin host memory and copy on a stream of its own"
        method = "copies while nothing computes or communicates"
        yield _cost(
            total, "exposed_copy", text, cost, advice=advice, method=method, command="traceview summary"
        )


def _of(total: Total, part_ns: float, window: str) -> str:
    return f"{units.percent(total.share(part_ns))} of the {window}"


def _verdict(total: Total, kinds: list[Finding], window: str) -> Finding:
    worst = kinds[0] if kinds else None
    return _cost(
        total,
        "verdict",
        _verdict_text(total, kinds, window),
        total.exposed_comm_ns,
        axis=worst.axis if worst else None,
        collective=worst.collective if worst else None,
        role=worst.role if worst else None,
        method="interval unions per rank and device",
        overlap_ratio=total.overlap_ratio,
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


def _each(total: Total, part_ns: float, window: str) -> str:
    suffix = "/step" if window == "step" else ""
    return units.duration(total.per_window(part_ns)).replace(" ", " ") + suffix
