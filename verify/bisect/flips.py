"""How many choices should flip for rounding of the measured size, and which flips it cannot make.

The formulas are those of ``verify.reference.flips``: a pairwise shift of deviation sigma flips a
choice with margin g with probability Phi(-g / sigma).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verify.bisect.result import Flips, TokenPosition
from verify.formats import Format

if TYPE_CHECKING:
    from verify.reference.tokens import TokenShift

Values = NDArray[np.float64]

NEAR_SIGMAS = 3.0
"""Up to here a margin counts as near: such a flip has a chance of 0.1 % or more."""

TIE, NEAR, RARE, BEYOND = "exact tie", "near tie", "unlikely", "beyond rounding"


def measure_shift(a: Values, b: Values, fmt_a: Format, fmt_b: Format) -> TokenShift | None:
    """How the leading candidates of one position moved; None where a margin is not a number.

    Args:
        a, b: logits of the position, [vocabulary], in the two runs.
    """
    from verify.reference.tokens import compare_logits

    leaders = [np.partition(row, -2)[-2:] if len(row) > 1 else row for row in (a, b)]
    if a.shape != b.shape or any(len(top) < 2 or not np.isfinite(top).all() for top in leaders):
        return None
    if np.isnan(a).any() or np.isnan(b).any():
        return None
    return compare_logits(a[None], b[None], fmt_a.name, fmt_b.name)


def count_flips(positions: list[TokenPosition], shifts: list[TokenShift | None]) -> Flips | None:
    """Expected and observed flips; each position with a shift is told how close it was.

    None where no position has logits in both runs.
    """
    from verify.reference.flips import SURE_SIGMAS, flip_probability, flip_statistics

    known = [(p, s) for p, s in zip(positions, shifts, strict=True) if s is not None]
    if not known:
        return None
    joined = _join([shift for _, shift in known])
    found = flip_statistics(joined)
    chances = flip_probability(joined.a.margin, np.full(len(known), found.sigma))
    for (position, _), chance in zip(known, chances, strict=True):
        position.flip_chance = float(chance)
        position.closeness = _closeness(position, found.sigma, SURE_SIGMAS)
    sure = [known[i][0] for i in found.sure_flips]
    return Flips(
        positions=found.positions,
        observed=found.observed,
        expected=found.expected,
        sigma=found.sigma,
        p_more=found.p_more,
        ties=found.ties,
        sure=[positions.index(position) for position in sure],
        left_out=len(positions) - len(known),
    )


def _join(shifts: list[TokenShift]) -> TokenShift:
    """Positions that were measured one by one, as one table."""
    from verify.reference.tokens import TokenShift, TopTwo

    def join(of: list[TokenShift] | list[TopTwo], name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(each, name) for each in of])

    leaders = ("first", "second", "margin", "margin_ulps", "tie")
    sides = [
        TopTwo(*(join([getattr(shift, side) for shift in shifts], name) for name in leaders))
        for side in ("a", "b")
    ]
    rest = ("pair_shift", "shift", "spread", "sigma", "kl", "tv")
    return TokenShift(*sides, *(join(shifts, name) for name in rest))


def _closeness(position: TokenPosition, sigma: float, sure: float) -> str:
    if position.tie_a or position.tie_b:
        return TIE
    if not math.isfinite(position.margin_a) or sigma == 0.0:
        return ""
    if position.margin_a <= NEAR_SIGMAS * sigma:
        return NEAR
    return RARE if position.margin_a <= sure * sigma else BEYOND
