"""The page of ``traceview compare``: whether one run beats another, where, and whether chance could do it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import statistics, units
from traceview.reports import margins
from traceview.reports.layout import Block, Facts, Grid, Note, Verdict
from traceview.schema import COMPUTE_CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from traceview.comparisons.compare import Comparison
    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS, KERNEL_ROWS = 20, 10
NAME_LETTERS = 60
METHOD = (
    "ms per rank and step; a difference counts if it exceeds the noise of both runs (95 % of differences "
    "between halves of one run, scaled to as many steps as are compared), its 95 % bootstrap interval over "
    "steps excludes 0, and a permutation test over all rows (step-down max-t) leaves at most 5 % for even "
    "one false alarm"
)
CAVEAT = (
    "steps of one run share nodes, routing and clocks: that runs differ does not yet say that the change "
    "between them did it; a repeat of A shows how much runs differ anyway"
)
_WORDS = {"more": "more", "less": "less", "insignificant": "", "unknown": "?"}
_PARTS = {"several": "several exchanges exposed at once", "copy": "exposed copies", "step": "step"}


def page(
    abouts: tuple[About, About],
    found: Comparison,
    notices: Sequence[Notice],
    *,
    every_notice: bool = False,
) -> list[Block]:
    """The page about two runs.

    Args:
        abouts: The runs.
        found: What they differ in.
        notices: Diagnostics of both and of the comparison, grouped.
        every_notice: Whether to show all of them.
    """
    total = found.totals.row(0, named=True)
    decimals = _decimals(max(total["a_step_ns"], total["b_step_ns"]))
    blocks: list[Block] = [_head(abouts, total), *_configuration(found.configuration)]
    blocks += _significant(found.changes, decimals)
    blocks.append(_ledger(found.changes, decimals))
    blocks += _kernels(found.kernels, decimals)
    blocks += _remarks(total)
    ranks = len({*abouts[0].ranks, *abouts[1].ranks})
    return [
        *blocks,
        *margins.notes(notices, rank_count=ranks, every_notice=every_notice),
        Verdict(sentence(found)),
    ]


def sentence(found: Comparison) -> str:
    """The one line to remember."""
    total = found.totals.row(0, named=True)
    delta, verdict = total["delta_step_ns"], total["verdict"]
    change = units.duration(abs(delta))
    ratio = total["delta_step_ratio"]
    if ratio is None:
        return "A holds no device work, so there is nothing to compare with."
    if verdict == "unknown":
        steps = min(total["a_step_count"], total["b_step_count"])
        if not delta:
            return f"The steps take the same time; {_too_few(steps)}."
        direction = "longer" if delta > 0 else "shorter"
        what = f"B's step is {units.percent(abs(ratio))} {direction} ({change})"
        return f"{what}{_mostly(found.changes, delta, total)}; {_too_few(steps)}."
    margin = units.percent((total["high_ns"] - total["low_ns"]) / 2 / total["a_step_ns"])
    if verdict == "insignificant":
        noise = units.percent(total["noise_ns"] / total["a_step_ns"])
        sign = "-" if ratio < 0 else "+"
        said = f"No significant difference of step time: {sign}{units.percent(abs(ratio))} ± {margin}"
        return f"{said}, where halves of one run differ by up to {noise}{_yet(found.changes)}."
    direction = "slower" if delta > 0 else "faster"
    sign = "+" if delta > 0 else "-"
    return (
        f"B is {units.percent(abs(ratio))} ± {margin} {direction} ({sign}{change} per step)"
        f"{_mostly(found.changes, delta, total)}."
    )


def _too_few(steps: int) -> str:
    counted = units.plural(steps, "step") if steps else "no marked step"
    return (
        f"with {counted} in one run no interval can be given, and chance cannot be told from change "
        f"(record at least {statistics.COMPARABLE_STEPS} in each)"
    )


def _mostly(changes: pl.DataFrame, delta: float, total: Mapping[str, Any]) -> str:
    """The row that explains most of ``delta``: of the ledger, and if that is compute, of its families."""
    is_alike = (pl.col("delta_ns") > 0) == (delta > 0)
    if total["verdict"] != "unknown":
        is_alike &= pl.col("verdict").cast(pl.String).is_in(["more", "less"])
    alike = changes.filter(is_alike & (pl.col("delta_ns") != 0)).sort(-pl.col("delta_ns").abs())
    ledger = alike.filter(pl.col("scope") == "ledger")
    if not len(ledger):
        return "; no single row stands out"
    largest = ledger.row(0, named=True)
    if largest["part"] == "compute":
        families = alike.filter(pl.col("family").is_in(COMPUTE_CATEGORIES))
        largest = families.row(0, named=True) if len(families) else largest
    sign = "+" if delta > 0 else "-"
    return f", above all {name(largest)} {sign}{units.duration(abs(largest['delta_ns']))}"


def _yet(changes: pl.DataFrame) -> str:
    """That single rows differ though the step does not."""
    differing = _told(changes).sort(-pl.col("delta_ns").abs())
    if not len(differing):
        return ""
    largest = differing.row(0, named=True)
    sign = "+" if largest["delta_ns"] > 0 else "-"
    rows = "one row differs" if len(differing) == 1 else f"{len(differing)} rows differ, most of all"
    joint = ": " if len(differing) == 1 else " "
    return f"; yet {rows}{joint}{name(largest)} ({sign}{units.duration(abs(largest['delta_ns']))})"


def name(row: Mapping[str, Any]) -> str:
    """What a row of `CHANGES` is about, in a few words."""
    part = "exposed" if row["part"] == "comm" else _PARTS.get(row["part"], row["part"])
    axis = row["axis"] if row["axis"] != "unknown" else None if row["family"] else "communication"
    labels = [part, axis, row["role"], row["family"]]
    if row["phase"] != row["family"]:
        labels.append(row["phase"])
    if row["layer"] is not None:
        labels.append(f"layer {row['layer']}")
    return " ".join(str(label) for label in labels if label is not None)


def _decimals(step_ns: float) -> int:
    """Digits after the point of ms that show a ten-thousandth of the step."""
    return max(0, 4 - math.floor(math.log10(max(step_ns, 1) / 1e6)))


def _head(abouts: tuple[About, About], total: Mapping[str, Any]) -> Facts:
    lines = [(letter.upper(), _run(about, total, letter)) for letter, about in zip("ab", abouts, strict=True)]
    return Facts((*lines, ("method", METHOD)))


def _run(about: About, total: Mapping[str, Any], letter: str) -> str:
    count = len(about.ranks)
    ranks = f"{count} of {about.world_size} ranks" if about.world_size else units.plural(count, "rank")
    steps = total[f"{letter}_step_count"]
    counted = units.plural(steps, "step") if steps else "one window"
    mean = units.duration(total[f"{letter}_step_ns"])
    return f"{about.name}: {ranks}, {counted}, {mean} each on average"


def _configuration(facts: pl.DataFrame) -> Iterator[Grid]:
    differing = facts.filter(pl.col("is_different").fill_null(value=True))
    if len(differing):
        lines = tuple(
            (row["fact"], _short(row["a"]), _short(row["b"])) for row in differing.iter_rows(named=True)
        )
        yield Grid("configuration that differs", ("what", "A", "B"), lines, label_count=3)


def _short(text: str | None) -> str:
    shown = units.MISSING if text is None else text
    return shown if len(shown) <= NAME_LETTERS else f"{shown[: NAME_LETTERS - 1]}…"


def _told(changes: pl.DataFrame) -> pl.DataFrame:
    return changes.filter(pl.col("verdict").cast(pl.String).is_in(["more", "less"]))


def _significant(changes: pl.DataFrame, decimals: int) -> Iterator[Block]:
    """Rows that differ for sure, and what is left; without a verdict, the largest differences."""
    parts = changes.filter(pl.col("scope") != "step")
    if (parts["verdict"] == "unknown").any():
        families = parts.filter((pl.col("scope") == "family") & (pl.col("delta_ns") != 0))
        yield _grid("families of work that differ most (summed durations)", families.head(ROWS), decimals)
        yield from margins.more_rows(len(families), ROWS)
        return
    told = _told(changes)
    if len(told):
        yield _grid("significant changes", told.head(ROWS), decimals)
        yield from margins.more_rows(len(told), ROWS)
    rest = parts.filter(pl.col("verdict") == "insignificant")
    if len(rest):
        largest = rest.sort(-pl.col("delta_ns").abs()).row(0, named=True)
        yield Note(
            f"{units.plural(len(rest), 'row')} without a significant change; the largest difference of them: "
            f"{name(largest)} {units.fixed(largest['delta_ns'] / 1e6, decimals, signed=True)} ms"
        )


def _ledger(changes: pl.DataFrame, decimals: int) -> Grid:
    """The step and all of its parts, which add up."""
    rows = changes.filter((pl.col("scope") != "family") & ((pl.col("a_ns") > 0) | (pl.col("b_ns") > 0)))
    return _grid("what the step is made of; rows add up to it", rows, decimals)


def _grid(title: str, rows: pl.DataFrame, decimals: int) -> Grid:
    heads = ["what", "A ms", "B ms", "Δ ms", "Δ %"]
    is_told = rows["low_ns"].count() > 0
    if is_told:
        heads += ["95 % interval", "noise ±", "p", "verdict"]
    is_counted = rows["a_count"].count() > 0
    if is_counted:
        heads += ["A ops", "B ops"]
    lines = tuple(
        _cells(row, decimals, is_told=is_told, is_counted=is_counted) for row in rows.iter_rows(named=True)
    )
    return Grid(title, tuple(heads), lines)


def _cells(row: Mapping[str, Any], decimals: int, *, is_told: bool, is_counted: bool) -> tuple[str, ...]:
    def ms(column: str, *, signed: bool = False) -> str:
        value = row[column]
        return units.fixed(None if value is None else value / 1e6, decimals, signed=signed)

    share = row["delta_ratio"]
    cells = [name(row), ms("a_ns"), ms("b_ns"), ms("delta_ns", signed=True)]
    cells.append(units.fixed(None if share is None else 100 * share, 1, signed=True))
    if is_told:
        cells += [f"{ms('low_ns', signed=True)} … {ms('high_ns', signed=True)}", ms("noise_ns")]
        cells += [units.fixed(row["p_value"], 3), _WORDS[row["verdict"]]]
    if is_counted:
        cells += ["" if row[key] is None else units.significant(row[key]) for key in ("a_count", "b_count")]
    return tuple(cells)


def _kernels(kernels: pl.DataFrame, decimals: int) -> Iterator[Block]:
    """The kernels that differ most, and how many are new or gone."""
    differing = kernels.filter(pl.col("delta_ns") != 0)
    if not len(differing):
        return
    heads = ("kernel", "family", "A ms", "B ms", "Δ ms", "A ops", "B ops")
    lines = tuple(
        (
            _short(row["name"]),
            row["family"],
            *(units.fixed(row[key] / 1e6, decimals) for key in ("a_ns", "b_ns")),
            units.fixed(row["delta_ns"] / 1e6, decimals, signed=True),
            *(units.significant(row[key]) for key in ("a_count", "b_count")),
        )
        for row in differing.head(KERNEL_ROWS).iter_rows(named=True)
    )
    yield Grid("kernels that differ most (not tested one by one)", heads, lines, label_count=2)
    for change, letter, column in (("added", "B", "b_ns"), ("removed", "A", "a_ns")):
        only = kernels.filter(pl.col("change") == change)
        if len(only):
            spent = units.duration(float(only[column].sum()))
            yield Note(f"{units.plural(len(only), 'kernel')} only in {letter}: {spent} per rank and step")


def _remarks(total: Mapping[str, Any]) -> Iterator[Note]:
    for letter in "ab":
        logged, overhead = total[f"{letter}_log_step_ns"], total[f"{letter}_overhead_ratio"]
        if logged is not None:
            slower = units.fixed(100 * overhead, 1, signed=True)
            without = f"{letter.upper()}'s step takes {units.duration(logged)} without the profiler"
            yield Note(f"{without}, {slower} % with it", "info")
    if total["delta_log_ratio"] is not None:
        ratio = total["delta_log_ratio"]
        direction = "longer" if ratio > 0 else "shorter"
        yield Note(f"without it B's step is {units.percent(abs(ratio))} {direction} than A's", "info")
    if total["verdict"] != "unknown":
        yield Note(CAVEAT)
