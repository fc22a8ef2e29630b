"""The tables of an Nsight Systems export as Parquet files, as Arrow streams, and as one file of streams.

Source: exports of nsys 2023.4: Parquet is not compressed, has one row group and no metadata, and widens most
32-bit numbers; Arrow is the stream format, with the table's name in the metadata of the schema.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from traceview.synth.nsys_tables import COLUMNS, values

if TYPE_CHECKING:
    import pyarrow as pa

    from traceview.synth.nsys_tables import Column, Tables

_PARQUET_NUMBERS = {"uint32": "int64"}
_OTHERS = {"text": "string", "blob": "binary"}


def parquet_files(tables: Tables) -> dict[str, bytes]:
    """Content by file name: one Parquet file per table."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - heavy, and few exports are written as Parquet

    files = {}
    for name, table in _arrow_tables(tables, _PARQUET_NUMBERS).items():
        file = io.BytesIO()
        options = {"compression": "none", "store_schema": False, "use_dictionary": False}
        pq.write_table(table.replace_schema_metadata(None), file, **options)
        files[f"{name}.parquet"] = file.getvalue()
    return files


def arrow_files(tables: Tables) -> dict[str, bytes]:
    """Content by file name: one Arrow stream per table."""
    return {f"{name}.arrow": _stream(table) for name, table in _arrow_tables(tables, {}).items()}


def streams(tables: Tables) -> bytes:
    """The content of one file: an Arrow stream per table, one after the other."""
    return b"".join(map(_stream, _arrow_tables(tables, {}).values()))


def _arrow_tables(tables: Tables, narrow: dict[str, str]) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and few exports are written as Arrow

    return {
        name: pa.table(
            values(name, rows),
            pa.schema([_field(column, narrow) for column in COLUMNS[name]], {"table_name": name}),
        )
        for name, rows in tables.items()
        if rows
    }


def _field(column: Column, narrow: dict[str, str]) -> pa.Field:
    import pyarrow as pa  # noqa: PLC0415 - as above

    kind = (_OTHERS | narrow).get(column.kind, column.kind)
    return pa.field(column.name, pa.type_for_alias(kind), nullable=not column.required)


def _stream(table: Any) -> bytes:  # noqa: ANN401 - pyarrow is untyped
    import pyarrow as pa  # noqa: PLC0415 - as above

    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()
