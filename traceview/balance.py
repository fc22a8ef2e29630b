"""How evenly a load is spread: measures of a vector of loads, for all groups in one pass.

Every function takes the column of loads, which are never negative, and returns an aggregation: one value
over a frame, or one per group inside ``group_by(...).agg(...)``. A null among the loads makes the answer
null, for what is not known cannot be balanced; where nothing is loaded, only `zero_ratio` has an answer.

Example:
    >>> loads = pl.DataFrame({"layer": [0, 0, 1, 1], "rows": [30, 10, 20, 20]})
    >>> loads.group_by("layer", maintain_order=True).agg(x=max_over_mean(pl.col("rows")))["x"].to_list()
    [1.5, 1.0]
"""

from __future__ import annotations

import polars as pl


def max_over_mean(load: pl.Expr) -> pl.Expr:
    """Largest load over the mean one: 1 when balanced, the number of loads when one bears everything.

    Whoever waits for the most loaded waits this many times the balanced time.
    """
    return _of_loads(load, load.max() / load.mean())


def coefficient_of_variation(load: pl.Expr) -> pl.Expr:
    """Standard deviation (of the whole, not of a sample) over the mean: 0 when balanced."""
    return _of_loads(load, load.std(ddof=0) / load.mean())


def gini(load: pl.Expr) -> pl.Expr:
    """Mean difference between two loads over twice the mean load: 0 when balanced, below 1 always.

    Computed from the sorted loads ``x_1 .. x_n`` as ``2 Σ i·x_i / (n Σ x_i) - (n + 1) / n``.
    """
    count = load.len()
    weighted = (load.rank("ordinal").cast(pl.Float64) * load).sum()
    return _of_loads(load, 2 * weighted / count / load.sum() - (count + 1) / count)


def normalized_entropy(load: pl.Expr) -> pl.Expr:
    """Entropy of the shares over that of equal shares: 1 when balanced, 0 when one bears everything.

    Null for a single load, which has no other to share with.
    """
    share = load / load.sum()
    entropy = -pl.when(load > 0).then(share * share.log()).otherwise(0.0).sum()
    count = load.len()
    # 0.0 + turns the negative zero of a single bearer into zero
    return pl.when(count > 1).then(_of_loads(load, 0.0 + entropy / count.log()))


def zero_ratio(load: pl.Expr) -> pl.Expr:
    """Share of loads that are zero."""
    return pl.when(_are_known(load) & (load.len() > 0)).then((load == 0).mean())


def _of_loads(load: pl.Expr, measure: pl.Expr) -> pl.Expr:
    return pl.when(_are_known(load) & (load.sum() > 0)).then(measure)


def _are_known(load: pl.Expr) -> pl.Expr:
    return load.null_count() == 0
