"""Expert loads of one rank: what its experts receive, from each kind of evidence a trace can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceview.analyzers._exchanges import EXCHANGES, collect
from traceview.enclosure import enclosing
from traceview.schema import HOST_OPS, Column, Table

if TYPE_CHECKING:
    from traceview.contracts import Options
    from traceview.trace import Trace

EVIDENCE = ("splits", "bytes", "shapes", "grouped_gemm")
"""Best first; the load is in rows, bytes, rows (padding included) and ns."""

PARTIAL = Table(
    "experts_partial",
    "`exchanges`; and, with `evidence`, one row per load: rank, step, microbatch, layer and phase.",
    {
        **EXCHANGES.columns,
        "evidence": Column(pl.Enum(EVIDENCE), "where the load was read", nullable=True),
        "load": Column(pl.Int64(), "load in the unit of the evidence", nullable=True),
    },
)

_SCOPE = ("step", "microbatch", "layer", "phase")


def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """`PARTIAL` of one rank."""
    exchanges = collect(trace, options)
    steps = exchanges.filter(pl.col("op").is_null())["step"]
    gemms = trace.table("ops").filter(pl.col("category") == "grouped_gemm")
    if steps.null_count() == 0:
        gemms = gemms.filter(pl.col("step").is_in(steps.implode()))
    dispatches = _dispatches(trace, exchanges, gemms)
    loads = pl.concat([*_received(dispatches), _shaped(trace, gemms), _timed(gemms)])
    member = dispatches.select("group_key", "group_size").drop_nulls().head(1)
    placed = loads.join(member, how="cross") if len(member) else loads
    labelled = placed.with_columns(
        rank=pl.lit(trace.facts.rank or 0, pl.Int32),
        host=pl.lit("", pl.String),
        is_host_known=pl.lit(value=False),
        node=pl.lit(0, pl.Int32),
    )
    return PARTIAL.frame(pl.concat([exchanges, labelled], how="diagonal_relaxed"))


def _dispatches(trace: Trace, exchanges: pl.DataFrame, gemms: pl.DataFrame) -> pl.DataFrame:
    """The all-to-alls that bring tokens to experts, with split lists and group.

    Where no exchange of the rank says its role, those are taken after which, before the next one, grouped
    GEMMs run: they brought the rows that these work on. Exchanges known to serve another axis are not asked.
    """
    lists = trace.table("collectives").select("op", "in_splits", "out_splits", "splits_complete")
    of_tokens = exchanges.filter(pl.col("collective").cast(pl.String) == "all_to_all")
    known = of_tokens.join(lists, on="op", how="left", maintain_order="left").sort("ts_ns", "op")
    if known["role"].count():
        return known.filter(pl.col("role").cast(pl.String) == "dispatch")
    candidates = known.filter(pl.col("axis").cast(pl.String).is_in(["ep", "world", "unknown"]))
    work = gemms["ts_ns"].sort()
    begun = work.search_sorted(candidates["ts_ns"], side="left").cast(pl.Int64)
    followed = candidates.with_columns(begun=begun)
    return followed.filter(pl.col("begun").shift(-1, fill_value=len(work)) > pl.col("begun")).drop("begun")


def _received(dispatches: pl.DataFrame) -> list[pl.DataFrame]:
    """Rows and bytes that reached the rank. Counts and probabilities travel apart, in narrower rows.

    Lists that are as wide as the bytes count bytes (NCCL's own do): they tell of no rows.
    """
    whole = (pl.col("out_splits").list.len() == pl.col("group_size")) & pl.col("splits_complete")
    sides = ((pl.col(f"{side}_bytes"), pl.col(f"{side}_splits").list.sum()) for side in ("out", "in"))
    width = pl.coalesce(pl.when(whole & (rows > 0)).then(size / rows) for size, rows in sides)
    rows = pl.when(whole & (pl.col("width") != 1)).then(pl.col("out_splits").list.sum())
    payload = dispatches.with_columns(width=width).with_columns(rows=rows)
    is_widest = pl.col("width") == pl.col("width").max().over(_SCOPE)
    widest = payload.filter(is_widest | pl.col("width").is_null())
    known = {"splits": "rows", "bytes": "out_bytes"}
    return [_loads(widest, pl.col(name), evidence) for evidence, name in known.items()]


def _shaped(trace: Trace, gemms: pl.DataFrame) -> pl.DataFrame:
    """Rows of the grouped GEMMs, from the shapes of the operators that launched them, each counted once."""
    host = trace.tables.get("host_ops", HOST_OPS.empty())
    operators = host.filter(pl.col("name").cast(pl.String).str.contains("grouped_mm"))
    rows = operators["shapes"].str.extract(r"^\s*\[\s*\[\s*(\d+)").cast(pl.Int64, strict=False)
    launched = gemms.select("rank", ts_ns="launch_ts_ns")
    caller = enclosing(operators, launched, on=("rank",))
    calls = gemms.with_columns(caller=caller, rows=rows.gather(caller)).drop_nulls("caller")
    return _loads(calls.unique("caller", keep="first", maintain_order=True), pl.col("rows"), "shapes")


def _timed(gemms: pl.DataFrame) -> pl.DataFrame:
    return _loads(gemms, pl.col("dur_ns"), "grouped_gemm")


def _loads(rows: pl.DataFrame, load: pl.Expr, evidence: str) -> pl.DataFrame:
    """``load`` summed by `_SCOPE`; a sum of which a part is unknown is left out."""
    known = pl.when(pl.col("load").null_count() == 0).then(pl.col("load").sum())
    summed = rows.with_columns(load=load.cast(pl.Int64)).group_by(_SCOPE, maintain_order=True).agg(known)
    return summed.drop_nulls("load").with_columns(evidence=pl.lit(evidence, pl.Enum(EVIDENCE)))
