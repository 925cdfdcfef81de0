"""All rows of a dump as arrays: what alignment, comparison and bisection work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.records import Records, small
from verify.dumps.format.row_table import RowTable
from verify.dumps.format.schema import Record
from verify.dumps.summaries import STATISTICS

PADDING = -1
"""Sequence code of rows that belong to no sequence."""

_SUM_SQ = STATISTICS.index("sum_sq")

Numbers = NDArray[np.int64]


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
    """Rows of one run in execution order, one entry a row. Columns are integers of as few bytes as
    hold them, and take none where all rows agree."""

    dump: Dump
    records: Records
    """In execution order; ``record`` counts in this list."""
    sequences: list[str]
    """Name of each sequence code."""
    record: NDArray[np.int32]
    sequence: NDArray[np.int32]
    position: NDArray[Any]
    visit: NDArray[Any]
    digest: NDArray[np.uint64]
    sum_sq: NDArray[np.float64]
    """Sum of squares of the finite elements; NaN where no statistics were kept."""
    starts: NDArray[Any]
    """First entry of each record, and the number of entries at the end."""
    full: NDArray[np.bool_]
    """For each record whether its words were kept."""
    has_sketch: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.record)

    def rows(self, entries: NDArray[Any]) -> NDArray[np.int64]:
        """Row numbers of entries in the row matrices of their records."""
        return np.asarray(entries - self.starts[self.record[entries]], np.int64)

    def entries_of(self, records: Numbers) -> Numbers | slice:
        """The entries of some records, in their order."""
        return _entries(self.starts, np.diff(self.starts), records)

    def entries(self, record: int) -> slice:
        """The entries of one record (by its place in ``records``)."""
        return slice(int(self.starts[record]), int(self.starts[record + 1]))

    def is_of(self, ask: Callable[[Record], bool]) -> NDArray[np.bool_]:
        """For each record whether ``ask`` holds (:meth:`Records.by_kind`), with a False behind the
        last, so that an index without records can be looked up as well."""
        return np.append(self.records.by_kind(ask), np.False_)

    def name(self, entry: int) -> str:
        """One row in words."""
        code = int(self.sequence[entry])
        sequence = "padding" if code == PADDING else self.sequences[code]
        visit = int(self.visit[entry])
        again = f", visit {visit}" if visit else ""
        place = f"position {self.position[entry]}" if self.position[entry] >= 0 else "whole tensor"
        return f"{sequence + ' ' if sequence else ''}{place}{again}"


def index_rows(dump: Dump, sequences: Names) -> RowIndex:
    """Read the row identities of a whole dump (about 24 bytes a row).

    Args:
        sequences: codes shared with the run that this one is compared with; it grows.

    Raises:
        CorruptDumpError: rows are not what was stored.
    """
    records = dump.table()
    lengths = records.by_kind(lambda kind: kind.n_rows, np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(starts[-1])
    columns = _Columns(total)
    for places, table in dump.row_tables():
        columns.fill(_entries(starts, lengths, places), table, sequences)
    holders = records.holders()
    same = np.flatnonzero(records.same_as != NOBODY)
    columns.repeat(_entries(starts, lengths, same), _entries(starts, lengths, holders[same]))
    pa.default_memory_pool().release_unused()
    full = records.by_kind(lambda kind: kind.kept == "full")
    return RowIndex(
        dump=dump,
        records=records,
        sequences=[],
        record=np.repeat(np.arange(len(records), dtype=np.int32), lengths),
        sequence=small(columns.sequence),
        position=small(columns.position),
        visit=small(columns.visit),
        digest=columns.digest,
        sum_sq=columns.sum_sq,
        starts=small(starts),
        full=full[holders],
        has_sketch=small(columns.has_sketch),
    )


def _entries(starts: Numbers, lengths: Numbers, records: Numbers) -> Numbers | slice:
    """The entries of some records, in their order."""
    if records.size and (np.diff(records) == 1).all():
        return slice(int(starts[records[0]]), int(starts[records[-1] + 1]))
    counts = lengths[records]
    shift = starts[:-1][records] - (np.cumsum(counts) - counts)
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(shift, counts))


class _Columns:
    """The columns of an index while it is filled, part by part."""

    def __init__(self, total: int) -> None:
        self.sequence = np.empty(total, np.int32)
        self.position = np.empty(total, np.int32)
        self.visit = np.zeros(total, np.int32)
        self.digest = np.empty(total, np.uint64)
        self.sum_sq = np.broadcast_to(np.float64(np.nan), total)
        self.has_sketch = np.zeros(total, np.bool_)

    def fill(self, at: Numbers | slice, table: RowTable, sequences: Names) -> None:
        """Copy the rows of a part: views would keep the tables of all parts in memory."""
        names = [PADDING if n is None else sequences.code(n) for n in table.names[:-1]]
        self.sequence[at] = np.array([*names, PADDING], np.int32)[table.sequence]
        self.position = _filled(self.position, at, table.position)
        self.visit = _filled(self.visit, at, table.visit)
        self.digest[at] = table.digest
        if table.statistics is not None:
            if not self.sum_sq.flags.writeable:
                self.sum_sq = np.full(len(self.digest), np.nan)
            self.sum_sq[at] = np.where(table.has_statistics, table.statistics[:, _SUM_SQ], np.nan)
        if table.sketch is not None:
            self.has_sketch[at] = table.has_sketch

    def repeat(self, at: Numbers | slice, held: Numbers | slice) -> None:
        """Copy the rows of holders to the records that repeat them."""
        for name in ("sequence", "position", "visit", "digest", "has_sketch", "sum_sq"):
            column = getattr(self, name)
            if column.flags.writeable:
                column[at] = column[held]


def _filled(column: NDArray[Any], at: Numbers | slice, values: NDArray[Any]) -> NDArray[Any]:
    """``column`` with ``values`` entered, in more bytes if they need them."""
    fits = np.iinfo(column.dtype)
    if values.min(initial=0) < fits.min or values.max(initial=0) > fits.max:
        column = column.astype(np.int64)
    column[at] = values
    return column
