"""One clock for all hosts, from the ends of collectives that end everywhere at once.

Every host has an offset and a drift. An all-gather, all-reduce, reduce-scatter or all-to-all ends on all
its ranks within tens of microseconds, however differently they started; so the corrected ends of an
instance should agree. That is a linear least-squares problem in two unknowns per host; outliers (a rank
that left an exchange early, a mismatched instance) lose their weight in a few re-weighted rounds.

What is left over after the fit is the residual; it stands as ± beside every cross-rank figure, and a skew
below it is not claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ENDING_TOGETHER = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
"""Collectives that fit the clock; broadcasts, reduces and transfers end at different times."""

_ROUNDS = 12
_SETTLED_NS = 1.0  # a round that moves no stamp further than this is the last
_HUBER = 1.5  # residuals beyond this many robust standard deviations count linearly, not squared
_MIN_DRIFT_SPAN_NS = 50_000_000  # over less time a drift cannot be told from an offset
_MIN_DRIFT_INSTANCES = 20


@dataclass(frozen=True, slots=True)
class ClockFit:
    """Corrections by host, and how well they fit.

    ``corrections`` has ``host, offset_ns, drift_ppm, component``: a host's stamp ``t`` is corrected to
    ``t + offset_ns + drift_ppm * 1e-6 * (t - origin_ns)``. Hosts of different components share no
    collective, and nothing can be said between them.
    """

    corrections: pl.DataFrame
    origin_ns: int
    residual_p50_ns: int | None
    residual_p95_ns: int | None
    instance_count: int

    def aligned(self, stamp: str) -> pl.Expr:
        """Column ``stamp``, beside the joined ``corrections``, on the common clock; int64 ns."""
        since = pl.col(stamp) - self.origin_ns
        shift = pl.col("offset_ns") + pl.col("drift_ppm") * 1e-6 * since
        return pl.col(stamp) + shift.round().cast(pl.Int64)


def fit(exchanges: pl.DataFrame) -> ClockFit:
    """The clock of each host in ``exchanges``.

    Args:
        exchanges: ``host, instance, collective, ts_ns, dur_ns``; instances that are null or touch one host
            only add nothing to the fit, but single-host instances do count for the residual.
    """
    ends = exchanges.filter(
        pl.col("instance").is_not_null() & pl.col("collective").cast(pl.String).is_in(ENDING_TOGETHER)
    ).select("host", "instance", end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    hosts = exchanges["host"].unique().sort()
    origin = int(ends["end_ns"].to_numpy().min()) if len(ends) else 0
    # one value per host and instance: ranks of a host share its clock, so their median is more robust; it is
    # taken since the origin, for a float64 cannot hold an epoch in ns
    since = pl.col("end_ns") - origin
    per_host = ends.group_by("instance", "host").agg(since.median().alias("end_ns")).sort("instance", "host")
    shared = per_host.filter(pl.len().over("instance") > 1)
    offset, drift, component = _solve(shared, hosts)
    corrections = pl.DataFrame(
        {"host": hosts, "offset_ns": offset, "drift_ppm": drift * 1e6, "component": component}
    )
    found = ClockFit(corrections, origin, None, None, ends["instance"].n_unique())
    left = _residuals(ends, found)
    if not len(left):
        return found
    p50, p95 = (round(float(left.quantile(q) or 0.0)) for q in (0.5, 0.95))
    return ClockFit(corrections, origin, p50, p95, found.instance_count)


def _residuals(ends: pl.DataFrame, found: ClockFit) -> pl.Series:
    """|corrected end − median of its instance| of every exchange of a shared instance, ns."""
    joined = ends.join(found.corrections, on="host").filter(pl.len().over("instance") > 1)
    since = found.aligned("end_ns") - found.origin_ns  # medians below are float64
    corrected = joined.with_columns(since.alias("end"))
    return corrected.select((pl.col("end") - pl.col("end").median().over("instance")).abs()).to_series()


def _solve(shared: pl.DataFrame, hosts: pl.Series) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Offset (ns) and drift (ns per ns) of each host, and the component it belongs to."""
    n_hosts = len(hosts)
    place = pl.DataFrame({"host": hosts, "column": np.arange(n_hosts)})
    rows = shared.join(place, on="host").with_columns(pl.col("instance").rank("dense").alias("equation") - 1)
    host = rows["column"].to_numpy()
    equation = rows["equation"].to_numpy().astype(np.int64)
    end = rows["end_ns"].to_numpy()
    component = _components(host, equation, n_hosts)
    if not len(rows):
        return np.zeros(n_hosts), np.zeros(n_hosts), component
    with_drift = np.ptp(end) >= _MIN_DRIFT_SPAN_NS and equation.max() + 1 >= _MIN_DRIFT_INSTANCES
    weight = np.ones(len(rows))
    offset, drift = np.zeros(n_hosts), np.zeros(n_hosts)
    corrected = end
    for _ in range(_ROUNDS):
        offset, drift = _least_squares(host, equation, end, weight, component, with_drift=with_drift)
        before, corrected = corrected, end + offset[host] + drift[host] * end
        if np.abs(corrected - before).max() < _SETTLED_NS:
            break
        center = np.bincount(equation, weight * corrected) / np.bincount(equation, weight)
        left = np.abs(corrected - center[equation])
        scale = max(1.4826 * float(np.median(left)), 1.0)
        weight = np.minimum(1.0, _HUBER * scale / np.maximum(left, 1e-9))
    return offset, drift, component


def _least_squares(  # noqa: PLR0913 - the pieces of one linear system
    host: npt.NDArray[np.int64],
    equation: npt.NDArray[np.int64],
    end: Floats,
    weight: Floats,
    component: npt.NDArray[np.int64],
    *,
    with_drift: bool,
) -> tuple[Floats, Floats]:
    """Offsets and drifts that bring the ends of each instance together; the first host of a component stays.

    The unknown common end of each instance is eliminated: what remains is the weighted scatter of the
    hosts' terms around the instance's mean, a system as large as twice the number of hosts.
    """
    n_hosts, n_equations = len(component), int(equation.max()) + 1
    span = max(
        float(np.abs(end).max()), 1.0
    )  # unknowns of one magnitude: drift is solved as ns over the span
    terms = [np.ones(len(end)), end / span] if with_drift else [np.ones(len(end))]
    size = n_hosts * len(terms)
    total = np.bincount(equation, weight, n_equations)
    mean_terms = np.zeros((n_equations, size))
    normal, right = np.zeros((size, size)), np.zeros(size)
    mean_end = np.bincount(equation, weight * end, n_equations) / total
    for a, left_term in enumerate(terms):
        np.add.at(mean_terms, (equation, host + a * n_hosts), weight * left_term)
        right += np.bincount(host + a * n_hosts, weight * left_term * (end - mean_end[equation]), size)
        for b, right_term in enumerate(terms):
            np.add.at(normal, (host + a * n_hosts, host + b * n_hosts), weight * left_term * right_term)
    normal -= mean_terms.T @ (mean_terms / total[:, np.newaxis])
    _, first = np.unique(component, return_index=True)
    free = np.setdiff1d(np.arange(size), np.concatenate([first + a * n_hosts for a in range(len(terms))]))
    unknown = np.zeros(size)
    unknown[free] = np.linalg.lstsq(normal[np.ix_(free, free)], -right[free], rcond=None)[0]
    return unknown[:n_hosts], unknown[n_hosts:] / span if with_drift else np.zeros(n_hosts)


def _components(
    host: npt.NDArray[np.int64], equation: npt.NDArray[np.int64], n_hosts: int
) -> npt.NDArray[np.int64]:
    """Component of each host, hosts that share an instance being joined; labels spread until they settle."""
    label = np.arange(n_hosts)
    if not len(host):
        return label
    while True:
        lowest = np.full(int(equation.max()) + 1, n_hosts)
        np.minimum.at(lowest, equation, label[host])
        spread = label.copy()
        np.minimum.at(spread, host, lowest[equation])
        if (spread == label).all():
            return label
        label = spread
