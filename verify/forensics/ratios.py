"""Detector: B is A times a constant: everywhere, in some heads, or by another one in each row or in
each channel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.forensics.fit import Fit, judged
from verify.forensics.pair import Pair, Values
from verify.forensics.support import describe_numbers

_CLOSE = 1e-3
"""Heads whose own constants agree so well share one; the constants are medians of rounded ratios."""


def find_ratios(pair: Pair) -> Iterator[Fit]:
    """One constant for all changed heads; else one for each row; else one for each channel."""
    touched = np.flatnonzero(pair.by_head(pair.changed).mean(axis=(0, 2)) > 0.05)
    if not len(touched):
        return
    constants = [_median(pair, head) for head in touched.tolist()]
    if None not in constants:
        values = np.array(constants, np.float64)
        middle = float(np.median(values))
        alike = np.ptp(values) <= _CLOSE * abs(middle)
        # The head of a row without heads agrees with itself: only the fit says that it is one.
        if alike and (one := list(_one(pair, touched.tolist(), middle))):
            yield from one
            return
    rows = list(_rows(pair))
    yield from rows or _channels(pair)


def _median(pair: Pair, head: int) -> float | None:
    """Median of B / A over the elements of a head that are large enough to tell."""
    a, b = (pair.by_head(side)[:, head] for side in (pair.a, pair.b))
    good = pair.by_head(pair.finite)[:, head] & (np.abs(a) > 0)
    if good.sum() < 8:
        return None
    large = good & (np.abs(a) >= np.median(np.abs(a[good])))
    return float(np.median(b[large] / a[large]))


def _one(pair: Pair, heads: list[int], constant: float) -> Iterator[Fit]:
    wanted = pair.by_head(pair.a).copy()
    wanted[:, heads] *= constant
    flat: Values = wanted.reshape(pair.a.shape)
    where = "" if pair.grid[0] == 1 else " in " + describe_numbers(
        "head", "heads", np.array(heads), range(pair.grid[0])
    )  # fmt: skip
    named = f"{constant:.6g}" + _known(constant)
    if fit := judged(pair, "ratio", f"B is A times {named}{where}", flat):
        yield fit


def _known(constant: float) -> str:
    mantissa = abs(np.frexp(constant)[0])
    if constant == -1.0:
        return " (the sign)"
    return " (a power of two)" if mantissa == 0.5 else ""


def _rows(pair: Pair) -> Iterator[Fit]:
    """Every row has a constant of its own, as where a norm divides by something else."""
    if pair.a.shape[1] < 16 or len(pair.a) < 2:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(pair.finite & (pair.a != 0), pair.b / pair.a, np.nan)
    if not np.isfinite(ratio).any(axis=1).all():
        return
    constants = np.nanmedian(ratio, axis=1)
    text = f"each row of B is A's times a number of its own, {constants.min():.4g} to {constants.max():.4g}"
    if fit := judged(pair, "row ratio", text, pair.a * constants[:, None]):
        yield fit


_MANY = 16
"""Rows without which a constant for each channel would fit what it was taken from: with so many
each constant answers for fifteen elements that did not choose it."""


def _channels(pair: Pair) -> Iterator[Fit]:
    """Every channel has a constant of its own, as where a scale or a norm's weight is another."""
    if len(pair.a) < _MANY or pair.a.shape[1] < 2:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(pair.finite & (pair.a != 0), pair.b / pair.a, np.nan)
    if not np.isfinite(ratio).any(axis=0).all():
        return
    constants = np.nanmedian(ratio, axis=0)
    text = f"each channel of B is A's times a number of its own, {constants.min():.4g} to {constants.max():.4g}"
    if fit := judged(pair, "channel ratio", text, pair.a * constants):
        yield fit
