"""All detectors in order: what is the difference between these rows?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verify.forensics.additions import find_additions
from verify.forensics.fit import Fit
from verify.forensics.layouts import find_layouts
from verify.forensics.pair import Pair
from verify.forensics.ranges import find_ranges
from verify.forensics.ratios import find_ratios

DETECTORS: tuple[Callable[[Pair], Iterator[Fit]], ...] = (
    find_layouts,
    find_ranges,
    find_ratios,
    find_additions,
)
"""From the most special statement to the most general; an exact one ends the search."""

MOST = 2
"""Fits that are told: a second one may say the same more usefully."""


def describe(pair: Pair) -> list[Fit]:
    """What the difference is, the best statement first; empty where nothing fits.

    A fit is an observation with a residual. It never makes a defect: a difference that rounding
    explains is rounding even if it has a pattern.
    """
    if not pair.a.size or pair.a.shape != pair.b.shape:
        return []
    found: list[Fit] = []
    for detector in DETECTORS:
        found += detector(pair)
        if any(fit.residual == 0.0 for fit in found):
            break
    return sorted(found, key=lambda fit: fit.residual)[:MOST]
