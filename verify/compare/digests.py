"""Rows of which a run kept no words: which digests differ, and by how much, as sketches tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment
from verify.compare.index import RowIndex

_ROWS: Final = 1 << 16
"""Sketches that are read at a time, 64 bytes a run each."""


@dataclass(slots=True)
class DigestRows:
    """One entry a matched row; False and 0 where it was not compared by digest."""

    differing: NDArray[np.bool_]
    diff_sq: NDArray[np.float64]
    """||b - a||^2 as the sketches estimate it (docs/digests.md); NaN where none were kept."""

    @classmethod
    def of(cls, alignment: Alignment, compared: NDArray[np.bool_]) -> DigestRows:
        """Compare the digests of the matched rows ``compared``.

        Raises:
            CorruptDumpError: a table of rows is not what was stored.
        """
        a, b = alignment.a, alignment.b
        differing = a.digest[alignment.rows_a] != b.digest[alignment.rows_b]
        differing &= compared
        full = a.full[a.record[alignment.rows_a]]
        full &= b.full[b.record[alignment.rows_b]]
        differing &= ~full
        found = cls(differing, np.zeros(len(differing)))
        found._measure(alignment)
        return found

    def _measure(self, alignment: Alignment) -> None:
        a, b = alignment.a, alignment.b
        at = np.flatnonzero(self.differing)
        self.diff_sq[at] = np.nan
        kept = a.has_sketch[alignment.rows_a[at]] & b.has_sketch[alignment.rows_b[at]]
        at = at[kept]
        # In A's order, so that the tables of both runs are read from front to back.
        at = at[np.argsort(alignment.rows_a[at])]
        for start in range(0, len(at), _ROWS):
            some = at[start : start + _ROWS]
            difference = _sketches(b, alignment.rows_b[some]).astype(np.float64)
            difference -= _sketches(a, alignment.rows_a[some])
            self.diff_sq[some] = np.einsum("ij,ij->i", difference, difference)


def _sketches(index: RowIndex, entries: NDArray[np.int64]) -> NDArray[np.float32]:
    return index.dump.sketches(index.record[entries], index.rows(entries))
