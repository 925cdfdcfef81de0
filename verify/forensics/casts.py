"""Detector: one side's values are the other side's, rounded through a narrower format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verify.compare.elements import Words
from verify.formats import FORMATS, Format, decode, encode

# A format that misses more than this of the first block is not looked at again.
_KEEP = 0.5
_BLOCK = 1 << 16

Rounded = Literal["A", "B"]


@dataclass(frozen=True, slots=True)
class Cast:
    """How well "``rounded`` is the other side rounded to ``format``" holds."""

    format: str
    rounded: Rounded
    """The side that carries the rounded values."""
    saturating: bool | None
    """Too large values became the largest finite one; None where nothing was too large."""
    elements: int
    matching: int
    differing: int
    """Elements that differ between A and B."""
    differing_matching: int

    @property
    def exact(self) -> bool:
        """Every element is explained, and there is something to explain."""
        return self.matching == self.elements and self.differing > 0

    @property
    def share(self) -> float:
        """Share of the differing elements that the cast explains."""
        return self.differing_matching / self.differing if self.differing else 0.0

    def describe(self) -> str:
        """One line for a report."""
        other = "A" if self.rounded == "B" else "B"
        overflow = {True: ", saturating", False: ", not saturating", None: ""}[self.saturating]
        return (
            f"{self.rounded} is {other} rounded to {self.format} (scale 1{overflow}): "
            f"{self.matching:,} of {self.elements:,} elements, "
            f"{self.differing_matching:,} of the {self.differing:,} that differ"
        )


def find_casts(
    blocks: Iterable[tuple[Words, Words]], a: Format, b: Format, least: float = 0.99
) -> list[Cast]:
    """Casts that explain at least the share ``least`` of the differing elements, best first.

    Args:
        blocks: words of the same rows in A and in B.
        a, b: their formats; nothing is found unless both are real floating-point formats.
        least: share of the differing elements.
    """
    if a.kind != "float" or b.kind != "float":
        return []
    tallies = list(_candidates(a, b))
    for words_a, words_b in _pieces(blocks):
        x, y = decode(words_a, a), decode(words_b, b)
        differs = _unequal(x, y)
        for tally in tallies:
            tally.add(x, y, differs)
        tallies = [t for t in tallies if t.matching >= _KEEP * t.elements]
    found = {t.result(): None for t in tallies if t.differing}
    ranked = sorted((cast for cast in found if cast.share >= least), key=_rank)
    exact = [cast for cast in ranked if cast.exact]
    return exact or ranked


def _rank(cast: Cast) -> tuple[float, int, str]:
    return (-cast.share, FORMATS[cast.format].mantissa_bits, cast.format)


@dataclass(slots=True)
class _Tally:
    target: Format
    rounded: Rounded
    saturate: bool
    elements: int = 0
    matching: int = 0
    differing: int = 0
    differing_matching: int = 0
    overflowing: int = 0

    def add(self, x: NDArray[Any], y: NDArray[Any], differs: NDArray[np.bool_]) -> None:
        source, wanted = (x, y) if self.rounded == "B" else (y, x)
        given = decode(encode(source, self.target, saturate=self.saturate), self.target)
        matches = ~_unequal(given, wanted)
        self.elements += x.size
        self.matching += int(matches.sum())
        self.differing += int(differs.sum())
        self.differing_matching += int((matches & differs).sum())
        self.overflowing += int((np.abs(source) > self.target.max_finite).sum())

    def result(self) -> Cast:
        return Cast(
            self.target.name,
            self.rounded,
            self.saturate if self.overflowing else None,
            self.elements,
            self.matching,
            self.differing,
            self.differing_matching,
        )


def _candidates(a: Format, b: Format) -> Iterator[_Tally]:
    """Every format coarser than the side that was not rounded, both ways of overflowing."""
    sides: tuple[tuple[Format, Rounded], ...] = ((a, "B"), (b, "A"))
    for source, rounded in sides:
        for target in FORMATS.values():
            if target.kind != "float" or not target.has_nan or not target.has_sign:
                continue
            if target.mantissa_bits < source.mantissa_bits:
                yield _Tally(target, rounded, saturate=True)
                yield _Tally(target, rounded, saturate=False)


def _pieces(blocks: Iterable[tuple[Words, Words]]) -> Iterator[tuple[Words, Words]]:
    for words_a, words_b in blocks:
        flat_a, flat_b = words_a.reshape(-1), words_b.reshape(-1)
        for start in range(0, flat_a.size, _BLOCK):
            yield flat_a[start : start + _BLOCK], flat_b[start : start + _BLOCK]


def _unequal(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Unequal values; NaN equals NaN, and zeros are equal whatever their sign."""
    return np.asarray((x != y) & ~(np.isnan(x) & np.isnan(y)))
