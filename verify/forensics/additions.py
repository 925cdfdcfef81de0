"""Detector: B is A plus something: one vector in every row, one number in each row, or a multiple of
another recorded tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.forensics.fit import Fit, judged
from verify.forensics.pair import Pair, Values

_ROWS = 4
"""Rows without which a vector in common, or a proportion to row sums, says nothing."""


def find_additions(pair: Pair) -> Iterator[Fit]:
    """What was added, the simplest first."""
    if not pair.finite.all():
        return
    added = pair.b - pair.a
    size = np.abs(pair.a) + np.abs(pair.b)
    yield from _vector(pair, added, size)
    yield from _per_row(pair, added, size)
    yield from _multiples(pair, added, size)


def _vector(pair: Pair, added: Values, size: Values) -> Iterator[Fit]:
    if len(added) < _ROWS:
        return
    vector = np.median(added, axis=0)
    if fit := judged(
        pair, "vector", "B is A plus the same vector in every row", pair.a + vector, size
    ):
        yield fit


def _per_row(pair: Pair, added: Values, size: Values) -> Iterator[Fit]:
    """The same number in all elements of a row: a zero point adds scale x sum of the input."""
    if added.shape[1] < 16:
        return
    number = np.median(added, axis=1, keepdims=True)
    fit = judged(pair, "row constant", "B is A plus one number in each row", pair.a + number, size)
    if fit is None:
        return
    for name, x in pair.others.items():
        sums = x.sum(axis=1, keepdims=True)
        if len(sums) < _ROWS or not np.isfinite(sums).all() or not sums.any():
            continue
        scale = float((sums * number).sum() / np.square(sums).sum())
        text = f"B is A plus {scale:.4g} times the sum of each row of {name}: a zero point"
        if proportional := judged(pair, "row sum", text, pair.a + scale * sums, size):
            yield proportional
            return
    yield fit


def _multiples(pair: Pair, added: Values, size: Values) -> Iterator[Fit]:
    for name, x in pair.others.items():
        if x.shape != added.shape or not np.isfinite(x).all() or not x.any():
            continue
        factor = float((x * added).sum() / np.square(x).sum())
        text = f"B is A plus {factor:.4g} times {name}"
        if fit := judged(pair, "multiple", text, pair.a + factor * x, size + np.abs(factor * x)):
            yield fit
