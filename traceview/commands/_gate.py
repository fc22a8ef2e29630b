"""Conditions for continuous integration: ``--fail-on`` what must not hold, ``--gate`` what must."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from traceview.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from traceview.schema import Table

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONDITION = re.compile(rf"\s*([A-Za-z_]\w*)\s*({'|'.join(_OPERATORS)})\s*({_NUMBER})\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """``column operator number``, as the user wrote it in ``text``."""

    text: str
    column: str
    operator: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The condition ``text`` spells; None if it spells none."""
        match = _CONDITION.fullmatch(text)
        return cls(text.strip(), match[1], match[2], float(match[3])) if match else None

    def check(self, table: Table, option: str = "--fail-on") -> None:
        """Makes sure the condition can be tested on ``table``.

        Raises:
            UsageError: It has no such column of numbers; ``option`` is the one that asked for it.
        """
        numeric = [name for name, column in table.columns.items() if column.dtype.is_numeric()]
        if self.column not in numeric:
            message = f"{option}: '{self.column}' is no column to test; there are: {', '.join(numeric)}."
            raise UsageError(message)

    def unmet(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows in which the condition does not hold; of an unknown value nobody can say that it does."""
        value = frame[self.column]
        return frame.filter(~_OPERATORS[self.operator](value, self.threshold) | value.is_null())

    def offending(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows in which the condition holds; unknown values never do."""
        value = frame[self.column]
        return frame.filter(_OPERATORS[self.operator](value, self.threshold) & value.is_not_null())
