"""Parquet in memory: writing with chosen codes, reading with strict columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CODE: Final = pa.dictionary(pa.int32(), pa.string())
"""A string column that holds few different values."""


def to_parquet(table: pa.Table, coded: list[str]) -> pa.Buffer:
    """A Parquet file of ``table``; the columns ``coded`` are stored as dictionary codes."""
    sink = pa.BufferOutputStream()
    # Level 1: digests and sketches are noise to a compressor, the rest is dictionary codes.
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=coded,
        write_statistics=False,
    )
    return sink.getvalue()


def from_parquet(data: bytes, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema`` out of a Parquet file, in the types of ``schema``.

    Raises:
        ValueError: not Parquet, a column missing or of another type, or a null where none may be.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        columns = [_column(table, field) for field in schema]
    except (OSError, pa.ArrowException, LookupError, OverflowError) as error:
        # LookupError: pyarrow looks up names of the stored Arrow schema in the Parquet one.
        raise ValueError(f"not the Parquet file that it should be: {error}") from None
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if len(table.schema.get_all_field_indices(field.name)) != 1:
        raise ValueError(f"the column {field.name!r} is missing or occurs twice")
    column = table.column(field.name)
    if column.type != field.type:
        column = _converted(column, field)
    if not field.nullable and (column.null_count or _inner_nulls(column)):
        raise ValueError(f"the column {field.name!r} holds nulls")
    return column


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The column in the type of ``field``: other writers choose other integer and string types."""
    try:
        if pa.types.is_dictionary(field.type):
            return column.cast(pa.string()).dictionary_encode()
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise ValueError(f"the column {field.name!r} has another type: {error}") from None


def _inner_nulls(column: pa.ChunkedArray) -> bool:
    """Whether an element of a list, or the text behind a code, is null."""
    if pa.types.is_dictionary(column.type):
        return any(chunk.dictionary.null_count for chunk in column.chunks)
    return pa.types.is_list(column.type) and any(c.values.null_count for c in column.chunks)


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers without nulls."""
    return np.asarray(column.to_numpy())


def valid(column: pa.ChunkedArray) -> np.ndarray:
    """Which lines of a column are not null, bool [lines]."""
    return np.asarray(column.is_valid().to_numpy())
