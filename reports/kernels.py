"""The page of ``traceview kernels``: what runs, how near to the device's limits, and what MoE adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceview import units
from traceview.analyzers._moe_parts import TAXES
from traceview.analyzers.kernels import LABELS
from traceview.reports import kernel_names, margins
from traceview.reports.layout import Block, Facts, Grid, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from traceview.reports.about import About
    from traceview.reports.notices import Notice

ROWS, PRODUCT_ROWS, FEW_ROWS, NAME_ROWS = 24, 12, 10, 50
METHOD = (
    "a kernel counts whole in the step that launched it; median and p95 over all kernels of all ranks; "
    "busy is the union of a row's kernels over the time the device does anything"
)
RECORD_SHAPES = "record_shapes=True in torch.profiler tells them"


@dataclass(frozen=True, slots=True)
class Findings:
    """What the page tells about one run, each an analysis' result.

    Attributes:
        rows: `kernels` in the grain asked for.
        products: `roofline` by operator, precision and kernel.
        moe_parts: `kernels` by part of the MoE layer.
        moe: `kernels` by whether they serve it.
        sm_share: `sm_share` by axis and category.
        copies: `copies` by kind.
    """

    rows: pl.DataFrame
    products: pl.DataFrame
    moe_parts: pl.DataFrame
    moe: pl.DataFrame
    sm_share: pl.DataFrame
    copies: pl.DataFrame

    @property
    def window_count(self) -> int:
        """Windows looked at: rank × device × step."""
        return int(self.moe_parts["window_count"].max() or 0)  # type: ignore[arg-type]  # an integer column


def page(about: About, found: Findings, notices: tuple[Notice, ...], *, every_notice: bool) -> list[Block]:
    """The page about one run; ``notices`` are its diagnostics, grouped."""
    blocks: list[Block] = [Facts((*margins.facts(about), *margins.recorded(about), ("method", METHOD)))]
    if len(found.rows):
        blocks += [_kernels(found.rows), *margins.more_rows(len(found.rows), ROWS)]
    blocks += [*_products(found), *_moe(found), *_sm_share(found), *_copies(found)]
    return [*blocks, *margins.foot(about, notices, sentence(found), every_notice=every_notice)]


def sentence(found: Findings) -> str:
    """The one line to remember."""
    if not found.window_count:
        return "No kernel was recorded."
    told = [*_product_clauses(found.products), *_moe_clauses(found), *_sm_clauses(found.sm_share)]
    if not told:
        top = found.rows.row(0, named=True)
        name = next((str(top[key]) for key in LABELS if top[key] is not None), "the first row")
        told = [f"{name[:64]} takes {units.percent(top['sum_ratio'])} of summed kernel time"]
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}."


def _product_clauses(products: pl.DataFrame) -> Iterator[str]:
    known, unknown = int(products["time_ns"].sum()), int(products["unknown_ns"].sum())
    if not known + unknown:
        return
    if not known:
        yield "how fast matrix products are cannot be told, since their shapes were not recorded"
        return
    rate = float(products["flops"].sum()) / known / 1e3
    of = ""
    peaked = products.filter(pl.col("peak_ratio").is_not_null())
    if int(peaked["time_ns"].sum()) == known:
        share = float((peaked["peak_ratio"] * peaked["time_ns"]).sum()) / known
        of = f", {units.percent(share)} of peak"
    part = (
        "" if not unknown else f" ({units.percent(known / (known + unknown))} of GEMM time is of known shape)"
    )
    yield f"matrix products run at {units.significant(rate)} TFLOP/s{of}{part}"


def _moe_clauses(found: Findings) -> Iterator[str]:
    taxes = found.moe_parts.filter(pl.col("moe_part").is_in(TAXES))
    if len(taxes) and len(_moe_rows(found.moe)):
        listed = ", ".join(
            f"{row['moe_part']} {units.percent(row['window_ratio'])}" for row in taxes.iter_rows(named=True)
        )
        yield f"of the step, {listed} are neither expert compute nor exchange"


def _sm_clauses(shares: pl.DataFrame) -> Iterator[str]:
    known = shares.filter(pl.col("sm_ratio").is_not_null())
    if len(known):
        top = known.row(0, named=True)
        kind = " ".join(filter(None, (top["axis"], top["category"])))
        yield f"{kind} takes {units.percent(top['sm_ratio'])} of the SMs while it runs"


# --- tables ------------------------------------------------------------------------------------------


def _kernels(rows: pl.DataFrame) -> Grid:
    keys = [name for name in ("rank", "device", "step", *LABELS) if rows[name].count()]
    heads = (*keys, "kernels", "ms", "% of sum", "busy %", "min µs", "median µs", "p95 µs", "max µs")
    lines = tuple(_kernel_cells(row, keys) for row in rows.head(ROWS).iter_rows(named=True))
    return Grid(f"kernels; ms {_per(rows)}", heads, lines, label_count=len(keys))


def names(rows: pl.DataFrame) -> Grid:
    """The single kernels of a `kernels` by name that sum up to most, with their full names at hand."""
    shown = rows.head(NAME_ROWS)
    heads = ("name", "kernels", "ms", "% of sum", "busy %", "min µs", "median µs", "p95 µs", "max µs")
    lines = tuple(_kernel_cells(row, ["name"]) for row in shown.iter_rows(named=True))
    cut = f"; the first {NAME_ROWS} of {len(rows):,}" if len(rows) > NAME_ROWS else ""
    title = f"single kernels{cut}; ms {_per(rows)}"
    return Grid(title, heads, lines, hints=tuple(str(name) for name in shown["name"]))


def _kernel_cells(row: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    return (
        *(_label(key, row[key]) for key in keys),
        units.count(row["kernel_count"]),
        units.milliseconds(row["total_ns"] / row["window_count"]),
        units.percent_value(row["sum_ratio"]),
        units.percent_value(row["busy_ratio"]),
        *(_microseconds(row[name]) for name in ("min_ns", "median_ns", "p95_ns", "max_ns")),
    )


def _products(found: Findings) -> Iterator[Block]:
    known = found.products.filter(pl.col("product_count") > 0)
    if len(known):
        heads = (
            "operator",
            "type",
            "longest kernel",
            "products",
            "ms",
            "TFLOP/s",
            "% of peak",
            "% achievable",
            "FLOP/byte",
            "ridge",
            "% of roof",
            "rows/expert",
        )
        lines = tuple(
            _product_cells(row, found.window_count) for row in known.head(PRODUCT_ROWS).iter_rows(named=True)
        )
        yield Grid(f"matrix products of known shape; ms {_per(found.moe_parts)}", heads, lines, label_count=3)
        yield from margins.more_rows(len(known), PRODUCT_ROWS)
    unknown, count = (int(found.products[name].sum()) for name in ("unknown_ns", "unknown_count"))
    if unknown:
        share = unknown / (unknown + int(known["time_ns"].sum()))
        part = f"{units.percent(share)} of GEMM time ({units.plural(count, 'kernel')})"
        text = (
            f"the shapes of {part} are not known, hence no rate; {RECORD_SHAPES}, unless a library or "
            "a graph launches them"
        )
        yield Note(text, "missing")


def _product_cells(row: Mapping[str, Any], window_count: int) -> tuple[str, ...]:
    rates = (
        _number(row["tflops"]),
        *(units.percent_value(row[f"{name}_ratio"]) for name in ("peak", "achievable")),
    )
    limits = (_number(row["intensity"]), _number(row["ridge"]), units.percent_value(row["roof_ratio"]))
    return (
        row["operator"] or "",
        row["precision"] or "?",
        kernel_names.short(row["name"] or ""),
        units.count(row["product_count"]),
        units.milliseconds(row["time_ns"] / max(window_count, 1)),
        *rates,
        *limits,
        _number(row["rows_per_group"]),
    )


def _moe_rows(moe: pl.DataFrame) -> pl.DataFrame:
    return moe.filter(pl.col("is_moe"))


def _moe(found: Findings) -> Iterator[Grid]:
    whole = _moe_rows(found.moe)
    if not len(whole):
        return
    busy = int(whole["busy_ns"][0])
    parts = found.moe_parts.drop_nulls("moe_part")
    lines = [_moe_cells(row["moe_part"], row, busy) for row in parts.iter_rows(named=True)]
    lines.append(_moe_cells("MoE layers", whole.row(0, named=True), busy))
    heads = ("part", "kernels", "busy ms", "% of step", "% of MoE time")
    title = f"mixture-of-experts layers (unions, so parts may overlap); ms {_per(found.moe)}"
    yield Grid(title, heads, tuple(lines))


def _moe_cells(label: str, row: Mapping[str, Any], busy_ns: int) -> tuple[str, ...]:
    # casts run in attention as well, so of MoE time they are no share
    share = None if label == "quantize" or not busy_ns else row["busy_ns"] / busy_ns
    return (
        label,
        units.count(row["kernel_count"]),
        units.milliseconds(row["busy_ns"] / row["window_count"]),
        units.percent_value(row["window_ratio"]),
        units.percent_value(share),
    )


def _sm_share(found: Findings) -> Iterator[Block]:
    rows = found.sm_share
    if not len(rows):
        return
    heads = ("axis", "communication", "kernels", "ms", "blocks", "fewest", "most", "SMs", "% of SMs")
    lines = tuple(
        (
            row["axis"] or "",
            row["category"],
            units.count(row["kernel_count"]),
            units.milliseconds(row["total_ns"] / max(found.window_count, 1)),
            _number(row["median_blocks"]),
            units.count(row["min_blocks"]),
            units.count(row["max_blocks"]),
            units.count(row["sm_count"]),
            units.percent_value(row["sm_ratio"]),
        )
        for row in rows.head(FEW_ROWS).iter_rows(named=True)
    )
    title = f"SMs under communication (blocks: median by time, one SM each); ms {_per(found.moe_parts)}"
    yield Grid(title, heads, lines, label_count=2)
    yield from margins.more_rows(len(rows), FEW_ROWS)


def _copies(found: Findings) -> Iterator[Block]:
    rows = found.copies
    if not len(rows):
        return
    heads = ("kind", "direction", "copies", "bytes", "ms", "GB/s", "median bytes", "median µs", "max µs")
    lines = tuple(
        (
            row["kind"],
            row["copy_kind"] or "",
            units.count(row["copy_count"]),
            units.size(row["bytes"]),
            units.milliseconds(row["total_ns"] / max(found.window_count, 1)),
            _number(row["gb_per_s"]),
            units.size(row["median_bytes"]),
            _microseconds(row["median_ns"]),
            _microseconds(row["max_ns"]),
        )
        for row in rows.head(FEW_ROWS).iter_rows(named=True)
    )
    yield Grid(f"copies and fills, all ranks; ms {_per(found.moe_parts)}", heads, lines, label_count=2)
    yield from margins.more_rows(len(rows), FEW_ROWS)


def _per(rows: pl.DataFrame) -> str:
    windows = int(rows["window_count"].max() or 0)  # type: ignore[arg-type]  # an integer column
    return f"per rank and step, {units.plural(windows, 'window')} looked at"


def _label(key: str, value: object) -> str:
    if value is None:
        return "none" if key in {"range", "moe_part"} else ""
    return kernel_names.short(str(value)) if key in {"name", "range", "module"} else str(value)


def _microseconds(ns: float | None) -> str:
    return units.MISSING if ns is None else units.significant(ns / 1e3)


def _number(value: float | None) -> str:
    return units.MISSING if value is None else units.significant(value)
