"""Detector: B holds A's values in another order: other heads, transposed, other pairs, other rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.forensics.fit import ENOUGH, Fit
from verify.forensics.pair import Pair

_DISTINCT = 8
"""Different values in a row without which an order says nothing."""


def find_layouts(pair: Pair) -> Iterator[Fit]:
    """The rows that differ, read in another order, are A's to the last bit."""
    rows = np.flatnonzero((pair.a != pair.b).any(axis=1) & pair.finite.all(axis=1))
    if not len(rows):
        return
    a, b = pair.a[rows], pair.b[rows]
    if len(np.unique(a[0])) < _DISTINCT:
        return
    if np.array_equal(np.sort(a, axis=1), np.sort(b, axis=1)):
        yield Fit("permutation", _order(pair, a, b), 0.0, 1.0)
    elif text := _other_rows(pair, rows):
        yield Fit("other rows", text, 0.0, 1.0)
    elif text := _other_heads(pair, a, b):
        yield Fit("other heads", text, 0.0, 1.0)


def _order(pair: Pair, a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    said = "the values of each row are A's in another order"
    heads, length = pair.grid
    for name, index in _orders(heads, length, a.shape[1]):
        if np.array_equal(a[:, index], b):
            return f"{said}: {name}"
    return said


def _orders(heads: int, length: int, n: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Named orders: ``b = a[:, order]``."""
    every = np.arange(n)
    if heads > 1:
        grid = every.reshape(heads, length)
        for shift in range(1, heads):
            yield f"heads rotated by {shift}", np.roll(grid, shift, axis=0).reshape(-1)
        yield "heads and channels exchanged", grid.T.reshape(-1)
    for name, size in (("head", length), ("row", n)):
        if size % 2 == 0 and n % size == 0:
            pairs = np.arange(size).reshape(2, size // 2)
            for what, order in (
                (f"halves of each {name} interleaved", pairs.T.reshape(-1)),
                (f"pairs of each {name} taken apart into halves",
                 np.arange(size).reshape(size // 2, 2).T.reshape(-1)),
                (f"halves of each {name} exchanged", np.roll(np.arange(size), size // 2)),
            ):  # fmt: skip
                blocks = np.arange(0, n, size)[:, None]
                yield what, (blocks + order).reshape(-1)
    yield "reversed", every[::-1].copy()


def _other_rows(pair: Pair, rows: NDArray[np.int64]) -> str | None:
    """Every differing row of B is another row of A."""
    if len(rows) < 2 and len(pair.a) < 3:
        return None
    known: dict[bytes, int] = {}
    for number, row in enumerate(pair.a):
        known.setdefault(row.tobytes(), number)
    found = [known.get(pair.b[row].tobytes()) for row in rows]
    if None in found or len(set(map(bytes, pair.a))) < _DISTINCT // 4:
        return None
    shifts = {int(row) - int(source or 0) for row, source in zip(rows, found, strict=True)}
    if len(shifts) == 1:
        (shift,) = shifts
        way = "before" if shift > 0 else "behind"
        return f"each differing row of B is A's row {abs(shift)} {way} it: read too {'late' if shift < 0 else 'early'} or not written"
    return "each differing row of B is another row of A"


def _other_heads(pair: Pair, a: NDArray[np.float64], b: NDArray[np.float64]) -> str | None:
    """Some heads of B are other heads of A."""
    heads, length = pair.grid
    if heads == 1 or a.size < ENOUGH:
        return None
    x, y = (side.reshape(len(side), heads, length) for side in (a, b))
    moved: dict[int, int] = {}
    for head in range(heads):
        if np.array_equal(x[:, head], y[:, head]):
            continue
        source = [h for h in range(heads) if np.array_equal(x[:, h], y[:, head])]
        if not source:
            return None
        moved[head] = source[0]
    if not moved:
        return None
    listed = ", ".join(f"{to} holds {source}" for to, source in list(moved.items())[:4])
    return f"heads of B are other heads of A: head {listed}" + (" ..." if len(moved) > 4 else "")
