"""Who reads which record in one run, and the rows of readers at the same places."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.marks import is_keyed
from verify.compare.index import RowIndex

Rows = NDArray[np.int64]


@dataclass(slots=True)
class RunEdges:
    """The recorded edges of a run, forwards."""

    index: RowIndex
    readers: dict[int, list[int]]
    """Record -> records that read it, by their places."""
    places: dict[tuple[int, int], int]
    at: Rows
    """Entry -> matched and compared row of the alignment, -1 without one."""
    has_edges: bool

    @classmethod
    def of(cls, index: RowIndex, rows: Rows, compared: NDArray[np.bool_]) -> RunEdges:
        places = {(r.rank, r.seq): number for number, r in enumerate(index.records)}
        readers: dict[int, list[int]] = defaultdict(list)
        for number, record in enumerate(index.records):
            for source in record.inputs:
                if source.kind == "record" and record.kept != "same":
                    readers[places[record.rank, source.seq or 0]].append(number)
        at = np.full(len(index), -1, np.int64)
        at[rows[compared]] = np.flatnonzero(compared)
        return cls(index, readers, places, at, bool(readers))

    def inputs(self, reader: int) -> list[int]:
        """The records that a record was computed from."""
        record = self.index.records[reader]
        return [
            self.places[record.rank, source.seq]
            for source in record.inputs
            if source.kind == "record" and source.seq is not None
        ]

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
