"""All rows of a dump as arrays: what alignment, comparison and bisection work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record, Rows
from verify.dumps.summaries import STATISTICS

PADDING = -1
"""Sequence code of rows that belong to no sequence."""

_SUM_SQ = STATISTICS.index("sum_sq")


class Names:
    """Codes for names, shared by the two runs of a comparison."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}

    def code(self, name: Any) -> int:
        return self.codes.setdefault(name, len(self.codes))

    def names(self) -> list[Any]:
        return list(self.codes)


@dataclass(slots=True)
class RowIndex:
    """Rows of one run in execution order, one entry a row."""

    dump: Dump
    records: list[Record]
    """In execution order; ``record`` counts in this list."""
    sequences: list[str]
    """Name of each sequence code."""
    record: NDArray[np.int32]
    row: NDArray[np.int64]
    """Row number in the row matrix of its record."""
    sequence: NDArray[np.int32]
    position: NDArray[np.int64]
    visit: NDArray[np.int64]
    digest: NDArray[np.uint64]
    sum_sq: NDArray[np.float64]
    """Sum of squares of the finite elements; NaN where no statistics were kept."""
    starts: NDArray[np.int64]
    """First entry of each record, and the number of entries at the end."""

    def __len__(self) -> int:
        return len(self.record)

    def entries(self, record: int) -> slice:
        """The entries of one record (by its place in ``records``)."""
        return slice(int(self.starts[record]), int(self.starts[record + 1]))

    def name(self, entry: int) -> str:
        """One row in words."""
        code = int(self.sequence[entry])
        sequence = "padding" if code == PADDING else self.sequences[code]
        visit = int(self.visit[entry])
        again = f", visit {visit}" if visit else ""
        place = f"position {self.position[entry]}" if self.position[entry] >= 0 else "whole tensor"
        return f"{sequence + ' ' if sequence else ''}{place}{again}"


def index_rows(dump: Dump, sequences: Names) -> RowIndex:
    """Read the row identities of a whole dump (about 60 bytes a row).

    Args:
        sequences: codes shared with the run that this one is compared with; it grows.

    Raises:
        CorruptDumpError: rows are not what was stored.
    """
    records = dump.records()
    parts = [dump.rows(record) for record in records]
    lengths = np.fromiter((len(rows) for rows in parts), np.int64, len(parts))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    every = parts or [_no_rows()]
    return RowIndex(
        dump=dump,
        records=records,
        sequences=[],
        record=np.repeat(np.arange(len(parts), dtype=np.int32), lengths),
        row=np.arange(starts[-1]) - np.repeat(starts[:-1], lengths),
        sequence=_sequence_codes(every, sequences),
        position=np.concatenate([rows.position for rows in every]).astype(np.int64),
        visit=np.concatenate([rows.visit for rows in every]).astype(np.int64),
        digest=np.concatenate([rows.digest for rows in every]).astype(np.uint64),
        sum_sq=np.concatenate([_sum_sq(rows) for rows in every]),
        starts=starts,
    )


def _sequence_codes(parts: list[Rows], sequences: Names) -> NDArray[np.int32]:
    coded = pa.array(np.concatenate([rows.sequence for rows in parts]), pa.string())
    coded = coded.dictionary_encode()
    shared = [sequences.code(name) for name in coded.dictionary.to_pylist()]
    table = np.array([*shared, PADDING], np.int32)
    at = coded.indices.fill_null(len(shared)).to_numpy(zero_copy_only=False)
    return np.asarray(table[at])


def _no_rows() -> Rows:
    none = np.zeros(0, np.int64)
    return Rows(np.zeros(0, object), none, none, np.zeros(0, np.uint64))


def _sum_sq(rows: Rows) -> NDArray[np.float64]:
    if rows.statistics is None:
        return np.full(len(rows), np.nan)
    return np.asarray(rows.statistics[:, _SUM_SQ], np.float64)
