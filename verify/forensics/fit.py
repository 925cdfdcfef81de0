"""What a detector answers: one statement with its residual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.forensics.pair import Mask, Pair, Values

LEAST = 0.99
"""Share of the looked-at elements that a fit has to explain: a few may be off by more where the
change itself was rounded in between."""

ENOUGH = 32
"""Changed elements without which no constant is fitted: fewer than that fit anything."""


LEFT = 0.5
"""Residual above which a statement is not made: it would leave more of the difference than it takes
away. Roundings of large terms that were added up can make room for a prediction that says nothing."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One way to say what a difference is."""

    kind: str
    text: str
    residual: float
    """||B - what the fit predicts|| / ||B - A||: 0 explains everything, 1 nothing."""
    explained: float
    """Share of the changed elements that are as predicted, up to rounding."""

    def describe(self) -> str:
        """One line for a report."""
        return f"{self.text} (residual {self.residual:.2g}, {self.explained:.1%} of the elements)"


def judged(
    pair: Pair, kind: str, text: str, wanted: Values, more: Values | float = 0.0
) -> Fit | None:
    """A fit if the prediction holds: it explains the elements that changed, and spoils none of
    those that did not.

    Args:
        wanted: prediction of all of B.
        more: see :meth:`Pair.near`.
    """
    looked = pair.finite & pair.changed
    if int(looked.sum()) < ENOUGH:
        return None
    near = pair.near(wanted, more)
    explained = float(near[looked].mean())
    still = pair.finite & ~pair.changed
    if explained < LEAST or (still.any() and float(near[still].mean()) < LEAST):
        return None
    left = residual(pair, wanted, looked)
    return Fit(kind, text, left, explained) if left <= LEFT else None


def residual(pair: Pair, wanted: Values, looked: Mask) -> float:
    """What a prediction leaves of the difference, over the elements looked at."""
    before = float(np.linalg.norm((pair.b - pair.a)[looked]))
    after = float(np.linalg.norm((pair.b - wanted)[looked]))
    return after / before if before else 0.0
