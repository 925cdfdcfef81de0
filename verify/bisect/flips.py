"""How many choices should flip for rounding of the measured size, and which flips it cannot make.

The formulas are those of ``verify.reference.flips``: a pairwise shift of deviation sigma flips a
choice with margin g with probability Phi(-g / sigma).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verify.bisect.logits import Logits
from verify.bisect.result import Flips, TokenPosition

if TYPE_CHECKING:
    from verify.reference.tokens import TokenShift

Values = NDArray[np.float64]

NEAR_SIGMAS = 3.0
"""Up to here a margin counts as near: such a flip has a chance of 0.1 % or more."""

TIE, NEAR, RARE, BEYOND = "exact tie", "near tie", "unlikely", "beyond rounding"


def measure_shift(a: Logits, b: Logits) -> TokenShift | None:
    """How the leading candidates of one position moved; None where a margin is not a number."""
    from verify.reference.tokens import compare_logits

    if a.values.shape != b.values.shape or not (_has_margin(a.values) and _has_margin(b.values)):
        return None
    return compare_logits(a.values[None], b.values[None], a.fmt.name, b.fmt.name)


def _has_margin(logits: Values) -> bool:
    """Two finite leaders, and no NaN (which sorts last, among the leaders)."""
    return len(logits) > 1 and bool(np.isfinite(np.partition(logits, -2)[-2:]).all())


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

    def join(of: Sequence[TokenShift | TopTwo], kind: Any) -> dict[str, Any]:
        names = [each.name for each in fields(kind) if each.name not in ("a", "b")]
        return {name: np.concatenate([getattr(each, name) for each in of]) for name in names}

    a, b = (TopTwo(**join([getattr(s, side) for s in shifts], TopTwo)) for side in ("a", "b"))
    return TokenShift(a=a, b=b, **join(shifts, TokenShift))


def _closeness(position: TokenPosition, sigma: float, sure: float) -> str:
    if position.tie_a or position.tie_b:
        return TIE
    if not math.isfinite(position.margin_a) or sigma == 0.0:
        return ""
    if position.margin_a <= NEAR_SIGMAS * sigma:
        return NEAR
    return RARE if position.margin_a <= sure * sigma else BEYOND
