"""Where the wrong elements of an output lie, and whether one factor would put them right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.reference.certificates.evidence import Evidence, relative_l2

# Named one by one up to this many; beyond, a count says it.
_LISTED = 8


def describe_outside(evidence: Evidence) -> Iterator[str]:
    """One line each: the support of the impossible elements, and the fits that hold."""
    wrong = evidence.outside | evidence.far
    if not wrong.any():
        return
    yield _support(wrong)
    zero = np.nonzero((evidence.actual == 0.0).all(axis=0) & wrong.any(axis=0))[0]
    if zero.size and evidence.actual.shape[0] > 1:
        yield f"all zero: {_listed('column', zero)}"
    yield from _ratio(evidence)


def _support(wrong: NDArray[np.bool_]) -> str:
    rows, columns = np.nonzero(wrong.any(axis=1))[0], np.nonzero(wrong.any(axis=0))[0]
    row_text = "every row" if len(rows) == wrong.shape[0] else _listed("row", rows)
    column_text = "every column" if len(columns) == wrong.shape[1] else _listed("column", columns)
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong, in {row_text} and {column_text}"


def _listed(noun: str, places: NDArray[np.intp]) -> str:
    if len(places) == 1:
        return f"{noun} {places[0]}"
    if len(places) <= _LISTED:
        return f"{noun}s {', '.join(map(str, places))}"
    return f"{len(places)} {noun}s from {places[0]} to {places[-1]}"


def _ratio(evidence: Evidence) -> Iterator[str]:
    """One constant factor, where it brings the error down to the size of rounding."""
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(evidence.actual) & np.isfinite(evidence.held.mid)
    mid, actual = evidence.held.mid[usable], evidence.actual[usable]
    energy = float(mid @ mid)
    if energy == 0.0:
        return
    factor = float(mid @ actual) / energy
    left = relative_l2(actual, factor * mid) if factor else float("inf")
    # A fit that leaves a fiftieth of the deviation, or two floors (one for the rounding of the
    # output, one because the factor was fitted to it), says more than the deviation itself.
    fits = left <= 2.0 * evidence.floor or left <= 0.02 * abs(factor - 1.0)
    if fits and abs(factor - 1.0) > evidence.floor:
        yield f"the output is {factor:.9g} times the reference, with {left:.2g} (L2) left over"
