"""Detector: the ends of a format's range: clipped, flushed to zero, rounded towards zero, zeroed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.forensics.fit import ENOUGH, Fit, residual
from verify.forensics.pair import Pair
from verify.formats import FORMATS

_FEW = 4
"""Elements at a limit without which it may be chance."""


def find_ranges(pair: Pair) -> Iterator[Fit]:
    """What happened to the largest, the smallest, or all elements."""
    differs = pair.finite & (pair.a != pair.b)
    if not differs.any():
        return
    yield from _clipped(pair, differs)
    yield from _flushed(pair, differs)
    yield from _zeroed(pair)
    yield from _towards_zero(pair, differs)


def _clipped(pair: Pair, differs: np.ndarray) -> Iterator[Fit]:
    for fmt in FORMATS.values():
        top = fmt.max_finite if fmt.kind == "float" else 0.0
        if not 0.0 < top < pair.format.max_finite:
            continue
        beyond = pair.finite & (np.abs(pair.a) > top)
        if beyond.sum() < _FEW or not (np.abs(pair.b[beyond]) == top).all():
            continue
        rest = differs & ~beyond
        share = float(beyond.sum() / (beyond | differs).sum())
        only = "" if rest.any() else ", and nothing else changed"
        text = f"{int(beyond.sum())} elements beyond {top:g}, the largest {fmt.name}, are that number in B{only}"
        clipped = np.clip(pair.a, -top, top)
        yield Fit("saturation", text, residual(pair, clipped, differs), share)
        return


def _flushed(pair: Pair, differs: np.ndarray) -> Iterator[Fit]:
    small = differs & (pair.b == 0.0) & (np.abs(pair.a) < pair.format.min_normal)
    if small.sum() >= _FEW and (small == differs).all():
        text = f"B is 0 where A is below the smallest normal {pair.format.name}: flushed to zero"
        yield Fit("flush to zero", text, 0.0, 1.0)


def _zeroed(pair: Pair) -> Iterator[Fit]:
    rows = (pair.b == 0.0).all(axis=1) & (pair.a != 0.0).any(axis=1)
    others = (pair.a != pair.b).any(axis=1) & ~rows
    if rows.any() and pair.a.shape[1] > 1 and not others.any():
        yield Fit("zero rows", f"{int(rows.sum())} rows of B are exactly zero", 0.0, 1.0)


def _towards_zero(pair: Pair, differs: np.ndarray) -> Iterator[Fit]:
    """Every difference is one step, and towards zero: with nearest rounding half go either way."""
    if differs.sum() < ENOUGH:
        return
    a, b = pair.a[differs], pair.b[differs]
    exponent = np.floor(np.log2(np.maximum(np.abs(a), pair.format.min_normal)))
    step = 2.0 ** (exponent - pair.format.mantissa_bits)
    if not (np.abs(a - b) <= step).all():
        return
    for name, shorter, longer in (("B", b, a), ("A", a, b)):
        if (np.abs(shorter) < np.abs(longer)).all():
            text = f"{name} is the other side rounded towards zero, one step wherever they differ"
            yield Fit("truncation", text, 0.0, 1.0)
