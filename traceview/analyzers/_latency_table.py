"""Columns of `alltoall` and `collectives`: what they are told apart by, and what is measured of each."""

from __future__ import annotations

import polars as pl

from traceview.schema import Column, Table

NONE = "none"
BYTES_METHODS = ("exact", "even", "least", "mixed")
_I64, _F64 = pl.Int64(), pl.Float64()

GRAINS = {
    "rank": ("rank",),
    "step": ("step",),
    "layer": ("layer",),
    "phase": ("phase",),
    "role": ("role",),
    "axis": ("axis",),
    "group": ("group_key", "group_size"),
    "size": ("size_bytes",),
    "collective": ("collective",),
    "kind": ("collective", "role"),
}
KEYS = tuple(dict.fromkeys(column for columns in GRAINS.values() for column in columns))


def _summed(what: str, unit: str = "ns") -> Column:
    return Column(_I64, what, unit, nullable=True)


def _rate(what: str) -> Column:
    return Column(_F64, what, "bytes/s", nullable=True)


_SHARED = "null when summed over, or not known"
MEASURES = {
    "op_count": Column(_I64, "payload ops"),
    "instance_count": Column(_I64, "exchanges they belong to, matched over ranks"),
    "complete_count": Column(_I64, "of them, those recorded by every member"),
    "dur_ns": Column(_I64, "durations of the payload ops, waiting included, summed over ranks", "ns"),
    "dur_p50_ns": _summed("median duration of a payload op"),
    "dur_p90_ns": _summed("90th percentile"),
    "dur_p99_ns": _summed("99th percentile"),
    "dur_max_ns": _summed("longest"),
    "wait_ns": _summed("waiting for the last rank, over the ops of complete exchanges"),
    "transfer_ns": _summed("the rest of these ops: moving bytes"),
    "wait_ratio": Column(_F64, "wait / (wait + transfer)", nullable=True),
    "transfer_p50_ns": _summed("median over complete exchanges of end - last arrival"),
    "transfer_max_ns": _summed("longest of them"),
    "shortest_ns": _summed(
        "shortest op of each complete exchange, summed over exchanges: a transfer time that trusts no clock"
    ),
    "exposed_ns": Column(_I64, "time in which a payload op alone communicates and nothing computes", "ns"),
    "exposed_wait_ns": _summed("of it waiting, over the ops of complete exchanges"),
    "exposed_transfer_ns": _summed("of it moving bytes, over the ops of complete exchanges"),
    "hidden_ns": Column(_I64, "time of payload ops under compute", "ns"),
    "sync_count": Column(_I64, "ops that only wait: barriers and notifications"),
    "sync_ns": Column(_I64, "their durations", "ns"),
    "sync_exposed_ns": Column(_I64, "time in which one of them alone is exposed", "ns"),
    "local_ns": Column(_I64, "durations of a transport's copies within the rank", "ns"),
    "sent_bytes": _summed("sent to other ranks; null unless known of every op", "bytes"),
    "scale_up_bytes": _summed("of it within the scale-up (NVLink) domain", "bytes"),
    "scale_out_bytes": _summed("of it to other domains", "bytes"),
    "bytes_method": Column(
        pl.Enum(list(BYTES_METHODS)),
        "exact (recorded split sizes), even (every peer taken to get the same), least (what the collective "
        "cannot do without), mixed",
        nullable=True,
    ),
    "bytes_imbalance": Column(
        _F64, "max / mean over ranks of bytes sent + received, median over all-to-alls", nullable=True
    ),
    "algbw_bytes_per_s": _rate("buffer / transfer; null where the transfer is within the clocks' residual"),
    "busbw_bytes_per_s": _rate("bytes of the busiest rank to or from others / transfer; null likewise"),
    "algbw_floor_bytes_per_s": _rate("buffer / duration, median over ops: a lower bound, includes waiting"),
    "expected_bytes_per_s": _rate("bus bandwidth of a large message on an idle GPU"),
    "expected_ratio": Column(
        _F64, "busbw / expected; may pass 1 where switches reduce in flight", nullable=True
    ),
    "expected_source": Column(pl.String(), "where the expectation comes from", nullable=True),
    "uncertainty_ns": _summed("residual of the clocks behind waits and transfers (95 %); 0 on one host"),
    "window_count": Column(_I64, "windows (rank × step) looked at", nullable=True),
    "window_ns": _summed("time looked at"),
}


def result(name: str, doc: str) -> Table:
    """The table of an analysis of exchanges: keys, then `MEASURES`."""
    text = f"; {NONE} where there is none; null when summed over"
    keys = {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "step": Column(_I64, f"step; {_SHARED}", nullable=True),
        "layer": Column(pl.Int32(), f"layer; {_SHARED}", nullable=True),
        "phase": Column(pl.String(), f"phase{text}", nullable=True),
        "role": Column(pl.String(), f"dispatch or combine{text}", nullable=True),
        "axis": Column(pl.String(), "parallelism axis; null when summed over", nullable=True),
        "group_key": Column(pl.String(), f"identity of the group; {_SHARED}", nullable=True),
        "group_size": Column(pl.Int32(), f"members of the group; {_SHARED}", nullable=True),
        "size_bytes": Column(
            _I64, f"largest buffer of the exchange, up to a power of two; {_SHARED}", "bytes", nullable=True
        ),
        "collective": Column(pl.String(), "kind of exchange; null when summed over", nullable=True),
    }
    return Table(name, doc, keys | MEASURES)
