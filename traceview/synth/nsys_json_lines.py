"""The tables of an Nsight Systems export as JSON lines: a row per line, with its table's name.

Source: NVIDIA's user guide on the export type ``jsonlines``. No public export of that kind was seen: that
nulls are left out of a row, and that payloads are, is assumed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from traceview.synth.nsys_tables import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceview.synth.nsys_tables import Tables


def lines(tables: Tables) -> bytes:
    """The content of the file."""
    return "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in _rows(tables)).encode()


def _rows(tables: Tables) -> Iterator[dict[str, object]]:
    for table, rows in tables.items():
        names = [column.name for column in COLUMNS[table] if column.kind != "blob"]
        for row in rows:
            yield {"table": table} | {name: row[name] for name in names if row.get(name) is not None}
