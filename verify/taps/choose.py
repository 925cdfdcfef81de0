"""One candidate for each family of A: by values where they tell, else by the order of execution.

Layers of a deep network can be so alike that a tap fits the same tap of the next layer as well as its
own. So the number of the layer and the order in which both runs computed their taps decide among
all that fit about equally, and the best fit alone never does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verify.taps.candidates import Candidate, closest
from verify.taps.fits import Fitter

Order = NDArray[np.int64]

_ROUNDS = 4
_FEW = 3


@dataclass(slots=True)
class Choice:
    """The candidate that was chosen, and what it was chosen from."""

    candidate: Candidate
    alike: int
    """Different tensors that values could not tell from it, itself included."""
    next_best: float | None
    """Smallest distance among those that values do tell from it."""
    close: list[Candidate] = field(default_factory=list)
    """All that fit about as well."""
    same_layer: float | None = None
    """Distance of the tap of the same layer, where that of another layer was chosen."""


def choose(found: Sequence[list[Candidate]], fitter: Fitter) -> list[Choice]:
    """A choice for every list of candidates (none is empty), so that few pairs of taps stand in the
    opposite order in both runs."""
    close = [closest(candidates) for candidates in found]
    picks = [min(some, key=lambda c: (abs(c.shift), c.kind, -c.similarity())) for some in close]
    for _ in range(_ROUNDS):
        anchors = [_order(pick) for pick in picks]
        again = [
            _pick(some, np.concatenate([*anchors[:place], *anchors[place + 1 :], _NOTHING]))
            for place, some in enumerate(close)
        ]
        if again == picks:
            break
        picks = again
    return [
        Choice(
            pick,
            _different(pick, some, fitter),
            _next_best(pick, candidates, some),
            some,
            _same_layer(pick, candidates),
        )
        for pick, some, candidates in zip(picks, close, found, strict=True)
    ]


_NOTHING: Order = np.zeros((0, 2), np.int64)


def _order(candidate: Candidate) -> Order:
    """Places in the execution order of A and of B, [pairs, 2]; a sum is there with its last part."""
    pairs = [(a.order, max(tap.order for tap in b)) for a, b in candidate.pairs()]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _pick(close: list[Candidate], anchors: Order) -> Candidate:
    if len(close) == 1:
        return close[0]
    return min(close, key=lambda c: (_inversions(_order(c), anchors), *_rank(c)))


def _rank(candidate: Candidate) -> tuple[float, ...]:
    a, b = candidate.a.any, candidate.sources[0].any
    uncovered = len(candidate.a.members) - len(candidate.pairs())
    return (
        uncovered > len(candidate.a.members) // 2,
        len(candidate.sources) > 1,  # what the run computed before what the comparison computes
        is_input(a.name) != is_input(b.name),
        candidate.kind,
        a.is_keyed != b.is_keyed,
        a.name != b.name,
        abs(candidate.shift),
        -candidate.similarity(),
    )


def is_input(tap: str) -> bool:
    """Whether a tap is what a module is given."""
    return re.search(r"\bin\.\w+$", tap) is not None


def _inversions(own: Order, anchors: Order) -> int:
    """Taps that A ran before and B after one of its own, or the other way round: on average, in
    steps of a few, since a tap or two that run a moment earlier say nothing."""
    if not len(own) or not len(anchors):
        return 0
    first = np.sign(own[:, None, 0] - anchors[None, :, 0])
    second = np.sign(own[:, None, 1] - anchors[None, :, 1])
    return int((first * second < 0).sum(axis=1).mean()) // _FEW


def _different(pick: Candidate, close: list[Candidate], fitter: Fitter) -> int:
    """How many of them present different values where the chosen one fits best: several taps may
    hold one tensor."""
    number = _layer(pick)
    found = {
        fitter.signature(pick.a.members[number], taps, candidate.fits[number])
        for candidate in close
        if number in candidate.fits and (taps := candidate.partners(number)) is not None
    }
    return len(found)


def _layer(pick: Candidate) -> int | None:
    return min(pick.fits, key=lambda number: pick.fits[number].distance)


def _next_best(
    pick: Candidate, candidates: list[Candidate], close: list[Candidate]
) -> float | None:
    """The smallest distance of the others in the layer where the chosen one fits best."""
    number = _layer(pick)
    others = [c for c in candidates if not any(c is each for each in close)]
    return min((c.fits[number].distance for c in others if number in c.fits), default=None)


def _same_layer(pick: Candidate, candidates: list[Candidate]) -> float | None:
    """Distance of the unshifted form of a shifted choice in the layer where that fits best."""
    number = _layer(pick)
    for other in candidates:
        if pick.shift and other.shift == 0 and other.sources == pick.sources:
            return other.fits[number].distance if number in other.fits else None
    return None
