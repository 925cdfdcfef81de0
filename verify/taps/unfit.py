"""Proposals for taps that no values tell: by length, order and name, and said to be that."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from verify.taps.candidates import Candidate
from verify.taps.choose import Choice
from verify.taps.families import Family

_ALIKE = 0.6
"""Least likeness of two names that length and order alone are taken to mean something with."""


def by_shape(
    wanted: Sequence[Family], unused: Sequence[Family], covered: Collection[str]
) -> list[Choice]:
    """One choice for each family of A that exactly one unused family of B resembles: of the same
    row length and kind of numbers, with as many layers, and with a name alike."""
    found = []
    for a in wanted:
        if any(tap.name in covered for tap in a.members.values()):
            continue
        alike = [
            candidate
            for b in unused
            if _same_shape(a, b) and (candidate := Candidate(a, (b,), 0)).similarity() >= _ALIKE
        ]
        if len(alike) == 1:
            found.append(Choice(alike[0], 1, None))
    return found


def _same_shape(a: Family, b: Family) -> bool:
    return (
        a.any.row_length == b.any.row_length
        and a.any.is_float == b.any.is_float
        and a.any.is_keyed == b.any.is_keyed
        and a.members.keys() == b.members.keys()
    )
