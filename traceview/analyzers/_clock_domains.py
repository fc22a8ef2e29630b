"""Which ranks share a clock: what was recorded of their hosts, as far as ends of collectives bear it out."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from traceview import clocks

_SHARED_CLOCK_NS = 5_000
"""Ends of collectives on one clock scatter by about this much: 4 to 7 µs at the median, on public runs."""
_DRIFTING_NS = 1_000_000
"""Ends that lie further apart than this are on no one clock, be it steadily so or not."""
_OWN_CLOCKS_FACTOR, _OWN_CLOCKS_INSTANCES = 3, 8
"""How much better clocks of their own must fit; on public runs of one host they do so by 1.04."""


def clock_domains(partials: pl.DataFrame, matched: pl.DataFrame) -> tuple[pl.DataFrame, clocks.ClockFit]:
    """Which ranks share a clock, as ``rank, host``; and the fit of these hosts.

    Ranks of one host share a clock, and so are those of a node by number taken to where no host was recorded,
    but only as far as the ends of their collectives bear it out: if clocks of their own fit the ranks several
    times better, they get them, for machines may share a name (``localhost``). Ranks of unknown hosts are
    hosts of their own in what follows, so that what the fit leaves over stands as uncertainty between them.
    """
    owners = partials.select("rank", "host", "is_host_known").unique().sort("rank")
    fit = clocks.fit(matched)
    own = pl.format("rank {}", "rank")
    if owners["host"].n_unique() < len(owners):
        left, steady = _left_over(matched, fit)
        # a clock per rank costs its cube: asked for only where steady differences promise to explain the rest
        if left > _SHARED_CLOCK_NS and (left > _DRIFTING_NS or steady * _OWN_CLOCKS_FACTOR < left):
            by_rank = matched.with_columns(host=own)
            per_rank = clocks.fit(by_rank)
            if _left_over(by_rank, per_rank)[0] * _OWN_CLOCKS_FACTOR < left:
                return owners.select("rank", host=own), per_rank
    domains = owners.select("rank", "host", own=pl.when("is_host_known").then("host").otherwise(own))
    corrections = domains.select("host", "own").unique().join(fit.corrections, on="host", how="inner")
    named = corrections.drop("host").rename({"own": "host"}).select(fit.corrections.columns).sort("host")
    return domains.select("rank", host="own"), replace(fit, corrections=named)


def _left_over(matched: pl.DataFrame, fit: clocks.ClockFit) -> tuple[float, float]:
    """How far ends lie from the middle of their instance, and from where their rank is used to end, ns.

    95th percentiles, of the group where they are worst: the only one that reaches beyond a host may be rare.
    """
    ends = matched.filter(
        pl.col("instance").is_not_null(),
        pl.col("collective").cast(pl.String).is_in(clocks.ENDING_TOGETHER),
        pl.len().over("instance") > 1,
    ).join(fit.corrections, on="host")
    since = fit.aligned("ts_ns") + pl.col("dur_ns") - fit.origin_ns  # medians are float64
    apart = ends.with_columns(apart=since - since.median().over("instance"))
    usual = pl.col("apart").median().over("group_key", "rank")
    groups = (
        apart.with_columns(unusual=pl.col("apart") - usual)
        .group_by("group_key")
        .agg(pl.col("apart", "unusual").abs().quantile(0.95), instances=pl.col("instance").n_unique())
        .filter(pl.col("instances") >= _OWN_CLOCKS_INSTANCES)
        .sort("apart", "unusual")
        .tail(1)
    )
    return (groups["apart"][0], groups["unusual"][0]) if len(groups) else (0.0, 0.0)
