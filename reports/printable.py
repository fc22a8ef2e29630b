"""Text from traces made safe to print: names are written by whoever wrote the traced program."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control, format (bidi overrides, zero-width), surrogate, line and paragraph breaks."""


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with every character that could steer a terminal, or hide or reorder text, replaced.

    Args:
        text: Anything, however hostile.
        keep: Characters to leave alone, such as the newlines of a finished page.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        REPLACEMENT if unicodedata.category(letter) in _UNSAFE and letter not in keep else letter
        for letter in text
    )
