"""records.parquet: its columns, and the way there and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from verify.dumps.format.parquet import CODE, from_parquet, split, to_parquet
from verify.dumps.format.schema import Input, Record

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
_INPUT_FIELDS: Final = ("kind", "seq", "name", "digest")
_INPUT_KINDS: Final = frozenset(("record", "weight", "value", "unknown"))


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


def decode_records(data: bytes) -> list[Record]:
    """Records of a Parquet file.

    Raises:
        ValueError: not Parquet, a column missing or of another type, a null, or attributes
            that are not a JSON table.
    """
    table = from_parquet(data, RECORD_SCHEMA)
    lists = ("shape", "strides", "ops", "inputs", "attributes")
    names = [name for name in RECORD_SCHEMA.names if name not in lists]
    plain = [_plain(table, name) for name in names]
    inputs = _inputs(table.column("inputs"))
    nested = [_plain_lists(table.column(name)) for name in ("shape", "strides", "ops")]
    attributes = [_attributes(text) for text in _plain(table, "attributes")]
    return [
        Record(
            **dict(zip(names, values, strict=True)),
            shape=shape,
            strides=strides,
            ops=ops,
            inputs=found,
            attributes=extra,
        )
        for values, shape, strides, ops, found, extra in zip(
            zip(*plain, strict=True), *nested, inputs, attributes, strict=True
        )
    ]


def _plain(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    return [text for chunk in column.chunks for text in _texts(chunk)]


def _texts(chunk: pa.DictionaryArray) -> Iterator[str]:
    """Coded texts; lines with the same text share one object, since a dump has many records."""
    texts = chunk.dictionary.to_pylist()
    return (texts[code] for code in chunk.indices.to_pylist())


def _plain_lists(column: pa.ChunkedArray) -> list[list[Any]]:
    """As ``to_pylist``, several times faster for many short lists; equal lists share one object."""
    shared: dict[tuple[Any, ...], list[Any]] = {}
    return [
        shared.setdefault(tuple(found), found)
        for chunk in column.chunks
        for found in split(chunk, chunk.values.to_pylist())
    ]


def _attributes(text: str) -> dict[str, Any]:
    if text == "{}":
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the attributes {text[:60]!r} do not parse: {error}") from None


def _inputs(column: pa.ChunkedArray) -> list[list[Input]]:
    found: list[list[Input]] = []
    for chunk in column.chunks:
        fields = [chunk.values.field(name).to_pylist() for name in _INPUT_FIELDS]
        values = [_input_of(*line) for line in zip(*fields, strict=True)]
        found.extend(split(chunk, values))
    return found


def _input_of(kind: Any, seq: int | None, name: str | None, digest: str | None) -> Input:
    if kind not in _INPUT_KINDS or (kind == "record") != (seq is not None):
        raise ValueError(f"an input has kind {kind!r} and seq {seq!r}")
    return Input(kind=kind, seq=seq, name=name, digest=digest)
