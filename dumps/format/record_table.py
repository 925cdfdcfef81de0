"""records.parquet: its columns, and the way there (record_columns.py: the way back)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from verify.dumps.format.parquet import CODE, to_parquet
from verify.dumps.format.schema import Record

if TYPE_CHECKING:
    from verify.dumps.format.block import Block

_input = pa.struct(
    [("kind", pa.string()), ("seq", pa.int64()), ("name", pa.string()), ("digest", pa.string())]
)
RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("tap", CODE, nullable=False),
        pa.field("occurrence", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("axes", CODE, nullable=False),
        pa.field("dtype", CODE, nullable=False),
        pa.field("shape", pa.list_(pa.int64()), nullable=False),
        pa.field("strides", pa.list_(pa.int64()), nullable=False),
        pa.field("storage_offset", pa.int64(), nullable=False),
        pa.field("kept", CODE, nullable=False),
        pa.field("same_as", pa.int64()),
        pa.field("inputs", pa.list_(_input), nullable=False),
        pa.field("ops", pa.list_(pa.string()), nullable=False),
        pa.field("attributes", pa.string(), nullable=False),
        pa.field("row_length", pa.int64(), nullable=False),
        pa.field("n_rows", pa.int64(), nullable=False),
        pa.field("carried", pa.int64(), nullable=False),
    ]
)
_CODED: Final = ["tap", "axes", "dtype", "kept"]


def encode_records(parts: Sequence[Record | Block]) -> pa.Buffer:
    """Parquet file of the records and blocks of records in ``parts``, one line a record."""
    tables: list[pa.Table] = []
    single: list[Record] = []
    for part in parts:
        if isinstance(part, Record):
            single.append(part)
            continue
        if single:
            tables.append(record_table(single))
            single = []
        tables.append(part.table())
    if single:
        tables.append(record_table(single))
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    return to_parquet(table.unify_dictionaries().combine_chunks(), _CODED)


def record_table(records: list[Record]) -> pa.Table:
    """The lines of ``records``."""
    columns: dict[str, list[Any]] = {
        name: [getattr(record, name) for record in records]
        for name in RECORD_SCHEMA.names
        if name not in ("inputs", "attributes")
    }
    columns["inputs"] = [[msgspec.structs.asdict(i) for i in r.inputs] for r in records]
    columns["attributes"] = [msgspec.json.encode(r.attributes).decode() for r in records]
    arrays = [pa.array(columns[f.name], f.type) for f in RECORD_SCHEMA]
    return pa.table(arrays, schema=RECORD_SCHEMA)
