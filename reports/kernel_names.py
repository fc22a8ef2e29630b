"""Names of kernels short enough for a line: what tells one from another comes first in them."""

from __future__ import annotations

import re

LETTERS = 56

_NOISE = re.compile(
    r"\b(?:void|auto) (?=[\w:])|\((?:int|bool|long|unsigned int|unsigned long)\)(?=\d)"
    r"|\(anonymous namespace\)::|<unnamed>::|(?<![\w:])(?:at::native|std|c10)::"
)
_MANGLED = re.compile(r"^_Z(?:N\w*?K?)?(?=\d)")
_PART = re.compile(r"(\d+)")


def short(name: str, letters: int = LETTERS) -> str:
    """``name`` without return type, parameters and common namespaces, cut to ``letters`` with a mark.

    Of a mangled name the namespaces and the function are kept, without what it was instantiated for.
    """
    plain = _readable(name) if name.startswith("_Z") else _without_parameters(name)
    told = _NOISE.sub("", plain).strip() or name
    return told if len(told) <= letters else f"{told[: letters - 1]}…"


def _without_parameters(name: str) -> str:
    """``name`` up to the parenthesis that opens its parameters, which are the last thing in it."""
    if not name.endswith(")"):
        return name
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if depth == 0:
            return name[:place] or name
    return name


def _readable(name: str) -> str:
    """Namespaces and function of a name mangled by the Itanium C++ rules; the name itself if it has none."""
    begin = _MANGLED.match(name)
    place, parts = (begin.end() if begin else len(name)), []
    while (length := _PART.match(name, place)) and len(length[1]) <= 4:
        end = length.end() + int(length[1])
        parts.append(name[length.end() : end])
        place = end
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N")) or name
