"""Histograms that grow block by block, and the quantiles read from them.

ULP distances fall into bins of their own below 16 and into eight bins an octave above, so a
quantile is exact up to 15 and at most 12.5 % too small beyond. Relative errors fall into quarter
decades.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.result import RelativeHistogram, UlpHistogram

_SUB_BITS = 3  # bins an octave: 2**3
_FRACTION_BITS = 52
_ONE = 1023 << _SUB_BITS  # exponent field of 1.0 followed by three zero fraction bits

RESOLUTION = "exact below 16, then the lower edge of bins 12.5 % wide"
"""What a ULP quantile is worth, for reports."""


def _ulp_edges() -> list[int]:
    steps = 1 << _SUB_BITS
    edges = {0} | {((steps + s) << e) // steps for e in range(64) for s in range(steps)}
    return [*sorted(edges), 2**64]


ULP_EDGES = _ulp_edges()
"""Bin ``i`` holds the distances from ``ULP_EDGES[i]`` up to, not including, ``ULP_EDGES[i + 1]``."""


def _bin_table() -> NDArray[np.int64]:
    """Bin of every (exponent, three fraction bits), with bin 0 in front for the distance 0."""
    steps = 1 << _SUB_BITS
    floors = [((steps + s) << e) // steps for e in range(65) for s in range(steps)]
    last = len(ULP_EDGES) - 2
    bins = {edge: index for index, edge in enumerate(ULP_EDGES)}
    return np.array([0, *(min(bins.get(floor, last), last) for floor in floors)], np.int64)


_BINS = _bin_table()


def ulp_bins(distances: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bin number of each distance: the leading bits of its float64 are exponent and fraction.

    Above 2^53 the conversion may round a distance into the bin above.
    """
    leading = distances.astype(np.float64).view(np.int64) >> (_FRACTION_BITS - _SUB_BITS)
    return np.asarray(_BINS[np.maximum(leading - (_ONE - 1), 0)])


class UlpCounts:
    """ULP distances of many pairs of elements; equal pairs are counted, not passed."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(ULP_EDGES) - 1, np.int64)
        self.incomparable = 0
        self.maximum = 0

    def add(self, distances: NDArray[np.uint64], incomparable: int) -> None:
        """Add the distances of comparable pairs, and how many pairs had none."""
        self.incomparable += incomparable
        if distances.size:
            self.maximum = max(self.maximum, int(distances.max()))
            self.counts += np.bincount(ulp_bins(distances), minlength=self.counts.size)

    def add_equal(self, count: int) -> None:
        self.counts[0] += count

    def quantile(self, q: float) -> float:
        """Distance that a share ``q`` of the pairs does not exceed; inf where NaN stands against
        a number in that rank, 0 where nothing was counted."""
        total = int(self.counts.sum()) + self.incomparable
        rank = max(1, math.ceil(q * total))
        cumulative = np.cumsum(self.counts)
        if total and rank > int(cumulative[-1]):
            return math.inf
        return float(ULP_EDGES[int(np.searchsorted(cumulative, rank))]) if total else 0.0

    def histogram(self) -> UlpHistogram:
        """Without the empty bins at the end."""
        used = int(np.flatnonzero(self.counts).max(initial=0)) + 1
        return UlpHistogram(
            edges=ULP_EDGES[: used + 1],
            counts=self.counts[:used].tolist(),
            incomparable=self.incomparable,
        )


_LOWEST, _HIGHEST, _PER_DECADE = -18, 6, 4
RELATIVE_EDGES = [
    _LOWEST + step / _PER_DECADE for step in range((_HIGHEST - _LOWEST) * _PER_DECADE + 1)
]
_LOG10_STEP = np.float32(_PER_DECADE / math.log(10.0))


class RelativeCounts:
    """Relative errors |b - a| / max(|a|, smallest normal); the end bins take what lies outside."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(RELATIVE_EDGES) - 1, np.int64)
        self.equal = 0

    def add(self, errors: NDArray[Any]) -> None:
        """Add nonzero finite errors."""
        if not errors.size:
            return
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            # float32 has the fast logarithm; its error matters at the edge of a bin only.
            logs = np.log(errors.astype(np.float32)) * _LOG10_STEP
        bins = np.floor(logs) - _LOWEST * _PER_DECADE
        inside = np.clip(bins, 0, self.counts.size - 1).astype(np.int64)
        self.counts += np.bincount(inside, minlength=self.counts.size)

    def histogram(self) -> RelativeHistogram:
        """Without the empty bins at either end."""
        used = np.flatnonzero(self.counts)
        first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
        return RelativeHistogram(
            edges=RELATIVE_EDGES[first : last + 2],
            counts=self.counts[first : last + 1].tolist(),
            equal=self.equal,
        )
