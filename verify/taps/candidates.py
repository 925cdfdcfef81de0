"""Which families of B may be a family of A, with what speaks for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from verify.taps.families import Family
from verify.taps.fits import MOST_APART, NEAR, Fit, Fitter, room, roundoff
from verify.taps.sampling import Tap
from verify.taps.types import Join

SHIFTS = (0, -1, 1)
"""By how much the layer numbers of B may be off: a stream that leaves layer n enters layer n + 1."""

_TRIED = 2
"""Layers in which a pair of taps is added up before it is given up."""

_CLOSE, _NEARLY = 4.0, 1.25
"""Distances within this factor do not tell candidates apart."""


@dataclass(slots=True)
class Candidate:
    """A family of A made from one family of B, or of several that are added or joined."""

    a: Family
    sources: tuple[Family, ...]
    shift: int
    fits: dict[int | None, Fit] = field(default_factory=dict)
    """Layer of A -> how well it fits, for the layers that were looked at."""
    join: Join = "add"
    """How several sources become one."""

    @property
    def best(self) -> float:
        """The smallest distance of all layers: behind a fault of B all others are large."""
        return min(fit.distance for fit in self.fits.values())

    @property
    def fit(self) -> Fit:
        """That of the layer that fits best."""
        return min(self.fits.values(), key=lambda fit: fit.distance)

    def is_as_rounding(self) -> bool:
        """Whether rounding explains the distance in the layer that fits best."""
        return self.best <= room(self.a.any, *(source.any for source in self.sources))

    def fits_everywhere(self) -> bool:
        """Whether rounding explains the distance in all layers that were looked at."""
        taps = [self.a.any, *(source.any for source in self.sources)]
        return all(fit.distance <= room(*taps) for fit in self.fits.values())

    @property
    def kind(self) -> int:
        """Simpler ones count first: a tap of the run, a part of one, another order, a sum."""
        if len(self.sources) > 1:
            return 3
        fit = self.fit
        return 2 if fit.heads or fit.transposed else int(not fit.is_plain)

    def pairs(self) -> list[tuple[Tap, list[Tap]]]:
        """Every tap of A that it covers, with its taps of B."""
        return [
            (tap, there)
            for number, tap in self.a.members.items()
            if (there := self.partners(number)) is not None
        ]

    def partners(self, number: int | None) -> list[Tap] | None:
        """The taps of B for one layer of A; None where one of them is missing."""
        found = [source.partner(number, self.shift) for source in self.sources]
        there = [tap for tap in found if tap is not None]
        return there if len(there) == len(found) else None

    def similarity(self) -> float:
        """How alike the names are, from 0 to 1."""
        ratios = [
            SequenceMatcher(None, self.a.template, source.template, autojunk=False).ratio()
            for source in self.sources
        ]
        return sum(ratios) / len(ratios)


def find_candidates(
    a: Family, families: Sequence[Family], fitter: Fitter, limit: float = NEAR
) -> list[Candidate]:
    """Families of B that may be ``a`` as they are, in part, or in another order.

    Args:
        limit: largest distance in the layer that fits best.
    """
    found = []
    for b in families:
        for shift in SHIFTS if not (a.is_single or b.is_single) else (0,):
            candidate = Candidate(a, (b,), shift)
            _fill(candidate, fitter, limit)
            if candidate.fits and candidate.best <= limit:
                found.append(candidate)
    return found


def _fill(candidate: Candidate, fitter: Fitter, limit: float) -> None:
    """The transformation that fits best in some layer, in all layers that are looked at."""
    (b,) = candidate.sources
    pairs = [
        (number, candidate.a.members[number], partner)
        for number in candidate.a.sample()
        if (partner := b.partner(number, candidate.shift)) is not None
    ]
    best: Fit | None = None
    for _, tap, partner in pairs:
        fit = fitter.moved(tap, partner)
        if fit is not None and (best is None or fit.distance < best.distance):
            best = fit
        if best is not None and best.distance <= NEAR:
            break
    if best is None or best.distance > limit:
        return
    for number, tap, partner in pairs:
        fit = fitter.again(tap, partner, best)
        if fit is not None:
            candidate.fits[number] = fit


def find_sums(
    a: Family, families: Sequence[Family], fitter: Fitter, limit: float = NEAR
) -> list[Candidate]:
    """Pairs of families of B that add up to ``a``."""
    alike = [f for f in families if f.any.row_length == a.any.row_length and f.any.is_float]
    found = []
    for first, second in _pairs(alike):
        for shift in SHIFTS if not a.is_single else (0,):
            candidate = Candidate(a, (first, second), shift)
            for number in a.sample():
                if len(candidate.fits) == _TRIED and candidate.best > limit:
                    break
                if (parts := candidate.partners(number)) is not None:
                    fit = fitter.added(a.members[number], *parts)
                    if fit is not None:
                        candidate.fits[number] = fit
            if candidate.fits and candidate.best <= limit:
                found.append(candidate)
    return found


def _pairs(families: Sequence[Family]) -> Iterator[tuple[Family, Family]]:
    for place, first in enumerate(families):
        for second in families[place + 1 :]:
            if first.is_single == second.is_single:
                yield first, second


def closest(candidates: list[Candidate]) -> list[Candidate]:
    """Those that values cannot tell apart, and tell from all others: nowhere further from A than
    rounding and chance explain, where some candidate fits."""
    least: dict[int | None, float] = {}
    for candidate in candidates:
        for number, fit in candidate.fits.items():
            least[number] = min(fit.distance, least.get(number, fit.distance))
    unit = roundoff(candidates[0].a.any) if candidates else 0.0
    misses = [
        sum(f.distance > _as_good(least[n], unit) for n, f in c.fits.items()) for c in candidates
    ]
    return [c for c, missed in zip(candidates, misses, strict=True) if missed == min(misses)]


def _as_good(least: float, unit: float) -> float:
    """The distance up to which a fit is no worse than the best one: chance may well make roundings
    four times as large, and not the effect of a fault."""
    small = max(_CLOSE * least, unit / _CLOSE)
    return small if small <= MOST_APART else max(MOST_APART, _NEARLY * least)
