"""The page of ``traceview scaling``: what each size retains, and who owns what is lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers.efficiency import FACTORS
from traceview.analyzers.several import JOINED
from traceview.references import references
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.comparisons.scaling import Scaling
    from traceview.reports.notices import Notice

METHOD = (
    "retention = tokens/s/rank over that of the smallest job, by mean step time of the recorded ranks; "
    "95 % bootstrap interval over steps"
)
TREE = "parallel = dp × pp × ep balance × communication × orchestration; compute / window of all ranks"
_KINDS = {
    "weak": "weak scaling",
    "strong": "strong scaling",
    "moe_weak": "weak scaling with experts that grow as the ranks do",
    "same_size": "two jobs of one size",
}
_CAUSES = {
    "left_domain": "more of its bytes leave the scale-up (NVLink) domain",
    "waiting": "ranks wait longer for the last one",
    "more_bytes": "a rank sends more",
    "same_bytes_for_less": "what a rank sends does not shrink with its tokens",
    "less_hidden": "less of it is hidden under compute",
    "larger_group": "the group has more members",
    "slower": "it takes longer for the same bytes in a group of the same size",
}
_PARTS = {"copy": "copies"}
_SPLIT = {"wait": "waiting", "transfer": "transferring", "unsplit": "not split"}
_HEADS = {
    "dp_balance": "dp balance",
    "pp_balance": "pp balance",
    "ep_balance": "ep balance",
}


def page(
    found: Scaling,
    notices: Mapping[str, Sequence[Notice]],
    *,
    additive: bool = False,
    every_notice: bool = False,
) -> list[Block]:
    """The page about all runs.

    Args:
        found: How they compare.
        notices: Diagnostics by run, grouped.
        additive: Show what each factor loses of the time, instead of factors.
        every_notice: Whether to show all notices.
    """
    blocks = [facts(found), *speed(found), *efficiency(found, additive=additive), *losses(found)]
    blocks += [*remarks(found), *noted(found, notices, every_notice=every_notice)]
    if len(found.sizes) > 1:
        blocks.append(published())
    return [*blocks, Verdict(sentence(found))]


def facts(found: Scaling) -> Facts:
    """Which runs, and how they are compared."""
    return _facts(found.sizes.to_dicts())


def speed(found: Scaling) -> list[Block]:
    """Speed by size."""
    return [_sizes(found.sizes.to_dicts())]


def efficiency(found: Scaling, *, additive: bool = False) -> list[Block]:
    """The factors of each run."""
    return [_tree(found.efficiency, additive=additive)]


def losses(found: Scaling) -> list[Block]:
    """What the largest run loses, by owner, and why communication costs more."""
    table = [_losses(found.losses, found.sizes.to_dicts())] if len(found.losses) else []
    return [*table, *_causes(found.axes)]


def remarks(found: Scaling) -> list[Block]:
    """What has to be known about the figures."""
    return list(_remarks(found.sizes.to_dicts()))


def noted(
    found: Scaling, notices: Mapping[str, Sequence[Notice]], *, every_notice: bool = False
) -> list[Block]:
    """Diagnostics of each run."""
    return [
        Note(f"{row['run']}: {note.text}", note.severity)
        for row in found.sizes.to_dicts()
        for note in margins.notes(
            notices[row["run"]], rank_count=row["recorded_count"], every_notice=every_notice
        )
    ]


def sentence(found: Scaling) -> str:
    """The one line to remember."""
    base, *larger = found.sizes.to_dicts()
    if not larger:
        share = units.percent(found.efficiency.to_dicts()[0]["parallel_ratio"])
        return f"One run alone says nothing about scaling; {share} of its device time is compute."
    last = larger[-1]
    span = f"From {base['rank_count']:,} to {last['rank_count']:,} ranks"
    if last["retention"] is None:
        return f"{span}, retention is not known: {last['reason'] or 'no step can be measured'}."
    interval = ""
    if last["retention_low"] is not None:
        ends = (units.percent_value(last[f"retention_{end}"]) for end in ("low", "high"))
        interval = f" ({' to '.join(ends)} %)"
    kept = units.percent(last["retention"])
    text = f"{span} a rank keeps {kept} of its speed{interval}, {_KINDS[last['scaling']]}"
    losses = found.losses.filter((pl.col("run") == last["run"]) & (pl.col("loss_ns") > 0))
    if last["retention"] >= 1 or not len(losses):
        return f"{text}."
    worst = losses.sort("loss_ns", descending=True).row(0, named=True)
    total = units.duration(last["step_ns"] * (1 - last["retention"]))
    cost = f"the largest loss is {owner(worst)}, {units.duration(worst['loss_ns'])} of {total} per step"
    sharing = (worst["axes"] or "").split(JOINED)
    of_last = found.axes.filter(
        (pl.col("run") == last["run"]) & pl.col("axis").cast(pl.String).is_in(sharing)
    )
    causes = of_last["cause"].unique().to_list()
    why = f": {_CAUSES[causes[0]]}" if len(causes) == 1 and causes[0] else ""
    return f"{text}; {cost}{why}."


# --- tables ------------------------------------------------------------------------------------------


def _facts(sizes: Sequence[Mapping[str, Any]]) -> Facts:
    pairs = [("runs", ", ".join(row["run"] for row in sizes)), ("method", METHOD), ("efficiency", TREE)]
    told = {row["held"]: row["run"] for row in sizes if row["held"]}
    pairs += [("held", f"{text} ({run})" if len(told) > 1 else text) for text, run in told.items()]
    return Facts(tuple(pairs))


def _sizes(sizes: Sequence[Mapping[str, Any]]) -> Grid:
    heads = ["run", "scaling", "ranks", "recorded", "steps", "step ms", "tokens/s/rank"]
    heads += ["retention %", "low %", "high %", "speed-up", "linear"]
    is_strong = any(row["serial_fraction"] is not None for row in sizes)
    lines = []
    for row in sizes:
        kind = "baseline" if row["base_run"] is None else row["scaling"] or "refused"
        cells = [
            row["run"],
            kind.replace("_", " "),
            units.count(row["rank_count"]),
            units.count(row["recorded_count"]),
            units.count(row["step_count"]),
            units.milliseconds(row["step_ns"]),
            _number(row["tokens_per_second_per_rank"], 4),
            *(units.percent_value(row[name]) for name in ("retention", "retention_low", "retention_high")),
            *(_number(row[name]) for name in ("speedup", "linear_speedup")),
        ]
        lines.append((*cells, units.percent_value(row["serial_fraction"])) if is_strong else tuple(cells))
    heads += ["serial %"] * is_strong
    return Grid("speed by size; linear is the ideal", tuple(heads), tuple(lines), label_count=2)


def _tree(efficiency: pl.DataFrame, *, additive: bool) -> Grid:
    names = ("load_balance", *FACTORS)
    suffix = "_loss_ratio" if additive else "_ratio"
    heads = ("run", "parallel", "load balance", *(_HEADS.get(name, name) for name in FACTORS))
    lines = tuple(
        (
            row["run"],
            units.percent_value(row["parallel_ratio"]),
            *(units.percent_value(row[f"{name}{suffix}"]) for name in names),
        )
        for row in efficiency.iter_rows(named=True)
    )
    title = "efficiency of the recorded ranks, %; what each loses of the time adds up to 100 − parallel"
    return Grid(
        title if additive else "efficiency of the recorded ranks, %; parallel is the product", heads, lines
    )


def _losses(losses: pl.DataFrame, sizes: Sequence[Mapping[str, Any]]) -> Grid:
    """Owners of the largest run, largest loss first, with the losses of the runs between beside them."""
    runs = [row["run"] for row in sizes if row["run"] in set(losses["run"])]
    last, between = runs[-1], runs[:-1]
    keys = ["part", "axes", "cause"]
    largest = losses.filter(pl.col("run") == last).sort("loss_ns", *keys, descending=[True] + [False] * 3)
    others = [losses.filter(pl.col("run") == run) for run in between]
    is_scaled = bool((largest["base_ns"] != largest["ideal_ns"]).any())
    heads = ["what", f"{losses['base_run'][0]} ms", *(["ideal ms"] * is_scaled), f"{last} ms"]
    heads += [f"loss of {run}" for run in between] + [f"loss of {last}", "% of step", "low", "high"]
    lines = []
    for row in largest.iter_rows(named=True):
        beside = [
            int(other.filter(*(pl.col(key).eq_missing(row[key]) for key in keys))["loss_ns"].sum())
            for other in others
        ]
        lines.append(_loss_cells(owner(row), row, beside, is_scaled=is_scaled))
    times = ["base_ns", "ideal_ns", "time_ns", "loss_ns", "loss_ratio"]
    total = largest.select(pl.col(times).sum()).row(0, named=True) | {
        "loss_low_ns": None,
        "loss_high_ns": None,
    }
    lines.append(
        _loss_cells("step", total, [int(other["loss_ns"].sum()) for other in others], is_scaled=is_scaled)
    )
    title = "what a step takes beyond the ideal, ms per step and rank; rows add up exactly, in ns"
    return Grid(title, tuple(heads), tuple(lines))


def _loss_cells(
    label: str, row: Mapping[str, Any], beside: Sequence[int], *, is_scaled: bool
) -> tuple[str, ...]:
    times = [row["base_ns"], *([row["ideal_ns"]] * is_scaled), row["time_ns"], *beside, row["loss_ns"]]
    return (
        label,
        *map(units.milliseconds, times),
        units.percent_value(row["loss_ratio"]),
        *(units.milliseconds(row[f"loss_{end}_ns"]) for end in ("low", "high")),
    )


def owner(row: Mapping[str, Any]) -> str:
    """What a row of losses is about, in a few words."""
    part = str(row["part"])
    if part == "several":
        return f"{row['axes'].replace(JOINED, ' and ')} at once"
    if part != "comm":
        return _PARTS.get(part, part)
    return " ".join(word for word in (row["axes"], _SPLIT.get(row["cause"] or "", "")) if word)


def published() -> Grid:
    """What others retained."""
    lines = tuple(
        (
            one.framework,
            one.model,
            one.gpu or units.MISSING,
            f"{one.from_gpus:,} → {one.to_gpus:,}",
            units.percent_value(one.ratio),
            units.percent_value(one.ratio ** (1 / math.log2(one.to_gpus / one.from_gpus))),
        )
        for one in references().retentions
    )
    heads = ("framework", "model", "GPU", "ranks", "retention %", "per doubling %")
    return Grid("published weak scaling, for comparison", heads, lines, label_count=4)


# --- remarks -----------------------------------------------------------------------------------------


def _causes(axes: pl.DataFrame) -> Iterator[Note]:
    for row in axes.drop_nulls("cause").iter_rows(named=True):
        cost = f"{units.duration(row['loss_ns'])} per step alone"
        if row["shared_loss_ns"]:
            cost += f" and {units.duration(row['shared_loss_ns'])} shared with others"
        yield Note(f"{row['run']}: {row['axis']} loses {cost}: {_CAUSES[row['cause']]}{_figures(row)}")


def _figures(row: Mapping[str, Any]) -> str:
    """The numbers that bear a cause out."""
    match row["cause"]:
        case "left_domain":
            pair = [units.percent(row[f"{when}far_ratio"]) for when in ("base_", "")]
        case "more_bytes" | "same_bytes_for_less":
            pair = [units.size(row[f"{when}sent_bytes"]) for when in ("base_", "")]
        case "less_hidden":
            pair = [units.percent(row[f"{when}hidden_ratio"]) for when in ("base_", "")]
        case "larger_group":
            pair = [units.count(row[f"{when}size"]) for when in ("base_", "")]
        case _:
            pair = [units.duration(row[f"{when}dur_ns"]) for when in ("base_", "")]
    return f" ({' → '.join(pair)})"


def _remarks(sizes: Sequence[Mapping[str, Any]]) -> Iterator[Note]:
    said: dict[tuple[str, str], list[str]] = {}
    for row in sizes:
        for severity, text in _remarks_on(row):
            said.setdefault((severity, text), []).append(row["run"])
    for (severity, text), names in said.items():
        yield Note(f"{', '.join(names)}: {text}", severity)


def _remarks_on(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Severity and text of what has to be known about one run's row."""
    if not row["is_world_known"]:
        yield "info", "nothing says how large the job is; the recorded ranks are taken for all"
    if row["reason"]:
        yield "missing", f"no retention: {row['reason']}"
    elif row["tokens_from"] == "evidence":
        tokens = "as many tokens as"
        if row["tokens_per_rank_over_base"] != 1:
            tokens = f"{units.significant(row['tokens_per_rank_over_base'])} of the tokens"
        text = (
            f"a rank is taken to work on {tokens} in {row['base_run']}, by its kernels and dispatched bytes"
        )
        yield "info", f"{text}; --tokens-per-step makes sure"
    if row["retention"] is not None and row["retention_low"] is None:
        yield "missing", "too few steps for an interval of the retention"


def _number(value: float | None, digits: int = 3) -> str:
    return units.MISSING if value is None else units.significant(value, digits)
