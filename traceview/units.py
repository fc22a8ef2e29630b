"""Numbers to text; the only place that formats them. Results stay in ns, bytes and ratios until here."""

from __future__ import annotations

import math

_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
MISSING = "–"


def duration(ns: float | None) -> str:
    """Nanoseconds with a fitting unit, three significant digits: ``4.16 ms``."""
    return _scaled(ns, _TIME)


def size(count: float | None) -> str:
    """Bytes with a decimal unit, three significant digits: ``1.27 MB``."""
    return _scaled(count, _SIZE)


def percent(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal: ``96.3 %``; unknown is a dash, never 0."""
    return MISSING if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f} %"


def percent_value(ratio: float | None) -> str:
    """A ratio as a bare percentage, for a column whose header carries the unit: ``96.3``."""
    return percent(ratio).removesuffix(" %")


def milliseconds(ns: float | None) -> str:
    """Nanoseconds as bare milliseconds, for a column whose header carries the unit."""
    return MISSING if ns is None else significant(ns / 1e6)


def significant(value: float, digits: int = 3) -> str:
    """``value`` with at least ``digits`` significant digits and no exponent: ``0.0123``, ``1,234``."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    # digits are counted on the rounded figure, so 9.996 reads "10.0" and not "10.00"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{decimals}f}"


def fixed(value: float | None, decimals: int, *, signed: bool = False) -> str:
    """``value`` with so many decimals, for columns in which rows are added or compared: ``1,234.50``.

    Args:
        value: What to show; unknown is a dash, never 0.
        decimals: Digits after the point.
        signed: Whether a positive value has its sign.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    is_zero = not any(digit in "123456789" for digit in text)
    return text.lstrip("+-") if is_zero else text


def count(number: int | None) -> str:
    """A count with thousands separated: ``12,345``; unknown is a dash."""
    return MISSING if number is None else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """``1 rank``, ``8 ranks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def numbers(values: list[int] | tuple[int, ...]) -> str:
    """Ascending integers with neighbours joined: ``0-7, 12``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], value]
        else:
            runs.append([value])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    # the unit is chosen for the rounded figure, so 999.6 µs reads "1.00 ms" and not "1,000 µs"
    scale, unit = next(((s, u) for s, u in units if abs(value) >= 0.9995 * s), units[-1])
    return f"{significant(value / scale)} {unit}"
