"""How well taps of B explain a tap of A: every transformation that a map knows, tried on a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import decode, encode, get_format
from verify.taps.columns import interleaved_to_halves
from verify.taps.sampling import MOST, RowKey, Side, Tap, Values

NEAR = 0.25
"""Relative distance up to which values are taken for those of one tensor: tensors that have nothing
to do with each other are 1.4 apart, and 1 if one of them is tiny."""

FAR = 0.75
"""The same behind a fault, among taps that nothing else explains; what is found there is marked."""

ROUNDINGS, MOST_APART = 2.0**10, 2.0**-4
"""Distance up to which rounding explains it, in unit roundoffs, but not more than the second: errors
of many operations add up, and what is further apart could be a neighbour in the same stream."""

HEAD_DIMS = (128, 64, 256, 96, 80, 32, 16, 8)
"""Tried where no configuration names the size of a head."""

_PROBES = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """What is done to rows of B, and how far the result is from A's."""

    distance: float
    """||a - b|| / max(||a||, ||b||) over the rows looked at; 0 where every value is equal."""
    basis: str
    """``words``, ``digests`` or ``sketches``."""
    rows: int
    start: int | None = None
    """First element of B's row, where A's is a part of it."""
    heads: str | None = None
    head_dim: int = 0
    transposed: tuple[int, int] | None = None
    """Sizes of B's two axes, which A has exchanged."""

    @property
    def how(self) -> tuple[Any, ...]:
        """The transformation without its result."""
        return (self.start, self.heads, self.head_dim, self.transposed)

    @property
    def is_plain(self) -> bool:
        return self.how == (None, None, 0, None)

    def columns(self, length: int) -> NDArray[np.int64] | None:
        """For each of ``length`` elements of A the element of B."""
        if self.is_plain:
            return None
        at = np.arange(length)
        if self.heads is not None:
            at = interleaved_to_halves(length, self.head_dim, self.head_dim)
            at = at if self.heads == "interleaved" else np.argsort(at)
        if self.transposed is not None:
            at = at.reshape(self.transposed).T.reshape(-1)
        return np.asarray(at + (self.start or 0))


@dataclass(slots=True)
class Fitter:
    """Compares taps of two runs on the rows that both hold."""

    a: Side
    b: Side
    keys: Sequence[RowKey]
    head_dims: Sequence[int] = HEAD_DIMS
    _values: dict[int, Values] = field(default_factory=dict)
    _places: dict[int, dict[RowKey, int]] = field(default_factory=dict)
    _digests: dict[int, list[int]] = field(default_factory=dict)
    _sketches: dict[int, NDArray[np.float64] | None] = field(default_factory=dict)

    def rows(self, *taps: Tap) -> list[RowKey]:
        """The rows that all of these taps hold, of those that are looked at."""
        places = [self._places_of(tap) for tap in taps]
        return [key for key in self.keys if all(key in there for there in places)]

    def _places_of(self, tap: Tap) -> dict[RowKey, int]:
        if id(tap) not in self._places:
            held = [key for key in self.keys if key in tap.rows]
            held = held[: max(1, MOST // max(1, tap.row_length))]
            self._places[id(tap)] = {key: place for place, key in enumerate(held)}
        return self._places[id(tap)]

    def plain(self, a: Tap, b: Tap) -> Fit | None:
        """The row of B as it is."""
        keys = self.rows(a, b)
        if a.row_length != b.row_length or not keys or a.is_float != b.is_float:
            return None
        if a.kept == "full" == b.kept:
            return self._of_words(a, b, keys, Fit(np.inf, "words", len(keys)))
        if a.record.dtype == b.record.dtype and self._digests_agree(a, b, keys):
            return Fit(0.0, "digests", len(keys))
        x, y = self._sketch(self.a, a, keys), self._sketch(self.b, b, keys)
        if x is None or y is None or not a.is_float:
            return None
        return Fit(distance(x, y), "sketches", len(keys))

    def moved(self, a: Tap, b: Tap) -> Fit | None:
        """The best of the parts and orders of a row of B; the row as it is counts as well."""
        best = self.plain(a, b)
        if best is not None and best.distance <= room(a, b):
            return best
        if not (a.kept == "full" == b.kept and a.is_float and b.is_float):
            return best
        keys = self.rows(a, b)
        for tried in self._orders(a, b, keys):
            fit = self._of_words(a, b, keys, tried)
            if best is None or fit.distance < best.distance / 4:
                best = fit
        return best

    def again(self, a: Tap, b: Tap, fit: Fit) -> Fit | None:
        """The same transformation on another pair of taps."""
        keys = self.rows(a, b)
        if fit.is_plain:
            return self.plain(a, b)
        if not keys or not (a.kept == "full" == b.kept):
            return None
        if (fit.start or 0) + a.row_length > b.row_length:
            return None
        return self._of_words(a, b, keys, replace(fit, rows=len(keys)))

    def added(self, a: Tap, b: Tap, c: Tap) -> Fit | None:
        """The sum of two rows of B."""
        keys = self.rows(a, b, c)
        if not keys or not (a.row_length == b.row_length == c.row_length):
            return None
        if a.kept == b.kept == c.kept == "full":
            x, y, z = self.of_a(a, keys), self.of_b(b, keys), self.of_b(c, keys)
            total = y.astype(np.float64) + z.astype(np.float64)
            return Fit(_rounded_distance(x, total, a.record.dtype), "words", len(keys))
        sides = ((self.a, a), (self.b, b), (self.b, c))
        sketches = [self._sketch(side, tap, keys) for side, tap in sides]
        x, y, z = sketches  # type: ignore[assignment]
        if any(sketch is None for sketch in sketches):
            return None
        return Fit(distance(x, y + z), "sketches", len(keys))

    def joined(self, a: Tap, *parts: Tap) -> Fit | None:
        """Rows of B side by side; None without words."""
        keys = self.rows(a, *parts)
        if not keys or any(tap.kept != "full" for tap in (a, *parts)):
            return None
        whole = np.concatenate([self.of_b(part, keys) for part in parts], axis=1)
        if whole.shape[1] != a.row_length:
            return None
        return Fit(distance(self.of_a(a, keys), whole), "words", len(keys))

    def swapped(self) -> Fitter:
        """The same with the sides exchanged."""
        return Fitter(self.b, self.a, self.keys, self.head_dims)

    def signature(self, a: Tap, taps: Sequence[Tap], fit: Fit) -> object:
        """Equal for taps that present the same rows under a transformation."""
        keys = self.rows(*taps)
        if any(tap.kept != "full" for tap in taps):
            return tuple(tuple(self.b.digests(tap, keys)) for tap in taps)
        parts = [self.of_b(tap, keys).astype(np.float64) for tap in taps]
        if len({part.shape for part in parts}) > 1:
            return tuple(part.tobytes() for part in parts)
        total = np.asarray(sum(parts))
        at = fit.columns(a.row_length)
        return (total if at is None else total[:, at]).tobytes()

    def of_a(self, tap: Tap, keys: list[RowKey]) -> Values:
        return self._of(self.a, tap, keys)

    def of_b(self, tap: Tap, keys: list[RowKey]) -> Values:
        return self._of(self.b, tap, keys)

    def _of(self, side: Side, tap: Tap, keys: list[RowKey]) -> Values:
        places = self._places_of(tap)
        if id(tap) not in self._values:
            self._values[id(tap)] = side.values(tap, places)
        values = self._values[id(tap)]
        return values if len(keys) == len(places) else values[[places[key] for key in keys]]

    def _digests_agree(self, a: Tap, b: Tap, keys: list[RowKey]) -> bool:
        return self._digest(self.a, a, keys) == self._digest(self.b, b, keys)

    def _digest(self, side: Side, tap: Tap, keys: list[RowKey]) -> list[int]:
        places = self._places_of(tap)
        if id(tap) not in self._digests:
            self._digests[id(tap)] = side.digests(tap, places)
        return [self._digests[id(tap)][places[key]] for key in keys]

    def _sketch(self, side: Side, tap: Tap, keys: list[RowKey]) -> NDArray[np.float64] | None:
        places = self._places_of(tap)
        if id(tap) not in self._sketches:
            self._sketches[id(tap)] = side.sketches(tap, places)
        held = self._sketches[id(tap)]
        return None if held is None else held[[places[key] for key in keys]]

    def _of_words(self, a: Tap, b: Tap, keys: list[RowKey], tried: Fit) -> Fit:
        x, y = self.of_a(a, keys), self.of_b(b, keys)
        at = tried.columns(a.row_length)
        found = distance(x, y if at is None else y[:, at])
        return replace(tried, distance=found, rows=len(keys))

    def _orders(self, a: Tap, b: Tap, keys: list[RowKey]) -> Iterator[Fit]:
        """Transformations that bring some column of B to where A has it."""
        if not keys or b.row_length < a.row_length:
            return
        x, y = self.of_a(a, keys), self.of_b(b, keys)
        tries = [Fit(np.inf, "words", len(keys)), *self._reordered(a)]
        probe = int(np.argmax(np.nan_to_num(x.var(axis=0)) if len(x) > 1 else np.abs(x[0])))
        column_a = x[:, probe : probe + 1].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.nan_to_num(np.square(y - column_a).sum(axis=0), nan=np.inf)
            if not apart.min() <= NEAR * np.square(column_a).sum():
                return  # no column of B is near this one
        for column in np.argsort(apart, kind="stable")[:_PROBES].tolist():
            for tried in tries:
                at = tried.columns(a.row_length)
                start = column - (probe if at is None else int(at[probe]))
                if 0 <= start <= b.row_length - a.row_length:
                    whole = a.row_length == b.row_length
                    yield replace(tried, start=None if whole else start)

    def _reordered(self, a: Tap) -> Iterator[Fit]:
        for dim in self.head_dims:
            if dim % 2 == 0 and a.row_length % dim == 0:
                for heads in ("interleaved", "halves"):
                    yield Fit(np.inf, "words", 0, heads=heads, head_dim=dim)
        for dim in self.head_dims:
            if a.row_length % dim == 0 and 1 < dim < a.row_length:
                other = a.row_length // dim
                for sizes in ((dim, other), (other, dim)):
                    yield Fit(np.inf, "words", 0, transposed=sizes)


def distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Relative distance over the finite values; 0 only where every value is equal, NaN too."""
    if np.array_equal(x, y, equal_nan=True):
        return 0.0
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return np.inf
    finite = np.isfinite(x)
    x, y = x[finite].astype(np.float64), y[finite].astype(np.float64)
    size = max(float(np.linalg.norm(x)), float(np.linalg.norm(y)))
    return max(float(np.linalg.norm(x - y)) / size, np.finfo(float).tiny) if size else np.inf


def roundoff(*taps: Tap) -> float:
    """Unit roundoff of the coarsest format of some taps."""
    formats = [get_format(tap.record.dtype) for tap in taps]
    return max((2.0 ** -(f.mantissa_bits + 1) for f in formats if f.kind == "float"), default=0.0)


def is_telling(values: NDArray[Any]) -> bool:
    """Whether rows have values enough that another tensor would not have them by chance."""
    return len(np.unique(values)) > 4


def room(*taps: Tap) -> float:
    """The distance that rounding explains between tensors of these formats."""
    return min(ROUNDINGS * roundoff(*taps), MOST_APART)


def _rounded_distance(x: Values, total: NDArray[np.float64], dtype: str) -> float:
    """Of a sum, rounded to the format that A has it in."""
    return distance(x.astype(np.float64), decode(encode(total, dtype), dtype))
