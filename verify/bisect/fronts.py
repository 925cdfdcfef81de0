"""Where NaN and infinities begin: the first cause, not the first victim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.bisect.origins import Place, find_fronts
from verify.compare.elements import Pairing
from verify.compare.pairs import pairs_of, read_pair
from verify.compare.run import RowComparison


@dataclass(slots=True)
class Front:
    """A tap at which one side is not finite, though no row that it read was."""

    place: Place
    infinite: dict[str, int]
    """Side -> elements that are infinite there and not on the other side."""
    nan: dict[str, int]
    largest: float
    """Largest finite value on the other side of those elements."""
    dtypes: dict[str, str]

    @property
    def overflows(self) -> bool:
        """An infinity is where values left the range; NaN alone may have other causes."""
        return any(self.infinite.values())

    def describe(self) -> str:
        """What stands there, in words."""
        parts = [
            f"{count:,} elements are {kind} in {side} ({self.dtypes[side]}) only"
            for kind, counts in (("infinite", self.infinite), ("NaN", self.nan))
            for side, count in counts.items()
            if count
        ]
        return "; ".join(parts)


def find_nonfinite_fronts(compared: RowComparison) -> list[Front]:
    """In A's execution order.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    marked = np.flatnonzero(compared.measures.nonfinite > 0)
    return [_look(compared, place) for place in find_fronts(compared, marked)]


def _look(compared: RowComparison, place: Place) -> Front:
    x = compared.alignment
    front = Front(place, {"A": 0, "B": 0}, {"A": 0, "B": 0}, 0.0, {})
    for pair in pairs_of(x, place.at):
        front.dtypes = {"A": pair.a.dtype, "B": pair.b.dtype}
        pairing = Pairing.of(pair.a.dtype, pair.b.dtype)
        for _, words_a, words_b in read_pair(x.a.dump, x.b.dump, pair):
            a, b = pairing.values(words_a, words_b)
            for side, own, other in (("A", a, b), ("B", b, a)):
                infinite = np.isinf(own) & (own != other)
                nan = np.isnan(own) & ~np.isnan(other)
                front.infinite[side] += int(infinite.sum())
                front.nan[side] += int(nan.sum())
                opposite = np.abs(other[infinite | nan])
                front.largest = max(
                    front.largest, float(opposite[np.isfinite(opposite)].max(initial=0.0))
                )
    return front
