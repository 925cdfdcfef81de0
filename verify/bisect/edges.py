"""Who reads which record in one run, and the rows of readers at the same places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.marks import input_records, is_keyed
from verify.compare.index import RowIndex
from verify.dumps.format.input_lists import NOBODY

Rows = NDArray[np.int64]


@dataclass(slots=True)
class RunEdges:
    """The recorded edges of a run, forwards."""

    index: RowIndex
    at: Rows
    """Entry -> matched and compared row of the alignment, -1 without one."""
    has_edges: bool
    _read: Rows
    """Records that are read, ascending, and who reads them."""
    _by: Rows

    @classmethod
    def of(cls, index: RowIndex, rows: Rows, compared: NDArray[np.bool_]) -> RunEdges:
        by, read = index.records.edges()
        own = index.records.same_as[by] == NOBODY
        by, read = by[own], read[own]
        order = np.argsort(read, kind="stable")
        at = np.full(len(index), -1, np.min_scalar_type(-max(1, len(compared))))
        at[rows[compared]] = np.flatnonzero(compared)
        return cls(index, at, bool(len(by)), read[order], by[order])

    def readers(self, number: int) -> list[int]:
        """The records that read a record, in execution order."""
        at = slice(*np.searchsorted(self._read, [number, number + 1]))
        return list(dict.fromkeys(self._by[at].tolist()))

    def inputs(self, reader: int) -> list[int]:
        """The records that a record was computed from."""
        return input_records(self.index, self.index.records[reader])

    def same_rows(self, reader: int, entries: Rows) -> tuple[Rows, Rows]:
        """Which of ``entries`` have a compared row at the same place in record ``reader``, and
        that row (number in the alignment)."""
        nothing = np.zeros(0, np.int64)
        if is_keyed(self.index.records[reader]):
            return nothing, nothing
        own = self.index.entries(reader)
        there = np.arange(own.start, own.stop)[self.at[own] >= 0]
        if not there.size:
            return nothing, nothing
        keys = self._keys(there)
        order = np.argsort(keys)
        wanted = self._keys(entries)
        place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        found = np.flatnonzero(keys[order][place] == wanted)
        return found, self.at[there[order[place[found]]]]

    def _keys(self, entries: Rows) -> Rows:
        """One integer a row: its sequence and position."""
        limit = int(self.index.position.max(initial=0)) + 2
        keys = self.index.sequence[entries] * np.int64(limit) + self.index.position[entries] + 1
        return np.asarray(keys)
