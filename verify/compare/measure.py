"""What is measured of one tap, block by block, in memory that does not grow with the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.elements import Mask, Pairing, Words, floating_values
from verify.compare.histogram import RelativeCounts, UlpCounts
from verify.ulp import INCOMPARABLE

# Elements decoded at a time: the float64 temporaries stay in the cache.
_TILE = 1 << 15


@dataclass(slots=True)
class RowMeasures:
    """One entry a row of a block; rows that are bitwise equal hold zeros (and their norm)."""

    differing: NDArray[np.int64]
    """Elements that differ."""
    diff_sq: NDArray[np.float64]
    """||b - a||^2 over finite pairs."""
    ref_sq: NDArray[np.float64]
    """||a||^2 over finite pairs; NaN for equal rows whose norm nobody asked for."""
    max_ulp: NDArray[np.uint64]
    """Largest comparable ULP distance."""
    nonfinite: NDArray[np.int64]
    """Elements NaN or infinite on one side only, or different infinities."""

    @classmethod
    def zeros(cls, rows: int) -> RowMeasures:
        return cls(
            differing=np.zeros(rows, np.int64),
            diff_sq=np.zeros(rows),
            ref_sq=np.zeros(rows),
            max_ulp=np.zeros(rows, np.uint64),
            nonfinite=np.zeros(rows, np.int64),
        )

    def __setitem__(self, rows: Any, other: RowMeasures) -> None:
        for name in self.__slots__:
            getattr(self, name)[rows] = getattr(other, name)


class Measure:
    """Metrics of the rows of one tap between two formats, added block by block."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.ulps = UlpCounts()
        self.relative = RelativeCounts()
        self.elements = 0
        self.differing_elements = 0
        self.differing_rows = 0
        self.rows = 0
        self.max_abs = 0.0
        self.diff_sq = 0.0
        self.ref_sq = 0.0
        self.nonfinite = 0
        self.nan_payload_only = 0
        self.signed_zero_only = 0

    @property
    def relative_l2(self) -> float:
        """||b - a|| / ||a|| over finite pairs; inf where a is all zero and b is not."""
        if self.diff_sq == 0.0:
            return 0.0
        return math.sqrt(self.diff_sq / self.ref_sq) if self.ref_sq > 0.0 else math.inf

    def add(self, a: Words, b: Words, equal_ref_sq: NDArray[np.float64] | None) -> RowMeasures:
        """Add ``[rows, row_length]`` blocks.

        Args:
            a, b: words of the same rows, in the formats of the pairing.
            equal_ref_sq: ||a||^2 of each row where it is known, so that equal rows need no
                decoding; else it is computed.
        """
        measures = RowMeasures.zeros(len(a))
        equal = self.pairing.rows_equal(a, b)
        different = np.flatnonzero(~equal)
        for rows in _tiles(different, a.shape[1]):
            measures[rows] = self._add_different(a[rows], b[rows])
        self._add_equal(a, equal, equal_ref_sq, measures)
        self.rows += len(a)
        self.differing_rows += len(different)
        self.diff_sq += float(measures.diff_sq.sum())
        self.ref_sq += float(measures.ref_sq.sum())
        return measures

    def _add_equal(
        self, a: Words, equal: Mask, known: NDArray[np.float64] | None, measures: RowMeasures
    ) -> None:
        rows = np.flatnonzero(equal)
        count = len(rows) * a.shape[1]
        self.elements += count
        self.ulps.add_equal(count)
        self.relative.equal += count
        if known is not None:
            measures.ref_sq[rows] = known[rows]
            return
        for tile in _tiles(rows, a.shape[1]):
            values = floating_values(a[tile], self.pairing.a)
            measures.ref_sq[tile] = _sum_sq(np.where(np.isfinite(values), values, 0))

    def _add_different(self, a: Words, b: Words) -> RowMeasures:
        """Add rows that all differ; long rows are cut into pieces."""
        total = RowMeasures.zeros(len(a))
        for start in range(0, a.shape[1], _TILE):
            piece = self._add_tile(a[:, start : start + _TILE], b[:, start : start + _TILE])
            total.differing += piece.differing
            total.diff_sq += piece.diff_sq
            total.ref_sq += piece.ref_sq
            total.nonfinite += piece.nonfinite
            np.maximum(total.max_ulp, piece.max_ulp, out=total.max_ulp)
        return total

    def _add_tile(self, a: Words, b: Words) -> RowMeasures:
        differs = self.pairing.differs(a, b)
        at = np.flatnonzero(differs)
        counts = np.count_nonzero(differs, axis=1)
        x, y = self.pairing.values(a, b)
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.abs(y - x)
        nonfinite = np.zeros(len(a), np.int64)
        mismatches = 0
        if not np.isfinite(size).all():
            finite = np.isfinite(x) & np.isfinite(y)
            nonfinite = self._count_specials(differs & ~finite, x, y)
            mismatches = int(np.count_nonzero(differs & ~finite))
            size, x = np.where(finite, size, 0.0), np.where(finite, x, 0.0)
        self.elements += a.size
        self.differing_elements += len(at)
        self.max_abs = max(self.max_abs, float(size.max(initial=0.0)))
        self._add_relative(size.reshape(-1)[at], x.reshape(-1)[at], a.size - len(at), mismatches)
        max_ulp = self._add_distances(a.reshape(-1)[at], b.reshape(-1)[at], counts, a.size)
        return RowMeasures(counts, _sum_sq(size), _sum_sq(x), max_ulp, nonfinite)

    def _count_specials(self, differs: Mask, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.int64]:
        """Count NaN of other bits, and non-finite mismatches (by row); ``differs``: the differing
        elements of which a side is not finite."""
        both_nan = np.isnan(x) & np.isnan(y)
        self.nan_payload_only += int(np.count_nonzero(differs & both_nan))
        mismatch = np.count_nonzero(differs & ~both_nan, axis=1)
        self.nonfinite += int(mismatch.sum())
        return np.asarray(mismatch, np.int64)

    def _add_distances(
        self, a: Words, b: Words, counts: NDArray[np.int64], elements: int
    ) -> NDArray[np.uint64]:
        """Add the ULP distances of the differing elements, ``counts`` of them a row; the largest of
        each row."""
        largest = np.zeros(len(counts), np.uint64)
        self.ulps.add_equal(elements - len(a))
        distances = self.pairing.distances(a, b)
        if distances is None or not len(a):
            return largest
        comparable = distances != INCOMPARABLE
        if comparable.all():
            self.ulps.add(distances, 0)
        else:
            self.ulps.add(distances[comparable], int(np.count_nonzero(~comparable)))
            distances[~comparable] = 0
        some = np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[some])[:-1]])
        largest[some] = np.maximum.reduceat(distances, starts)
        return largest

    def _add_relative(
        self, size: NDArray[np.float64], x: NDArray[Any], equal: int, mismatches: int
    ) -> None:
        """Add the relative errors of the differing elements.

        Args:
            size, x: |b - a| and a of each; 0 where a side is not finite.
            equal: elements beside them that are equal.
            mismatches: how many of them are not finite.
        """
        apart = size > 0
        if not apart.all():
            size, x = size[apart], x[apart]
        same = len(apart) - len(size) - mismatches  # of other sign, or of other bits
        self.relative.equal += equal + same
        if not self.pairing.is_integer:
            self.signed_zero_only += same
        self.relative.add(size / np.maximum(np.abs(x), self.pairing.smallest_normal))


def _tiles(rows: NDArray[np.int64], row_length: int) -> list[NDArray[np.int64]]:
    step = max(1, _TILE // max(1, row_length))
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _sum_sq(values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum of squared magnitudes of each row."""
    size = np.abs(values) if values.dtype.kind == "c" else values
    with np.errstate(over="ignore"):
        return np.asarray(np.einsum("ij,ij->i", size, size), np.float64)
