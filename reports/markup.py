"""Trace-derived text as it may stand in HTML: bounded, and with nothing that hides or reorders it."""

from __future__ import annotations

import re

from traceview.reports.printable import printable

LETTERS, TOOLTIP_LETTERS = 120, 400
"""Letters of a name on the page, and of one that the pointer rests on."""

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|[kMGT]?B)(?:$|\W))")


def shown(text: object, letters: int = LETTERS) -> str:
    """``text`` with nothing that hides or reorders it, cut at ``letters``; numbers keep their units.

    It is not escaped yet: that is the last step of whoever writes the tags.
    """
    safe = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", printable(str(text)[: letters + 1]))
    return safe if len(safe) <= letters else f"{safe[: letters - 1]}…"


def tooltip(text: str, hint: str = "") -> str:
    """What is to be read when the pointer rests on ``text``; empty where the page shows it whole."""
    full = hint or str(text)
    return shown(full, TOOLTIP_LETTERS) if len(full) > LETTERS or (hint and hint != text) else ""
