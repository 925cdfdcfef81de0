"""Records and rows as Parquet tables: the columns, and the way there and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import DTypeLike

from verify.dumps.format.schema import Input, Record, Rows

_code = pa.dictionary(pa.int32(), pa.string())
_input = pa.struct(
    [("kind", pa.string()), ("seq", pa.int64()), ("name", pa.string()), ("digest", pa.string())]
)
RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("tap", _code, nullable=False),
        pa.field("occurrence", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("axes", _code, nullable=False),
        pa.field("dtype", _code, nullable=False),
        pa.field("shape", pa.list_(pa.int64()), nullable=False),
        pa.field("strides", pa.list_(pa.int64()), nullable=False),
        pa.field("storage_offset", pa.int64(), nullable=False),
        pa.field("kept", _code, nullable=False),
        pa.field("same_as", pa.int64()),
        pa.field("inputs", pa.list_(_input), nullable=False),
        pa.field("ops", pa.list_(pa.string()), nullable=False),
        pa.field("attributes", pa.string(), nullable=False),
        pa.field("row_length", pa.int64(), nullable=False),
        pa.field("n_rows", pa.int64(), nullable=False),
        pa.field("carried", pa.int64(), nullable=False),
    ]
)
SKETCH_BUCKETS: Final = 16
STATISTICS: Final = ("max_abs", "sum", "sum_sq", "nan", "pos_inf", "neg_inf", "zero")
ROW_SCHEMA: Final = pa.schema(
    [
        pa.field("record", pa.int64(), nullable=False),
        pa.field("sequence", _code),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("visit", pa.int64(), nullable=False),
        pa.field("digest", pa.uint64(), nullable=False),
        pa.field("sketch", pa.list_(pa.float32(), SKETCH_BUCKETS)),
        *(pa.field(name, pa.float64()) for name in STATISTICS),
    ]
)
_RECORD_CODED: Final = ["tap", "axes", "dtype", "kept"]
_ROW_CODED: Final = ["record", "sequence", "position", "visit"]


def encode_records(records: list[Record]) -> pa.Buffer:
    """Parquet file of ``records``, one line each."""
    columns: dict[str, list[Any]] = {
        name: [getattr(record, name) for record in records]
        for name in RECORD_SCHEMA.names
        if name not in ("inputs", "attributes")
    }
    columns["inputs"] = [[msgspec.structs.asdict(i) for i in r.inputs] for r in records]
    columns["attributes"] = [msgspec.json.encode(r.attributes).decode() for r in records]
    arrays = [pa.array(columns[f.name], f.type) for f in RECORD_SCHEMA]
    return _to_parquet(pa.table(arrays, schema=RECORD_SCHEMA), _RECORD_CODED)


def encode_rows(blocks: Iterable[tuple[int, Rows]]) -> pa.Buffer:
    """Parquet file of the rows of several records, in the order given. Each is (seq, rows)."""
    blocks = [(seq, rows) for seq, rows in blocks if len(rows)]
    if not blocks:
        return _to_parquet(ROW_SCHEMA.empty_table(), _ROW_CODED)
    parts = [rows for _, rows in blocks]
    sequences = np.concatenate([np.asarray(rows.sequence, object) for rows in parts])
    arrays = [
        pa.array(np.repeat([seq for seq, _ in blocks], [len(rows) for rows in parts])),
        pa.array(sequences, pa.string()).dictionary_encode(),
        pa.array(np.concatenate([np.asarray(rows.position, np.int64) for rows in parts])),
        pa.array(np.concatenate([np.asarray(rows.visit, np.int64) for rows in parts])),
        pa.array(np.concatenate([np.asarray(rows.digest, np.uint64) for rows in parts])),
        _sketch_array(parts),
        *_statistics_arrays(parts),
    ]
    return _to_parquet(pa.table(arrays, schema=ROW_SCHEMA), _ROW_CODED)


def _sketch_array(parts: list[Rows]) -> pa.Array:
    sketches, absent = _stacked(parts, [rows.sketch for rows in parts], SKETCH_BUCKETS, np.float32)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(sketches.reshape(-1)), SKETCH_BUCKETS, mask=pa.array(absent)
    )


def _statistics_arrays(parts: list[Rows]) -> list[pa.Array]:
    values, absent = _stacked(
        parts, [rows.statistics for rows in parts], len(STATISTICS), np.float64
    )
    # from_pandas=False: a NaN is a value here, only ``absent`` lines are null.
    return [pa.array(column, mask=absent, from_pandas=False) for column in values.T.copy()]


def _stacked(
    parts: list[Rows], blocks: list[np.ndarray | None], width: int, dtype: DTypeLike
) -> tuple[np.ndarray, np.ndarray]:
    """The optional [rows, width] blocks of several records as one, and which lines are absent."""
    zeros = [np.zeros((len(rows), width), dtype) for rows in parts]
    filled = [z if b is None else np.asarray(b, dtype) for z, b in zip(zeros, blocks, strict=True)]
    absent = np.repeat([b is None for b in blocks], [len(rows) for rows in parts])
    return np.concatenate(filled), absent


def _to_parquet(table: pa.Table, coded: list[str]) -> pa.Buffer:
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


def decode_records(data: bytes) -> list[Record]:
    """Records of a Parquet file.

    Raises:
        ValueError: not Parquet, a column missing or of another type, a null, or an attribute that
            is not JSON (pyarrow's and msgspec's errors derive from it).
    """
    table = _from_parquet(data, RECORD_SCHEMA)
    lists = ("shape", "strides", "ops", "inputs", "attributes")
    names = [name for name in RECORD_SCHEMA.names if name not in lists]
    plain = [_plain(table, name) for name in names]
    inputs = _inputs(table.column("inputs"))
    nested = [_plain_lists(table.column(name)) for name in ("shape", "strides", "ops")]
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    attributes = [decode(text) if text != "{}" else {} for text in _plain(table, "attributes")]
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


@dataclass(frozen=True, slots=True)
class RowTable:
    """A whole rows.parquet as arrays, one entry a line."""

    record: np.ndarray
    """``seq`` of the record, int64 [lines]."""
    rows: Rows
    has_sketch: np.ndarray
    has_statistics: np.ndarray

    @property
    def nbytes(self) -> int:
        rows = self.rows
        columns = (self.record, rows.sequence, rows.position, rows.visit, rows.digest)
        wide = (rows.sketch, rows.statistics)
        return sum(c.nbytes for c in (*columns, *wide) if c is not None)

    def cut(self, start: int, stop: int) -> Rows:
        """Lines ``start:stop``, as views."""
        at, rows = slice(start, stop), self.rows
        sketch = rows.sketch is not None and self.has_sketch[at].all()
        statistics = rows.statistics is not None and self.has_statistics[at].all()
        return Rows(
            rows.sequence[at],
            rows.position[at],
            rows.visit[at],
            rows.digest[at],
            rows.sketch[at] if sketch and rows.sketch is not None else None,
            rows.statistics[at] if statistics and rows.statistics is not None else None,
        )


def decode_rows(data: bytes) -> RowTable:
    """Rows of a Parquet file.

    Raises:
        ValueError: as :func:`decode_records`.
    """
    table = _from_parquet(data, ROW_SCHEMA).unify_dictionaries().combine_chunks()
    statistics = [table.column(name) for name in STATISTICS]
    rows = Rows(
        sequence=_sequences(table.column("sequence")),
        position=_numbers(table.column("position")),
        visit=_numbers(table.column("visit")),
        digest=_numbers(table.column("digest")),
        sketch=_sketches(table.column("sketch")),
        statistics=np.stack([_numbers(column) for column in statistics], axis=1),
    )
    has_statistics = np.logical_and.reduce([_valid(column) for column in statistics])
    return RowTable(
        _numbers(table.column("record")), rows, _valid(table.column("sketch")), has_statistics
    )


def _from_parquet(data: bytes, schema: pa.Schema) -> pa.Table:
    coded = [f.name for f in schema if pa.types.is_dictionary(f.type)]
    try:
        table = pq.read_table(pa.BufferReader(data), read_dictionary=coded, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"not a Parquet file: {error}") from None
    columns = [_column(table, field) for field in schema]
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if table.schema.get_all_field_indices(field.name) == []:
        raise ValueError(f"the column {field.name!r} is missing")
    column = table.column(field.name)
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            raise ValueError(f"the column {field.name!r} has another type: {error}") from None
    if not field.nullable and (column.null_count or _inner_nulls(column)):
        raise ValueError(f"the column {field.name!r} holds nulls")
    return column


def _inner_nulls(column: pa.ChunkedArray) -> bool:
    """Whether an element of a list, or the text behind a code, is null."""
    if pa.types.is_dictionary(column.type):
        return any(chunk.dictionary.null_count for chunk in column.chunks)
    return pa.types.is_list(column.type) and any(c.values.null_count for c in column.chunks)


def _plain(table: pa.Table, name: str) -> list[Any]:
    return list(table.column(name).to_pylist())


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy())


def _valid(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.is_valid().to_numpy())


def _plain_lists(column: pa.ChunkedArray) -> list[list[Any]]:
    """As ``to_pylist``, several times faster for many short lists."""
    return [found for chunk in column.chunks for found in _split(chunk, _values(chunk))]


def _values(chunk: pa.ListArray) -> list[Any]:
    return list(chunk.values.to_pylist())


def _split(chunk: pa.ListArray, values: list[Any]) -> Iterator[list[Any]]:
    return (values[a:b] for a, b in pairwise(chunk.offsets.to_pylist()))


def _inputs(column: pa.ChunkedArray) -> list[list[Input]]:
    found: list[list[Input]] = []
    for chunk in column.chunks:
        fields = [chunk.values.field(name).to_pylist() for name in _INPUT_FIELDS]
        values = [_input_of(*line) for line in zip(*fields, strict=True)]
        found.extend(_split(chunk, values))
    return found


_INPUT_FIELDS: Final = ("kind", "seq", "name", "digest")
_INPUT_KINDS: Final = frozenset(("record", "weight", "value", "unknown"))


def _input_of(kind: Any, seq: int | None, name: str | None, digest: str | None) -> Input:
    if kind not in _INPUT_KINDS or (kind == "record") != (seq is not None):
        raise ValueError(f"an input has kind {kind!r} and seq {seq!r}")
    return Input(kind=kind, seq=seq, name=name, digest=digest)


def _sequences(column: pa.ChunkedArray) -> np.ndarray:
    """Object array of ids, None for padding."""
    if column.num_chunks == 0:
        return np.zeros(0, object)
    codes = column.chunk(0)
    known = np.array([*codes.dictionary.to_pylist(), None], dtype=object)
    at = codes.indices.fill_null(len(known) - 1).to_numpy()
    return np.asarray(known[at])


def _sketches(column: pa.ChunkedArray) -> np.ndarray | None:
    """float32 [lines, buckets]; None when no line has one, zeros on lines without."""
    if column.null_count == len(column):
        return None
    chunk = column.chunk(0)
    first = chunk.offset * SKETCH_BUCKETS
    values = np.asarray(chunk.values.to_numpy(zero_copy_only=False))
    return values[first : first + len(chunk) * SKETCH_BUCKETS].reshape(-1, SKETCH_BUCKETS)
