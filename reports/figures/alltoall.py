"""All-to-alls: where they are slow (layer by rank), and how fast they move bytes."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import polars as pl

from traceview.reports.figures import _theme

MEASURES = ("median", "p99", "waiting", "transfer")
POINTS = 4_000


def places(rows: pl.DataFrame) -> pl.DataFrame:
    """``layer, rank`` and the `MEASURES` of an op in ms, of an `alltoall` by layer and rank."""
    whole = pl.when(pl.col("complete_count") > 0).then(pl.col("complete_count") * 1e6)
    return rows.drop_nulls(("layer", "rank")).select(
        "layer",
        "rank",
        (pl.col("dur_p50_ns") / 1e6).alias("median ms"),
        (pl.col("dur_p99_ns") / 1e6).alias("p99 ms"),
        (pl.col("wait_ns") / whole).alias("waiting ms"),
        (pl.col("transfer_ns") / whole).alias("transfer ms"),
    )


def by_place(rows: pl.DataFrame, measure: str = "median") -> Any:  # noqa: ANN401 - an hv.Image
    """Layer by rank of an `alltoall`, coloured by one of `MEASURES`."""
    laid = _theme.grid(places(rows), "rank", "layer", f"{measure} ms")
    return _theme.image(laid, ("rank", "layer", f"{measure} ms"))


def speeds(rows: pl.DataFrame) -> pl.DataFrame:
    """``role, layer, step, sent MB, bus GB/s, expected GB/s`` where both are known, at most `POINTS`."""
    known = rows.filter(pl.col("busbw_bytes_per_s").is_not_null() & (pl.col("sent_bytes") > 0))
    each = known.select(
        "role",
        "layer",
        "step",
        (pl.col("sent_bytes") / pl.col("op_count") / 1e6).alias("sent MB"),
        (pl.col("busbw_bytes_per_s") / 1e9).alias("bus GB/s"),
        (pl.col("expected_bytes_per_s") / 1e9).alias("expected GB/s"),
    )
    return each.gather_every(max(1, -(-len(each) // POINTS)))


def by_speed(rows: pl.DataFrame) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Bus bandwidth over bytes sent, of an `alltoall` by role, layer and step."""
    table = speeds(rows)
    points = [
        hv.Scatter(_theme.arrays(part), kdims=["sent MB"], vdims=["bus GB/s", "layer", "step"]).opts(
            color=_theme.ROLES.get(str(role), _theme.TEXT),
            size=6,
            alpha=0.7,
            line_width=0,
            tools=["hover"],
            hover_tooltips=[
                ("role", _theme.label(str(role))),
                ("layer", "@layer{0}"),
                ("step", "@step{0}"),
                ("sent", "@{sent MB}{0.00} MB"),
                ("bus", "@{bus GB/s}{0.0} GB/s"),
            ],
        )
        for (role,), part in table.group_by("role", maintain_order=True)
    ]
    expected = table["expected GB/s"].drop_nulls().unique().sort()
    dashed = {"color": _theme.TEXT, "line_dash": "dashed", "line_width": 1}
    lines = [hv.HLine(float(rate)).opts(**dashed) for rate in expected[:4]]
    top = max([0.0, *table["bus GB/s"].to_list(), *expected[:4].to_list()])
    return _theme.styled(
        hv.Overlay([*points, *lines]),
        xlabel="MB sent per rank",
        ylabel="bus GB/s",
        ylim=(0, 1.1 * top or 1.0),
        logx=True,
    )


FIGURES = {("layer", "rank"): by_place, ("role", "layer", "step"): by_speed}
