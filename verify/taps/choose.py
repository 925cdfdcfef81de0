"""One candidate for each family of A: by values where they tell, else by the order of execution.

Layers of a deep network can be so alike that a tap fits the same tap of the next layer as well as its
own. So the number of the layer and the order in which both runs computed their taps decide among
all that fit about equally, and the best fit alone never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.taps.candidates import Candidate, closest

Order = NDArray[np.int64]

_ROUNDS = 4
_FEW = 3


@dataclass(slots=True)
class Choice:
    """The candidate that was chosen, and what it was chosen from."""

    candidate: Candidate
    close: int
    """Candidates that values could not tell from it, itself included."""
    next_best: float | None
    """Smallest distance among those that values do tell from it."""


def choose(found: Sequence[list[Candidate]]) -> list[Choice]:
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
        Choice(pick, len(some), _next_best(candidates, some))
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
        candidate.kind,
        a.is_keyed != b.is_keyed,
        a.name != b.name,
        abs(candidate.shift),
        uncovered > len(candidate.a.members) // 2,
        -candidate.similarity(),
    )


def _inversions(own: Order, anchors: Order) -> int:
    """Taps that A ran before and B after one of its own, or the other way round: on average, in
    steps of a few, since a tap or two that run a moment earlier say nothing."""
    if not len(own) or not len(anchors):
        return 0
    first = np.sign(own[:, None, 0] - anchors[None, :, 0])
    second = np.sign(own[:, None, 1] - anchors[None, :, 1])
    return int((first * second < 0).sum(axis=1).mean()) // _FEW


def _next_best(candidates: list[Candidate], close: list[Candidate]) -> float | None:
    others = [c.best for c in candidates if not any(c is each for each in close)]
    return min(others, default=None)
