"""How a job scales: speed over ranks, where device time goes at each size, and who owns what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holoviews as hv
import polars as pl

from traceview import units
from traceview.analyzers.efficiency import FACTORS
from traceview.references import references
from traceview.reports import scaling as pages
from traceview.reports.figures import _bars, _differences, _theme

if TYPE_CHECKING:
    from traceview.comparisons.scaling import Scaling

OWN, IDEAL, PUBLISHED = _theme.OKABE_ITO[0], _theme.TEXT, _theme.OKABE_ITO[3]
PARTS = (
    ("compute", _theme.OKABE_ITO[0]),
    ("dp balance", _theme.OKABE_ITO[4]),
    ("pp balance", _theme.OKABE_ITO[5]),
    ("ep balance", _theme.OKABE_ITO[3]),
    ("communication", _theme.OKABE_ITO[2]),
    ("orchestration", _theme.NOTHING),
)
UNIT = "%"


def speeds(found: Scaling) -> pl.DataFrame:
    """``run, ranks``, retention in % and speed-up, with intervals, and the ideal; where they are known."""
    ratio = pl.col("rank_count") / pl.col("rank_count").first()
    kept = {name: pl.col(name) for name in ("retention", "retention_low", "retention_high")}
    is_base = pl.col("base_run").is_null()
    whole = {name: pl.when(is_base).then(1.0).otherwise(column) for name, column in kept.items()}
    return (
        found.sizes.sort("rank_count", maintain_order=True)
        .select(
            "run",
            pl.col("rank_count").alias("ranks"),
            *((100 * column).alias(f"{name.replace('_', ' ')} %") for name, column in whole.items()),
            (whole["retention"] * ratio).alias("speed-up"),
            (whole["retention_low"] * ratio).alias("speed-up low"),
            (whole["retention_high"] * ratio).alias("speed-up high"),
            ratio.alias("ideal"),
        )
        .drop_nulls("retention %")
    )


def speed_up(found: Scaling) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Speed-up over ranks, log-log, with its 95 % band and the ideal."""
    table = speeds(found)
    ideal = hv.Curve(_theme.arrays(table.select("ranks", "ideal")), "ranks", "ideal").opts(
        color=IDEAL, line_dash="dashed", line_width=1.5
    )
    parts = [*_band(table, "speed-up low", "speed-up high"), ideal, *_line(table, "speed-up", "0.00")]
    return _styled(parts, table, "speed-up", logy=True)


def retention(found: Scaling) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Retention over ranks, with its 95 % band, the ideal, and what others published."""
    table = speeds(found)
    ideal = hv.HLine(100).opts(color=IDEAL, line_dash="dashed", line_width=1.5)
    others = [
        hv.Curve(([one.from_gpus, one.to_gpus], [100, 100 * one.ratio]), "ranks", "retention %").opts(
            color=PUBLISHED,
            line_width=1,
            alpha=0.7,
            tools=["hover"],
            hover_tooltips=[
                ("published", _theme.label(f"{one.framework} {one.model}")),
                ("ranks", "@ranks{0}"),
            ],
        )
        for one in references().retentions
    ]
    band = _band(table, "retention low %", "retention high %")
    return _styled([*others, *band, ideal, *_line(table, "retention %", "0.0")], table, "retention %")


def _band(table: pl.DataFrame, low: str, high: str) -> list[Any]:
    known = table.drop_nulls([low, high])
    if len(known) < 2:  # the smallest job alone has no width
        return []
    data = tuple(_theme.arrays(known.select("ranks", low, high)).values())
    return [hv.Area(data, "ranks", ["low", "high"]).opts(color=OWN, fill_alpha=0.18, line_width=0)]


def _line(table: pl.DataFrame, column: str, digits: str) -> list[Any]:
    data = _theme.arrays(table.select("ranks", column, "run"))
    tips = [("run", "@run"), ("ranks", "@ranks{0}"), (column, f"@{{{column}}}{{{digits}}}")]
    return [
        hv.Curve(data, "ranks", [column]).opts(color=OWN, line_width=2),
        hv.Scatter(data, "ranks", [column, "run"]).opts(
            color=OWN, size=9, tools=["hover"], hover_tooltips=tips
        ),
    ]


def _styled(parts: list[Any], table: pl.DataFrame, label: str, *, logy: bool = False) -> Any:  # noqa: ANN401
    ticks = [(int(count), f"{count:,}") for count in table["ranks"].unique().sort()]
    shown: dict[str, Any] = {"xlabel": "ranks", "ylabel": label, "xticks": ticks, "logx": True, "logy": logy}
    if logy:
        ideal = table["ideal"].unique().sort()
        shown |= {"yticks": [(value, units.significant(value)) for value in ideal]}
        shown |= {
            "ylim": (0.85 * min(1.0, table["speed-up"].to_numpy().min()), 1.15 * ideal.to_numpy().max())
        }
    return _theme.styled(hv.Overlay(parts), padding=0.08, **shown)


def shares(found: Scaling) -> pl.DataFrame:
    """``run`` and the `PARTS` in % of the device time of all recorded ranks, which add up to 100."""
    losses = (
        (100 * pl.col(f"{factor}_loss_ratio").fill_null(0.0)).alias(f"{factor.replace('_', ' ')} {UNIT}")
        for factor in FACTORS
    )
    known = found.efficiency.drop_nulls("parallel_ratio")
    return known.select("run", (100 * pl.col("parallel_ratio")).alias(f"compute {UNIT}"), *losses)


def by_run(found: Scaling) -> Any:  # noqa: ANN401 - an hv.Overlay
    """Stacked bars of `shares`."""
    table = shares(found)
    return _bars.lying(table, _bars.used(table, PARTS, unit=UNIT), key="run", unit=f"{UNIT}")


def owners(found: Scaling, run: str) -> pl.DataFrame:
    """``what``, ms at both sizes, loss with its interval, of one run; the largest loss first."""
    rows = found.losses.filter(pl.col("run") == run).sort(-pl.col("loss_ns").abs(), maintain_order=True)
    names = pl.Series("what", [pages.owner(row) for row in rows.iter_rows(named=True)], dtype=pl.String)
    columns = {"base_ns": "base", "ideal_ns": "ideal", "time_ns": "here", "loss_ns": "Δ"}
    columns |= {"loss_low_ns": "low", "loss_high_ns": "high"}
    is_sure = (pl.col("loss_low_ns") > 0) | (pl.col("loss_high_ns") < 0)
    more, less, chance = (pl.lit(name) for name, _ in _differences.COLOURS)
    kind = pl.when(~is_sure.fill_null(value=False)).then(chance).when(pl.col("loss_ns") > 0).then(more)
    return rows.select(
        names, *((pl.col(name) / 1e6).alias(f"{shown} ms") for name, shown in columns.items()),
        kind.otherwise(less).alias("kind"),
    )  # fmt: skip


def by_owner(found: Scaling, run: str = "") -> Any:  # noqa: ANN401 - an hv.Overlay
    """Lying bars of `owners`, of the largest run by default."""
    return _differences.lying(owners(found, run or str(found.sizes["run"][-1])))


FIGURES = {
    ("speed-up",): speed_up,
    ("retention",): retention,
    ("efficiency",): by_run,
    ("losses",): by_owner,
}
