"""Does it scale: what of its speed a rank retains as the job grows, and what the rest is lost to.

``retention = (tokens/s/rank)_N / (tokens/s/rank)_N0``, against the smallest job. Written with the mean step
time ``T`` of all recorded ranks it is ``T_ideal / T``, where ``T_ideal = T_0 × (tokens per rank) / (tokens
per rank)_0`` is how long a step would take at the speed of the smallest job. So every part of the ledger of
a step has an ideal too, what it takes beyond is its loss, and the losses add up to ``T − T_ideal``, in whole
ns.

What was held fixed is said: *weak* holds the tokens per rank, *strong* those of the whole step, and
*moe_weak* is weak with experts that grow as the ranks do. Where neither is held, or nothing tells, retention
is refused.

Two identities hold to rounding, and are checked: ``retention = compute_scaling × parallel / parallel_0``,
with ``compute_scaling`` the speed of compute alone (tokens per second of compute), and ``1 − retention`` is
the sum of the losses over the step time.

Source: POP Centre of Excellence for the first identity; Karp and Flatt, "Measuring Parallel Processor
Performance", 1990, for the serial fraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import registry
from traceview.comparisons import _causes
from traceview.comparisons._held import KINDS, TOKENS_FROM, held
from traceview.comparisons._losses import LOSSES, losses_of, steps_of
from traceview.errors import UsageError
from traceview.schema import Column, Table
from traceview.statistics import MINIMUM_STEPS, ratio_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceview.comparisons._held import Held

QUESTIONS = {
    "ledger": ("step", "kind"),
    "several": ("step",),
    "efficiency": (),
    "work": (),
    "collectives": ("axis",),
}
"""What has to be known of each run: analyses, and the grain of each."""

_I64, _F64, _STR = pl.Int64(), pl.Float64(), pl.String()
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Size:
    """One run, as its analyses see it.

    Attributes:
        name: Name of the run.
        rank_count: Ranks of the job; those recorded where the trace does not say.
        recorded_count: Ranks recorded.
        is_world_known: Whether the traces say how many ranks the job has.
        answers: Result of each of `QUESTIONS`.
        tokens_per_step: Tokens that the whole job trains on in a step; None if unknown.
        experts: Routed experts of the model; None if unknown.
    """

    name: str
    rank_count: int
    recorded_count: int
    is_world_known: bool
    answers: Mapping[str, pl.DataFrame]
    tokens_per_step: int | None = None
    experts: int | None = None

    @property
    def windows(self) -> tuple[int, int]:
        """Windows looked at, and ns in all of them."""
        totals = self.answers["efficiency"].select("window_count", "window_ns")
        return (int(totals["window_count"].sum()), int(totals["window_ns"].sum()))

    @property
    def step_ns(self) -> float | None:
        """Mean length of a window; None without any."""
        count, total = self.windows
        return total / count if total else None


def _known(doc: str, unit: str | None = None, dtype: pl.DataType = _F64) -> Column:
    return Column(dtype, doc, unit, nullable=True)


SIZES = Table(
    "scaling",
    "One row per run, smallest job first. What compares is null for the smallest job, or where refused.",
    {
        "run": Column(_STR, "name of the run"),
        "rank_count": Column(_I64, "ranks of the job, also those not recorded"),
        "recorded_count": Column(_I64, "ranks recorded: all figures describe these"),
        "is_world_known": Column(pl.Boolean(), "whether the traces say how many ranks the job has"),
        "step_count": Column(_I64, "steps looked at; 0 where nothing marks steps"),
        "window_count": Column(_I64, "windows (rank × device × step) looked at"),
        "step_ns": _known("mean length of a step over the recorded ranks", "ns"),
        "tokens_per_step": _known("tokens of the whole job in a step, as given or in run.toml", dtype=_I64),
        "tokens_per_second_per_rank": _known("tokens_per_step / rank_count / step_ns"),
        "base_run": _known("run it is compared with", dtype=_STR),
        "scaling": _known("what kind of scaling it is; null if refused", dtype=pl.Enum(KINDS)),
        "held": _known("what was held fixed, and what was not", dtype=_STR),
        "reason": _known("why there is no retention", dtype=_STR),
        "tokens_from": _known("how tokens per rank compare is known", dtype=pl.Enum(TOKENS_FROM)),
        "tokens_per_rank_over_base": _known("tokens per rank and step over those of the base"),
        "retention": _known("tokens/s/rank over that of the base: 1 is ideal"),
        "retention_low": _known("lower end of its bootstrap interval over steps (95 %); null with few steps"),
        "retention_high": _known("upper end"),
        "speedup": _known("tokens/s of the job over that of the base"),
        "linear_speedup": _known("ranks over those of the base: the ideal"),
        "serial_fraction": _known("Karp-Flatt: share that does not speed up; strong scaling only"),
        "compute_scaling": _known("tokens per second of compute, over the base"),
        "parallel_scaling": _known("parallel efficiency over that of the base"),
    },
)
TABLES = (SIZES, LOSSES, _causes.RESULT)
"""Tables of a comparison, less the efficiency of each run."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How runs of several sizes compare.

    Attributes:
        sizes: `SIZES`.
        losses: `LOSSES`.
        axes: `_causes.RESULT`: communication along each axis, and why it costs more.
        efficiency: Result of the analysis `efficiency`, one row per run.
    """

    sizes: pl.DataFrame
    losses: pl.DataFrame
    axes: pl.DataFrame
    efficiency: pl.DataFrame

    def plot(self, show: str = "speed-up") -> Any:  # noqa: ANN401 - a HoloViews element, loaded only here
        """A figure of the HTML report as a HoloViews element.

        Args:
            show: ``speed-up``, ``retention``, ``efficiency`` or ``losses``.

        Raises:
            UsageError: There is no such figure.
        """
        drawn = registry.figures("_scaling")
        if (show,) not in drawn:
            choice = ", ".join(name for (name,) in drawn)
            message = f"a scaling has no picture '{show[:64]}'; choose from: {choice}."
            raise UsageError(message)
        return drawn[show,](self)

    def __repr__(self) -> str:
        return f"<scaling of {', '.join(self.sizes['run'])}>\n{self.sizes}"


def scaling(runs: Sequence[Size]) -> Scaling:
    """How ``runs`` compare with the smallest of them.

    Raises:
        UsageError: There is no run, or two have one name.
        AssertionError: An identity does not hold, which would be a bug here.
    """
    if not runs or len({size.name for size in runs}) < len(runs):
        message = "scaling compares runs that have different names; give each run a folder of its own."
        raise UsageError(message)
    ordered = sorted(runs, key=lambda size: size.rank_count)
    base = ordered[0]
    pairs = [(size, held(base, size)) for size in ordered[1:]]
    measured = [(size, fixed) for size, fixed in pairs if size.step_ns and base.step_ns]
    losses = [losses_of(base, size, fixed) for size, fixed in measured]
    axes = [
        _causes.causes(base, size, lost, float(fixed.tokens_per_rank or 1))
        for (size, fixed), lost in zip(measured, losses, strict=True)
    ]
    rows = [_row(base), *(_compared(base, size, fixed) for size, fixed in pairs)]
    found = Scaling(
        SIZES.frame(pl.DataFrame(rows, schema=SIZES.schema())),
        pl.concat([LOSSES.empty(), *losses]),
        pl.concat([_causes.RESULT.empty(), *axes]),
        pl.concat(
            size.answers["efficiency"].select(pl.lit(size.name).alias("run"), pl.all()) for size in ordered
        ),
    )
    _check(found)
    return found


# --- sizes -------------------------------------------------------------------------------------------


def _row(size: Size) -> dict[str, Any]:
    """What is known of a run alone."""
    count, _ = size.windows
    speed = None
    if size.step_ns and size.tokens_per_step:
        speed = size.tokens_per_step / size.rank_count / size.step_ns * 1e9
    return {
        "run": size.name,
        "rank_count": size.rank_count,
        "recorded_count": size.recorded_count,
        "is_world_known": size.is_world_known,
        "step_count": size.answers["ledger"]["step"].drop_nulls().n_unique(),
        "window_count": count,
        "step_ns": size.step_ns,
        "tokens_per_step": size.tokens_per_step,
        "tokens_per_second_per_rank": speed,
    }


def _compared(base: Size, size: Size, fixed: Held) -> dict[str, Any]:
    """The row of ``size`` beside ``base``."""
    row = _row(size) | {
        "base_run": base.name,
        "scaling": fixed.kind,
        "held": fixed.text or None,
        "reason": fixed.reason,
        "tokens_from": fixed.tokens_from,
        "tokens_per_rank_over_base": None if fixed.tokens_per_rank is None else float(fixed.tokens_per_rank),
        "linear_speedup": size.rank_count / base.rank_count,
    }
    if fixed.kind is None or fixed.tokens_per_rank is None or not base.step_ns or not size.step_ns:
        return row
    work = float(fixed.tokens_per_rank)
    retention = work * base.step_ns / size.step_ns
    low, high = _retention_interval(base, size, work)
    speedup = retention * size.rank_count / base.rank_count
    before, after = (_means(one)["parallel_ratio"] for one in (base, size))
    busy_before, busy_after = (_means(one)["compute_ns"] for one in (base, size))
    return row | {
        "retention": retention,
        "retention_low": low,
        "retention_high": high,
        "speedup": speedup,
        "serial_fraction": _serial_fraction(speedup, size.rank_count / base.rank_count)
        if fixed.kind == "strong"
        else None,
        "compute_scaling": work * busy_before / busy_after if busy_before and busy_after else None,
        "parallel_scaling": after / before if before and after else None,
    }


def _serial_fraction(speedup: float, ranks: float) -> float | None:
    """Karp and Flatt's experimentally determined serial fraction."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks) if ranks > 1 else None


def _means(size: Size) -> dict[str, float | None]:
    """``parallel_ratio``, from the efficiency; and ``compute_ns`` per window, from the ledger."""
    ledger = size.answers["ledger"]
    compute = int(ledger.filter(pl.col("part") == "compute")["time_ns"].sum())
    efficiency = size.answers["efficiency"]["parallel_ratio"]
    return {
        "parallel_ratio": efficiency[0] if len(efficiency) else None,
        "compute_ns": compute / size.windows[0],
    }


def _retention_interval(base: Size, size: Size, work: float) -> tuple[float | None, float | None]:
    """Ends of the bootstrap interval; None with too few steps on either side."""
    before, after = (steps_of(one.answers["ledger"].with_columns(cause=None), ()) for one in (base, size))
    if min(before.count, after.count) < MINIMUM_STEPS:
        return None, None
    low, high = ratio_interval(before, after)
    return work * low, work * high


def _check(found: Scaling) -> None:
    """Makes sure that the identities hold."""
    compared = found.sizes.drop_nulls(["retention", "compute_scaling", "parallel_scaling"])
    product = compared["compute_scaling"] * compared["parallel_scaling"]
    lost = found.losses.group_by("run").agg(pl.col("loss_ratio").sum())
    beside = compared.join(lost, on="run", how="left")
    gaps = [
        (product / compared["retention"] - 1).abs().max(),
        # times are whole ns: ideal and step time are each off by up to 1
        (
            (1 - beside["retention"] - beside["loss_ratio"]).abs()
            - 2 * (1 + beside["retention"]) / beside["step_ns"]
        ).max(),
    ]
    if any(isinstance(gap, float) and gap > _TOLERANCE for gap in gaps):
        message = "the losses and efficiencies of a scaling do not add up; this is a bug in traceview"
        raise AssertionError(message)
