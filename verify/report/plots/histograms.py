"""Binned counts brought into the form that a figure needs. Nothing is measured here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify.compare.result import TapComparison, UlpHistogram


@dataclass(frozen=True, slots=True)
class Shares:
    """The differing elements of one tap in shares of all its elements."""

    edges: list[float]
    """Bin edges: ULPs, or relative errors."""
    shares: list[float]
    """Share of the elements in each bin, in 0..1."""
    equal: float
    """Share of the elements that are equal."""
    outside: float
    """Share that has no distance: NaN against something else, or no relative error."""

    def cumulative(self) -> list[float]:
        """Share of elements below each edge: the ECDF at the edges."""
        total = self.equal
        sums = [total]
        for part in self.shares:
            total += part
            sums.append(min(total, 1.0))
        return sums


def ulp_shares(tap: TapComparison) -> Shares | None:
    """ULP distances by octave: bins [1, 2), [2, 4), [4, 8) ...

    The result's own bins are finer above 16 ULP than below; octaves have one width on a log axis,
    so the bars of a figure compare.
    """
    return None if tap.ulps is None else octave_shares(tap.ulps)


def octave_shares(histogram: UlpHistogram) -> Shares | None:
    """An ULP histogram by octave; None where it counts nothing."""
    total = sum(histogram.counts) + histogram.incomparable
    if not total:
        return None
    octaves: dict[int, int] = {}
    for edge, count in zip(histogram.edges[1:], histogram.counts[1:], strict=False):
        octave = edge.bit_length() - 1
        octaves[octave] = octaves.get(octave, 0) + count
    last = max((octave for octave, count in octaves.items() if count), default=-1)
    return Shares(
        edges=[float(2**k) for k in range(last + 2)] if last >= 0 else [],
        shares=[octaves.get(k, 0) / total for k in range(last + 1)],
        equal=histogram.counts[0] / total if histogram.counts else 0.0,
        outside=histogram.incomparable / total,
    )


def relative_shares(tap: TapComparison) -> Shares | None:
    """Relative errors in the result's own bins, as values instead of logarithms."""
    histogram = tap.relative
    if histogram is None:
        return None
    total = max(tap.elements, sum(histogram.counts) + histogram.equal)
    if not total:
        return None
    inside = sum(histogram.counts) + histogram.equal
    return Shares(
        edges=[math.pow(10.0, edge) for edge in histogram.edges],
        shares=[count / total for count in histogram.counts],
        equal=histogram.equal / total,
        outside=(total - inside) / total,
    )
