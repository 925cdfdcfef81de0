"""The parts of a difference: local, inherited and total, as sums over all rows of a tap."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.elements import floating_values
from verify.formats import get_format

WORST_ROWS = 8
"""Rows of a tap that are listed, those with the largest local part first."""

Words = NDArray[Any]
Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowParts:
    """Norms (L2 over the elements of one row) of the parts of its difference."""

    sequence: str
    position: int
    step: int
    local: float
    inherited: float | None
    total: float | None


@dataclass(slots=True)
class Parts:
    """What one pass found at one tap, over all its steps."""

    tap: str
    order: int
    rows: int = 0
    local_rows: int = 0
    differing_rows: int = 0
    local_sq: float = 0.0
    inherited_sq: float = 0.0
    total_sq: float = 0.0
    values_sq: float = 0.0
    largest_local: float = 0.0
    closure: float = 0.0
    """Largest |total - local - inherited| of an element, relative to the largest value of the tap."""
    compared: bool = False
    """Whether the run itself kept its words, so that there is a total."""
    exact: bool = True
    worst: list[RowParts] = field(default_factory=list)

    def relative(self, square: float) -> float:
        """A part as a share of the tap's own size (L2 over all rows)."""
        if self.values_sq > 0.0:
            return math.sqrt(square / self.values_sq)
        return math.inf if square > 0.0 else 0.0


def difference(a: Values, b: Values) -> Values:
    """b - a, 0 where both are the same number or both NaN, infinite where one alone is not finite."""
    with np.errstate(invalid="ignore"):
        apart = b - a
    if np.isfinite(apart).all():  # then both are, and equal ones are 0 apart
        return apart
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(same, 0.0, apart)
    return np.where(np.isfinite(apart), apart, np.inf)


def add_rows(
    parts: Parts,
    names: list[tuple[str, int]],
    step: int,
    words: tuple[Words, Words, Words | None],
    dtype: str,
) -> None:
    """Enter rows [rows, row_length] of one record.

    Args:
        names: (sequence, position) of each row.
        words: what was forced, what was computed before that, and what the run itself recorded.
    """
    wanted, computed, own = words
    fmt = get_format(dtype)
    parts.rows += len(wanted)
    parts.compared |= own is not None
    differs = (wanted != computed).any(axis=1)
    apart = (wanted != own).any(axis=1) if own is not None else differs
    parts.local_rows += int(differs.sum())
    parts.differing_rows += int(apart.sum())
    some = np.flatnonzero(differs | apart)
    x = floating_values(wanted, fmt)
    parts.values_sq += _finite_square(x)
    if not some.size:
        return
    size = float(np.abs(x).max(initial=0.0, where=np.isfinite(x)))
    y = floating_values(computed[some], fmt)
    local = difference(x[some], y)
    locals_ = np.sqrt(_row_squares(local))
    inherited = total = None
    if own is not None:
        z = floating_values(own[some], fmt)
        inherited, total = difference(y, z), difference(x[some], z)
        _close(parts, local, inherited, total, size)
    parts.local_sq += _square(locals_)
    parts.largest_local = max(parts.largest_local, float(np.abs(local).max(initial=0.0)))
    _keep_worst(parts, names, some, step, locals_, inherited, total)


def _square(x: Values) -> float:
    """Sum of |x|^2 over all elements, complex ones too."""
    flat = x.reshape(-1)
    return float(np.einsum("i,i->", flat, flat.conj()).real)


def _row_squares(x: Values) -> Values:
    """Sum of |x|^2 of each row [rows, elements]."""
    squares: Values = np.einsum("re,re->r", x, x.conj()).real
    return squares


def _finite_square(x: Values) -> float:
    """Sum of |x|^2 over the finite elements."""
    with np.errstate(invalid="ignore", over="ignore"):
        square = _square(x)
    return square if math.isfinite(square) else _square(x[np.isfinite(x)])


def _close(parts: Parts, local: Values, inherited: Values, total: Values, size: float) -> None:
    parts.inherited_sq += _square(inherited)
    parts.total_sq += _square(total)
    with np.errstate(invalid="ignore"):
        left = np.abs(total - local - inherited)
    # Where a part is infinite there is nothing to add up.
    left = left[np.isfinite(left)]
    if left.size and size > 0.0:
        parts.closure = max(parts.closure, float(left.max()) / size)


def _keep_worst(
    parts: Parts,
    names: list[tuple[str, int]],
    some: NDArray[np.int64],
    step: int,
    local: Values,
    inherited: Values | None,
    total: Values | None,
) -> None:
    for row in np.argsort(-local, kind="stable")[:WORST_ROWS]:
        sequence, position = names[int(some[row])]
        parts.worst.append(
            RowParts(
                sequence,
                position,
                step,
                float(local[row]),
                None if inherited is None else float(np.linalg.norm(inherited[row])),
                None if total is None else float(np.linalg.norm(total[row])),
            )
        )
    parts.worst.sort(key=lambda r: -r.local)
    del parts.worst[WORST_ROWS:]
