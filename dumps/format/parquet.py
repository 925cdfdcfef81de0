"""Parquet in memory: writing with chosen codes, reading with strict columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


class Columns:
    """The columns of ``schema`` in a Parquet file, read one at a time and in the types of ``schema``.

    Raises:
        ValueError: here or later: not Parquet, a column missing or of another type, or a null where
            none may be.
    """

    def __init__(self, data: bytes, schema: pa.Schema) -> None:
        self.schema = schema
        with _reading():
            self._file = pq.ParquetFile(pa.BufferReader(data))
            self._names = list(self._file.schema_arrow.names)
            self._types = {field.name: field.type for field in self._file.schema_arrow}
        for name in schema.names:
            if self._names.count(name) != 1:
                raise ValueError(f"the column {name!r} is missing or occurs twice")

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        field = self.schema.field(name)
        with _reading():
            column = self._file.read([name], use_threads=False).column(name)
            if len(column) != len(self):
                raise ValueError(f"the column {name!r} has {len(column)} lines of {len(self)}")
            return _column(column, field)

    def check_type(self, name: str) -> None:
        """Look at a column as far as its type needs it."""
        if self._types[name] != self.schema.field(name).type:
            self[name]


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, OverflowError) as error:
        # LookupError: pyarrow looks up names of the stored Arrow schema in the Parquet one.
        raise ValueError(f"not the Parquet file that it should be: {error}") from None


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
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


def valid(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Which lines of a column are not null, bool [lines]."""
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
