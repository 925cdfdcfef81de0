"""rows.parquet: its columns, and the way there and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from verify.dumps.format.parquet import CODE, Columns, numbers, to_parquet, valid
from verify.dumps.format.records import small
from verify.dumps.format.schema import Rows
from verify.dumps.summaries import BUCKETS, STATISTICS

ROW_SCHEMA: Final = pa.schema(
    [
        pa.field("record", pa.int64(), nullable=False),
        pa.field("sequence", CODE),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("visit", pa.int64(), nullable=False),
        pa.field("digest", pa.uint64(), nullable=False),
        # Of BUCKETS numbers each. Not a list of fixed size: pyarrow before 26 cannot read one in
        # which a line is null.
        pa.field("sketch", pa.list_(pa.float32())),
        *(pa.field(name, pa.float64()) for name in STATISTICS),
    ]
)
_LARGE: Final = 1 << 20
_CODED: Final = ["record", "sequence", "position", "visit"]


def encode_rows(blocks: Iterable[tuple[int | np.ndarray, Rows]]) -> pa.Buffer:
    """Parquet file of the rows of several records, in the order given. Each is (seq, rows); or the
    seq of each row, for rows of several records."""
    blocks = [(seq, rows) for seq, rows in blocks if len(rows)]
    if not blocks:
        return to_parquet(ROW_SCHEMA.empty_table(), _CODED)
    parts = [rows for _, rows in blocks]
    sequences = np.concatenate([np.asarray(rows.sequence, object) for rows in parts])
    arrays = [
        pa.array(np.concatenate([np.broadcast_to(seq, len(rows)) for seq, rows in blocks])),
        pa.array(sequences, pa.string()).dictionary_encode(),
        pa.array(np.concatenate([np.asarray(rows.position, np.int64) for rows in parts])),
        pa.array(np.concatenate([np.asarray(rows.visit, np.int64) for rows in parts])),
        pa.array(np.concatenate([np.asarray(rows.digest, np.uint64) for rows in parts])),
        _sketch_array(parts),
        *_statistics_arrays(parts),
    ]
    return to_parquet(pa.table(arrays, schema=ROW_SCHEMA), _CODED)


def _sketch_array(parts: list[Rows]) -> pa.Array:
    if all(rows.sketch is None for rows in parts):
        return pa.nulls(sum(map(len, parts)), pa.list_(pa.float32(), BUCKETS))
    sketches, absent = _stacked(parts, [rows.sketch for rows in parts], BUCKETS, np.float32)
    ends = np.cumsum(np.where(absent, 0, BUCKETS), dtype=np.int32)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    values = pa.array(sketches[~absent].reshape(-1))
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(absent))


def _statistics_arrays(parts: list[Rows]) -> list[pa.Array]:
    if all(rows.statistics is None for rows in parts):
        return [pa.nulls(sum(map(len, parts)), pa.float64())] * len(STATISTICS)
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


@dataclass(frozen=True, slots=True)
class RowTable:
    """A whole rows.parquet as arrays, one entry a line."""

    record: np.ndarray
    """``seq`` of the record, int64 [lines]."""
    sequence: np.ndarray
    """Place in ``names``, int32 [lines]; the last one is padding."""
    names: list[str | None]
    position: np.ndarray
    visit: np.ndarray
    digest: np.ndarray
    sketch: np.ndarray | None
    statistics: np.ndarray | None
    has_sketch: np.ndarray
    has_statistics: np.ndarray

    @classmethod
    def of(cls, rows: Rows, seq: int) -> RowTable:
        """The rows of one record."""
        coded = pa.array(rows.sequence, pa.string()).dictionary_encode()
        every = np.ones(len(rows), np.bool_)
        return cls(
            np.full(len(rows), seq, np.int64),
            *_sequences(coded),
            rows.position,
            rows.visit,
            rows.digest,
            rows.sketch,
            rows.statistics,
            every if rows.sketch is not None else ~every,
            every if rows.statistics is not None else ~every,
        )

    def __len__(self) -> int:
        return len(self.record)

    @property
    def nbytes(self) -> int:
        columns = (self.record, self.sequence, self.position, self.visit, self.digest)
        return sum(c.nbytes for c in (*columns, self.sketch, self.statistics) if c is not None)

    def cut(self, start: int, stop: int) -> Rows:
        """Lines ``start:stop``; identities are copied, the rest are views."""
        at = slice(start, stop)
        sketch = self.sketch is not None and self.has_sketch[at].all()
        statistics = self.statistics is not None and self.has_statistics[at].all()
        return Rows(
            np.array(self.names, dtype=object)[self.sequence[at]],
            self.position[at].astype(np.int64),
            self.visit[at].astype(np.int64),
            self.digest[at],
            self.sketch[at] if sketch and self.sketch is not None else None,
            self.statistics[at] if statistics and self.statistics is not None else None,
        )


def decode_rows(data: bytes) -> RowTable:
    """Rows of a Parquet file.

    Raises:
        ValueError: not Parquet, a column missing or of another type, a null where none may be, or
            a sketch of another size.
    """
    table = Columns(data, ROW_SCHEMA)
    sequences = table["sequence"].unify_dictionaries().combine_chunks()
    statistics, has_statistics = _statistics(table)
    sketches = table["sketch"].combine_chunks()
    found = RowTable(
        small(numbers(table["record"])),
        *_sequences(sequences),
        position=small(numbers(table["position"])),
        visit=small(numbers(table["visit"])),
        digest=numbers(table["digest"]),
        sketch=_sketches(sketches),
        statistics=statistics,
        has_sketch=valid(sketches),
        has_statistics=has_statistics,
    )
    if len(data) > _LARGE:  # the pool would keep several times the size of the table
        del table, sequences, sketches
        pa.default_memory_pool().release_unused()
    return found


def _statistics(table: Columns) -> tuple[np.ndarray | None, np.ndarray]:
    """[lines, statistics], or None where no line has them; and which lines have them."""
    has = valid(table[STATISTICS[0]])
    for name in STATISTICS[1:]:
        if not has.any():  # as in every dump of digests alone: nothing to read
            table.check_type(name)
    if not has.any():
        return None, has
    found = np.empty((len(table), len(STATISTICS)))
    for place, name in enumerate(STATISTICS):
        column = table[name]
        found[:, place] = numbers(column)
        has = has & valid(column)
    return found, has


def _sequences(column: pa.DictionaryArray) -> tuple[np.ndarray, list[str | None]]:
    """Codes, and the names that they stand for; the last one is None, for padding."""
    names = [*column.dictionary.to_pylist(), None]
    codes = column.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, np.int32), names


def _sketches(column: pa.ListArray) -> np.ndarray | None:
    """float32 [lines, buckets]; None when no line has one, zeros on lines without."""
    if column.null_count == len(column):
        return None
    present = valid(column)
    lengths = np.diff(np.asarray(column.offsets.to_numpy()))
    values = column.flatten()
    if values.null_count or (lengths[present] != BUCKETS).any():
        raise ValueError(f"a sketch does not hold {BUCKETS} numbers")
    found = np.zeros((len(column), BUCKETS), np.float32)
    found[present] = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, BUCKETS)
    return found
