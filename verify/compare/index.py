"""All rows of a dump as arrays: what alignment, comparison and bisection work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.summaries import STATISTICS

PADDING = -1
"""Sequence code of rows that belong to no sequence."""

_SUM_SQ = STATISTICS.index("sum_sq")
_FEW = 16  # names that a loop codes faster than Arrow


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
    lengths = np.fromiter((record.n_rows for record in records), np.int64, len(records))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(starts[-1])
    index = RowIndex(
        dump=dump,
        records=records,
        sequences=[],
        record=np.repeat(np.arange(len(records), dtype=np.int32), lengths),
        row=np.arange(total) - np.repeat(starts[:-1], lengths),
        sequence=np.empty(total, np.int32),
        position=np.empty(total, np.int64),
        visit=np.empty(total, np.int64),
        digest=np.empty(total, np.uint64),
        sum_sq=np.empty(total),
        starts=starts,
    )
    for number, record in enumerate(records):
        # Copied at once: views would keep all tables of rows in memory.
        at, rows = index.entries(number), dump.rows(record)
        index.sequence[at] = _sequence_codes(rows.sequence, sequences)
        index.position[at] = rows.position
        index.visit[at] = rows.visit
        index.digest[at] = rows.digest
        index.sum_sq[at] = np.nan if rows.statistics is None else rows.statistics[:, _SUM_SQ]
    dump.forget_rows()
    pa.default_memory_pool().release_unused()
    return index


def _sequence_codes(names: NDArray[Any], sequences: Names) -> list[int] | NDArray[np.int32]:
    if len(names) <= _FEW:
        return [PADDING if name is None else sequences.code(name) for name in names]
    coded = pa.array(names, pa.string()).dictionary_encode()
    shared = [sequences.code(name) for name in coded.dictionary.to_pylist()]
    table = np.array([*shared, PADDING], np.int32)
    at = coded.indices.fill_null(len(shared)).to_numpy(zero_copy_only=False)
    return np.asarray(table[at])
