"""One clock for all hosts, with the residual that says how far to trust it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview import clocks

EPOCH = 1_765_000_000_000_000_000


def ends(
    offsets: dict[str, float],
    drifts: dict[str, float],
    *,
    count: int = 200,
    spacing_ns: int = 20_000_000,
    noise_ns: float = 0.0,
    seed: int = 1,
    groups: tuple[tuple[str, ...], ...] | None = None,
) -> pl.DataFrame:
    """Exchanges whose true ends agree, stamped by clocks with these offsets (ns) and drifts (ppm)."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        members = groups[number % len(groups)] if groups else tuple(offsets)
        true = number * spacing_ns
        for host in members:
            for _ in range(2):
                end = true * (1 + drifts[host] * 1e-6) + offsets[host] + random.normal(0, noise_ns)
                duration = int(random.integers(1000, 5_000_000))
                rows.append((host, number, EPOCH + round(end) - duration, duration))
    frame = pl.DataFrame(rows, schema=["host", "instance", "ts_ns", "dur_ns"], orient="row")
    return frame.with_columns(collective=pl.lit("all_reduce"))


def relative(fit: clocks.ClockFit) -> dict[str, tuple[float, float]]:
    return {host: (offset, ppm) for host, offset, ppm, _ in fit.corrections.rows()}


@given(st.integers(0, 1000))
def test_offsets_of_50_ms_and_drifts_of_20_ppm_are_undone_within_the_residual(seed: int) -> None:
    random = np.random.default_rng(seed)
    hosts = [f"h{n}" for n in range(4)]
    offsets = dict(zip(hosts, random.uniform(-5e7, 5e7, 4), strict=True))
    drifts = dict(zip(hosts, random.uniform(-20, 20, 4), strict=True))
    frame = ends(offsets, drifts, noise_ns=5000, seed=seed)
    fit = clocks.fit(frame)
    aligned = frame.join(fit.corrections, on="host").with_columns(fit.aligned("ts_ns").alias("start"))
    end = aligned.with_columns(end=pl.col("start") + pl.col("dur_ns"))
    spread = end.group_by("instance").agg((pl.col("end").max() - pl.col("end").min()).alias("spread"))[
        "spread"
    ]
    assert fit.residual_p95_ns is not None
    # 8 stamps with a noise of 5 µs each: the residual must show that noise, and nothing of 50 ms may be left
    assert 5000 < fit.residual_p95_ns < 20_000
    assert (spread < 60_000).all()


def test_the_first_host_keeps_its_clock_and_the_others_are_brought_to_it() -> None:
    fit = clocks.fit(ends({"a": 0.0, "b": 5_000_000.0}, {"a": 0.0, "b": 10.0}))
    found = relative(fit)
    assert found["a"] == (0.0, 0.0)
    assert found["b"][0] == pytest.approx(-5_000_000, abs=100)
    assert found["b"][1] == pytest.approx(-10, abs=0.01)
    assert fit.residual_p95_ns is not None
    assert fit.residual_p95_ns <= 2


def test_wild_ends_do_not_move_the_fit() -> None:
    frame = ends({"a": 0.0, "b": 1_000_000.0}, {"a": 0.0, "b": 0.0}, noise_ns=1000)
    wild = (pl.col("instance") % 5 == 0) & (pl.col("host") == "b")
    torn = frame.with_columns(ts_ns=pl.when(wild).then(pl.col("ts_ns") + 30_000_000).otherwise("ts_ns"))
    assert relative(clocks.fit(torn))["b"][0] == pytest.approx(-1_000_000, abs=20_000)


def test_hosts_that_never_meet_directly_are_joined_through_others() -> None:
    offsets = {"a": 0.0, "b": 4_000_000.0, "c": -7_000_000.0}
    fit = clocks.fit(ends(offsets, dict.fromkeys(offsets, 0.0), groups=(("a", "b"), ("b", "c"))))
    found = relative(fit)
    assert found["c"][0] == pytest.approx(7_000_000, abs=100)
    assert fit.corrections["component"].n_unique() == 1


def test_hosts_that_share_nothing_stay_apart() -> None:
    offsets = {"a": 0.0, "b": 4e6, "c": -7e6, "d": 1e6}
    fit = clocks.fit(ends(offsets, dict.fromkeys(offsets, 0.0), groups=(("a", "b"), ("c", "d"))))
    assert fit.corrections["component"].n_unique() == 2


def test_one_host_keeps_its_clock_and_is_still_checked() -> None:
    fit = clocks.fit(ends({"a": 0.0}, {"a": 0.0}, noise_ns=20_000))
    assert relative(fit) == {"a": (0.0, 0.0)}
    assert fit.residual_p95_ns is not None
    assert 10_000 < fit.residual_p95_ns < 80_000


def test_collectives_that_end_at_different_times_do_not_count() -> None:
    frame = ends({"a": 0.0, "b": 1e6}, {"a": 0.0, "b": 0.0})
    fit = clocks.fit(frame.with_columns(collective=pl.lit("broadcast")))
    assert relative(fit)["b"] == (0.0, 0.0)
    assert fit.residual_p95_ns is None
    assert fit.corrections["component"].n_unique() == 2


def test_too_short_a_run_has_no_drift() -> None:
    fit = clocks.fit(ends({"a": 0.0, "b": 1e6}, {"a": 0.0, "b": 20.0}, count=10, spacing_ns=1000))
    assert relative(fit)["b"][1] == 0.0


def test_nothing_to_fit_is_no_failure() -> None:
    fit = clocks.fit(ends({"a": 0.0}, {"a": 0.0}, count=1).clear())
    assert (fit.residual_p50_ns, fit.instance_count) == (None, 0)
