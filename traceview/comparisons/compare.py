"""Did the second run beat the first, and where: per row of the step, with what chance alone could do.

Times are per rank and step, so runs of different size stand beside each other. The rows of the ledger add up
to the step in each run, and so their differences add up to the difference of the step. Families of kernels
are summed durations, which overlap, and do not add up.

A difference counts only if it is larger than the noise of either run (half against half of its own steps), if
its bootstrap interval does not hold 0, and if its p-value, adjusted for all rows, is at most 5 %: so the
chance of even one false alarm in the whole table is at most 5 %. The step is the unit; steps of one run are
taken to be exchangeable. With fewer than `statistics.COMPARABLE_STEPS` steps in either run nothing is
claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceview import registry, statistics
from traceview.comparisons._alignment import SCOPES, Side, align
from traceview.comparisons._configuration import CONFIGURATION, configuration
from traceview.comparisons._kernels import KERNELS, kernels
from traceview.errors import UsageError
from traceview.schema import Column, Table
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traceview.comparisons._alignment import Aligned

    Floats = NDArray[np.float64]

__all__ = [
    "CHANGES",
    "CONFIGURATION",
    "KERNELS",
    "TABLES",
    "TOTALS",
    "Comparison",
    "Side",
    "compare",
    "questions",
]

SIGNIFICANCE = 0.05
VERDICTS = ("more", "less", "insignificant", "unknown")
GRAINS = ("phase", "layer")
"""Labels that rows may be told apart by, beside axis and role."""

_F64, _STR, _COUNT = pl.Float64(), pl.String(), pl.Int64()


def _ns(what: str, *, nullable: bool = False) -> Column:
    return Column(_F64, what, "ns", nullable=nullable)


_INTERVAL = "95 % bootstrap interval of the difference, of this row alone; null with fewer than 4 steps"
_NOISE = (
    "95 % of the differences between halves of one run, of the noisier run, scaled to as many steps as are "
    "compared; null with fewer than 4 steps"
)
_P = "chance of as clear a difference in any row where nothing changed; null with fewer than 4 steps"
_VERDICT = "more or less time than before; insignificant; or unknown, with fewer than 4 steps"

CHANGES = Table(
    "changes",
    "One row per part of the step and family of work: what it takes in either run, and the difference.",
    {
        "scope": Column(
            pl.Enum(SCOPES),
            "the step; a row of its ledger, which add up to it; a family of work",
        ),
        "part": Column(_STR, "part of the step; null for a family", nullable=True),
        "family": Column(_STR, "category of kernels or copies, or collective", nullable=True),
        "axis": Column(_STR, "parallelism axis", nullable=True),
        "role": Column(_STR, "dispatch or combine", nullable=True),
        "phase": Column(_STR, "phase; null where not known in both runs", nullable=True),
        "layer": Column(pl.Int32(), "layer; null unless asked for", nullable=True),
        "a_ns": _ns("time per rank and step in the first run"),
        "b_ns": _ns("time per rank and step in the second run"),
        "delta_ns": _ns("second less first"),
        "delta_ratio": Column(_F64, "delta / a; null where a is 0", nullable=True),
        "low_ns": _ns(f"low end of the {_INTERVAL}", nullable=True),
        "high_ns": _ns(f"high end of the {_INTERVAL}", nullable=True),
        "noise_ns": _ns(_NOISE, nullable=True),
        "p_value": Column(_F64, _P, nullable=True),
        "verdict": Column(pl.Enum(VERDICTS), _VERDICT),
        "a_count": Column(_F64, "ops of a family per rank and step in the first run", nullable=True),
        "b_count": Column(_F64, "ops of a family per rank and step in the second run", nullable=True),
        "a_total_ns": Column(_COUNT, "time over all windows of the first run, exactly", "ns"),
        "b_total_ns": Column(_COUNT, "time over all windows of the second run, exactly", "ns"),
    },
)

TOTALS = Table(
    "totals",
    "One row: the step of either run, the difference, and what a gate may ask for.",
    {
        "a_step_ns": _ns("step time of the first run, mean over ranks and steps"),
        "b_step_ns": _ns("step time of the second run"),
        "delta_step_ns": _ns("second less first"),
        "delta_step_ratio": Column(_F64, "delta / first; null if that is 0", nullable=True),
        "low_ns": CHANGES.columns["low_ns"],
        "high_ns": CHANGES.columns["high_ns"],
        "noise_ns": CHANGES.columns["noise_ns"],
        "p_value": CHANGES.columns["p_value"],
        "verdict": CHANGES.columns["verdict"],
        "significant_step_ns": _ns(
            "delta where it is significant, else 0; null with fewer than 4 steps", nullable=True
        ),
        "more_count": Column(_COUNT, "rows that take significantly more time", nullable=True),
        "less_count": Column(_COUNT, "rows that take significantly less time", nullable=True),
        **{
            name: Column(_F64, f"{name.removesuffix('_ns')} time of the second run, per rank and step", "ns")
            for name in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        },
        "exposed_comm_ratio": Column(
            _F64, "exposed / window of the second run; null if empty", nullable=True
        ),
        "overlap_ratio": Column(_F64, "hidden / comm of the second run; null without comm", nullable=True),
        "a_exposed_comm_ratio": Column(_F64, "exposed / window of the first run", nullable=True),
        "a_overlap_ratio": Column(_F64, "hidden / comm of the first run", nullable=True),
        "delta_exposed_comm_ratio": Column(_F64, "second less first", nullable=True),
        "delta_overlap_ratio": Column(_F64, "second less first", nullable=True),
        "a_step_count": Column(_COUNT, "steps of the first run; 0: no step is marked, it is one window"),
        "b_step_count": Column(_COUNT, "steps of the second run"),
        "a_window_count": Column(_COUNT, "windows (rank × device × step) of the first run"),
        "b_window_count": Column(_COUNT, "windows of the second run"),
        "a_log_step_ns": _ns("step time of the first run without a profiler, as given", nullable=True),
        "b_log_step_ns": _ns("step time of the second run without a profiler, as given", nullable=True),
        "delta_log_ratio": Column(_F64, "of these, (second − first) / first", nullable=True),
        "a_overhead_ratio": Column(_F64, "profiled / unprofiled − 1, first run", nullable=True),
        "b_overhead_ratio": Column(_F64, "profiled / unprofiled − 1, second run", nullable=True),
    },
)


TABLES = (TOTALS, CHANGES, KERNELS, CONFIGURATION)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two runs side by side.

    Attributes:
        names: Their names.
        totals: `TOTALS`.
        changes: `CHANGES`: the step, the ledger in its own order, then families by size of the difference.
        kernels: `KERNELS`.
        configuration: `CONFIGURATION`.
        notes: Diagnostics of the comparison itself.
    """

    names: tuple[str, str]
    totals: pl.DataFrame
    changes: pl.DataFrame
    kernels: pl.DataFrame
    configuration: pl.DataFrame
    notes: pl.DataFrame

    @property
    def frame(self) -> pl.DataFrame:
        """The changes."""
        return self.changes

    def summary(self) -> list[dict[str, Any]]:
        """The changes as plain Python values, ready for JSON."""
        return self.changes.to_dicts()

    def plot(self) -> Any:  # noqa: ANN401 - a HoloViews element, and HoloViews is loaded only here
        """The differences of the step's parts with their intervals, as the HTML report draws them."""
        return registry.figures("_changes")[()](self.changes)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The changes as an Arrow C stream."""
        return self.changes.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<comparison of {self.names[0]} and {self.names[1]}>\n{self.changes}"


def questions(by: Sequence[str] = ("phase",)) -> list[tuple[str, tuple[str, ...]]]:
    """What has to be asked of each run, as (analysis, grain), in the order of `Side`'s tables.

    Raises:
        UsageError: A grain is none of `GRAINS`.
    """
    if unknown := [grain for grain in by if grain not in GRAINS]:
        message = f"runs cannot be compared by {', '.join(unknown)}; choose from: {', '.join(GRAINS)}."
        raise UsageError(message)
    return [
        ("breakdown", ("step",)),
        ("ledger", ("step", "kind", *by)),
        ("families", ("step", "family", *by)),
        ("families", ("kernel",)),
        ("families", ("group",)),
    ]


def compare(
    before: Side, after: Side, *, log_step_ns: tuple[float | None, float | None] = (None, None)
) -> Comparison:
    """``after`` against ``before``.

    Args:
        before: The first run; differences are relative to it.
        after: The second run.
        log_step_ns: Step times of both without a profiler, where they are known.
    """
    aligned = align(before, after)
    changes = _changes(aligned, min(before.step_count, after.step_count))
    return Comparison(
        names=(before.run.name, after.run.name),
        totals=_totals(before, after, changes, log_step_ns),
        changes=changes,
        kernels=kernels(before, after),
        configuration=configuration(before, after),
        notes=pl.concat([_notes(aligned), *(_unstepped(side) for side in (before, after))]),
    )


def _changes(aligned: Aligned, steps: int) -> pl.DataFrame:
    before, after = aligned.before, aligned.after
    a, b = before.means(), after.means()
    delta = b - a
    measured = {"a_ns": a, "b_ns": b, "delta_ns": delta, **_certainty(aligned, delta, steps)}
    counts = {"a_count": aligned.before_ops.means(), "b_count": aligned.after_ops.means()}
    totals = {
        "a_total_ns": before.totals.sum(axis=0).astype(np.int64),
        "b_total_ns": after.totals.sum(axis=0).astype(np.int64),
    }
    columns = [pl.Series(name, values) for name, values in (measured | counts | totals).items()]
    is_counted = pl.col("scope") == "family"
    rows = aligned.rows.with_columns(columns).with_columns(
        pl.when(is_counted).then(pl.col("a_count", "b_count")),
        delta_ratio=pl.when(pl.col("a_ns") > 0).then(pl.col("delta_ns") / pl.col("a_ns")),
    )
    order = pl.when(is_counted).then(-pl.col("delta_ns").abs()).otherwise(0)
    return CHANGES.frame(rows).sort("scope", order, maintain_order=True)


def _certainty(aligned: Aligned, delta: Floats, steps: int) -> dict[str, Any]:
    """What can be said about ``delta``: interval, noise, p-value and verdict; nothing from too few steps."""
    if steps < statistics.COMPARABLE_STEPS:
        return {"verdict": ["unknown"] * len(delta)}
    before, after = aligned.before, aligned.after
    low, high = statistics.difference_interval(before, after)
    counts = (before.count, after.count)
    noise = np.maximum(*(statistics.noise(side, compared=counts) for side in (before, after)))
    p_value = statistics.adjusted_p(before, after)
    is_clear = (p_value <= SIGNIFICANCE) & (np.abs(delta) > noise) & ((low > 0) | (high < 0))
    verdict = np.where(is_clear, np.where(delta > 0, "more", "less"), "insignificant")
    return {
        "low_ns": low,
        "high_ns": high,
        "noise_ns": noise,
        "p_value": p_value,
        "verdict": verdict.tolist(),
    }


def _totals(
    before: Side, after: Side, changes: pl.DataFrame, log_step_ns: tuple[float | None, float | None]
) -> pl.DataFrame:
    step = changes.row(0, named=True)
    rest = changes.filter(pl.col("scope") != "step")["verdict"].cast(pl.String)
    is_told = step["verdict"] != "unknown"
    a, b = (_shares(side) for side in (before, after))
    row = {
        "a_step_ns": step["a_ns"],
        "b_step_ns": step["b_ns"],
        "delta_step_ns": step["delta_ns"],
        "delta_step_ratio": step["delta_ratio"],
        **{name: step[name] for name in ("low_ns", "high_ns", "noise_ns", "p_value", "verdict")},
        "significant_step_ns": (step["delta_ns"] if step["verdict"] in {"more", "less"} else 0.0)
        if is_told
        else None,
        "more_count": int((rest == "more").sum()) if is_told else None,
        "less_count": int((rest == "less").sum()) if is_told else None,
        **b,
        **{f"a_{name}": a[name] for name in ("exposed_comm_ratio", "overlap_ratio")},
        **{
            f"delta_{name}": _difference(b[name], a[name]) for name in ("exposed_comm_ratio", "overlap_ratio")
        },
        **_logged((step["a_ns"], step["b_ns"]), log_step_ns),
    }
    for prefix, side in (("a", before), ("b", after)):
        row[f"{prefix}_step_count"] = side.step_count
        row[f"{prefix}_window_count"] = int(side.steps["window_count"].sum())
    return TOTALS.frame([row])


def _shares(side: Side) -> dict[str, float | None]:
    """Parts of the step per rank and step, and their ratios, from the breakdown."""
    names = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "window_count")
    window, compute, exposed, copy, idle, count = (int(side.steps[name].sum()) for name in names)
    comm, hidden = (int(side.steps[name].sum()) for name in ("comm_ns", "hidden_comm_ns"))
    each = max(count, 1)
    return {
        "compute_ns": compute / each,
        "exposed_comm_ns": exposed / each,
        "exposed_copy_ns": copy / each,
        "idle_ns": idle / each,
        "exposed_comm_ratio": exposed / window if window else None,
        "overlap_ratio": hidden / comm if comm else None,
    }


def _logged(
    profiled: tuple[float, float], log_step_ns: tuple[float | None, float | None]
) -> dict[str, float | None]:
    """Unprofiled step times beside the profiled ones."""
    a, b = log_step_ns
    overheads = [
        None if not logged else mean / logged - 1 for mean, logged in zip(profiled, log_step_ns, strict=True)
    ]
    return {
        "a_log_step_ns": a,
        "b_log_step_ns": b,
        "delta_log_ratio": None if not a or b is None else b / a - 1,
        "a_overhead_ratio": overheads[0],
        "b_overhead_ratio": overheads[1],
    }


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _notes(aligned: Aligned) -> pl.DataFrame:
    rows = [
        diagnostic(
            "warning",
            "compare.label_dropped",
            f"run '{name}' knows no {label}, so rows are aligned without it",
            count=1,
        )
        for label, name in aligned.dropped
    ]
    empty = diagnostic("info", "compare", "", count=0).clear()
    return pl.concat([empty, *rows])


def _unstepped(side: Side) -> pl.DataFrame:
    """That a run has no steps, or windows that are none."""
    left_out = len(side.windows) - len(side.steps)
    if not side.is_stepped:
        text = f"run '{side.run.name}' marks no steps: its whole window is compared as if it were one step"
        return diagnostic("warning", "compare.no_steps", text, count=1)
    note = diagnostic(
        "warning",
        "compare.windows_left_out",
        f"ranks of run '{side.run.name}' without steps are left out",
        count=left_out,
    )
    return note if left_out else note.clear()
