"""Numbers as traces write them, as integer columns: ids that may be text, stamps that must stay exact.

Decimal microseconds become int64 nanoseconds without passing through a float that cannot hold them (a
16-digit epoch stamp with three decimals does not fit in 53 bits).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from traceview.parsers._json_decode import Number

_FIRST_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)")
_U64 = 1 << 64


def integers(values: Sequence[Number]) -> pl.Series:
    """int64, from integers or the first integer of a text (``stream 7``, ``0x0``); null if there is none."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError):
        return pl.Series([_integer(value) for value in values], dtype=pl.Int64)


def _integer(value: Number) -> int | None:
    if isinstance(value, str):
        match = _FIRST_INTEGER.search(value)
        value = int(match[0], 0 if "x" in match[0].lower() else 10) if match else None
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    number = int(value)
    if (1 << 63) <= number < _U64:
        number -= _U64  # pthread ids and addresses are unsigned 64-bit: same bits, signed
    return number if -(1 << 63) <= number < (1 << 63) else None


def nanoseconds(stamps: Sequence[Any]) -> pl.Series:
    """int64 ns from microseconds given as numbers or as decimal text; null where there is no number."""
    if set(map(type, stamps)) <= {float, int, type(None)}:
        return _from_microseconds(np.array(stamps, dtype=np.float64))
    return _decimal_nanoseconds(stamps)


def _from_microseconds(us: npt.NDArray[np.float64]) -> pl.Series:
    known = np.abs(us) < 2.0**53  # false for NaN, which is what None became
    us = np.where(known, us, 0.0)
    # whole and fractional part apart: ts * 1000 in float64 would round 16-digit stamps
    whole = np.floor(us)
    ns = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    series = pl.Series(ns)
    return series if known.all() else pl.select(pl.when(pl.Series(known)).then(series)).to_series()


_DECIMAL = r"^\s*\"?\s*([+-]?\d{1,16})(?:\.(\d*))?\s*\"?\s*$"


def _decimal_nanoseconds(stamps: Sequence[Any]) -> pl.Series:
    """Exact ns from decimal text; numbers among the texts are taken as they print."""
    text = pl.Series([_stamp_text(stamp) for stamp in stamps], dtype=pl.String)
    whole, digits = (text.str.extract(_DECIMAL, group) for group in (1, 2))
    fraction = (digits.fill_null("") + "0000").str.slice(0, 4).cast(pl.Int64)
    sign = whole.str.starts_with("-").replace_strict({True: -1, False: 1}, return_dtype=pl.Int64)
    ns = whole.cast(pl.Int64) * 1000 + sign * ((fraction + 5) // 10)
    odd = text.is_not_null() & ns.is_null()  # exponents and the like
    if not odd.any():
        return ns
    parsed = _from_microseconds(text.str.strip_chars(' "').cast(pl.Float64, strict=False).to_numpy())
    return pl.select(pl.when(odd).then(parsed).otherwise(ns)).to_series()


def _stamp_text(stamp: Any) -> str | None:  # noqa: ANN401 - number, text or raw JSON
    if stamp is None or type(stamp) is str:
        return stamp
    if isinstance(stamp, msgspec.Raw):
        return bytes(stamp).decode("ascii", "replace") or None
    return repr(stamp)
