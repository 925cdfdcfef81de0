"""What a single operation adds: the seam for checks of its local part.

A checker is asked about every tap that differs. It may know better than the edges do: replay the
operation on the other run's input, or hold both sides against a reference (verify.replay.checker).
An operation that nothing checked keeps the verdict at UNRESOLVED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.origins import Place
from verify.bisect.result import Verdict
from verify.bounds import Bound
from verify.compare.align import rows_by_pair
from verify.compare.run import RowComparison
from verify.compare.stand_ins import stands_for
from verify.dumps.format.schema import Record


@dataclass(frozen=True, slots=True)
class Op:
    """One tap that differs, in both runs."""

    compared: RowComparison
    place: Place
    """Its differing rows, and what is known of its inputs."""
    inputs_equal: bool
    """No recorded input of these rows differs, and all inputs were recorded."""

    @property
    def a(self) -> Record:
        """A's first record of these rows."""
        x = self.compared.alignment
        return x.a.records[int(x.a.record[x.rows_a[self.place.at[0]]])]

    @property
    def b(self) -> Record:
        """B's first record of these rows."""
        x = self.compared.alignment
        return x.b.records[int(x.b.record[x.rows_b[self.place.at[0]]])]

    def largest(self, count: int) -> NDArray[np.int64]:
        """Its rows (numbers into the alignment) with the largest differences, at most ``count``."""
        at = self.place.at
        worst = np.argsort(-self.compared.measures.diff_sq[at], kind="stable")
        return at[worst[:count]]


@dataclass(frozen=True, slots=True)
class LocalFinding:
    """What a check says about the local part of an operation."""

    tap: str
    verdict: Verdict
    """ROUNDING where the local part is within its budget, PRECISION where the sides follow different
    declared conventions, UNRESOLVED where it was looked at and stays open, DEFECT where no rounding
    explains it."""
    reason: str
    bound: Bound
    """Of the element that uses most of its bound, in the unit of the tap."""
    error: float
    """|b - a| of that element."""
    row: int
    """Number of its row in the alignment."""
    element: int
    title: str = ""
    """What taps with the same title and verdict have in common; they are stated together."""
    size: float | None = None
    """Relative L2 of the local part over all rows, where it was measured."""
    fits: tuple[str, ...] = ()
    """What the local part is, each with its residual."""
    support: str = ""
    """Which part of its rows holds it, in words."""
    share: bool = False
    """``error`` is a share of the bound, of several bounds the one that is used most."""

    @property
    def used(self) -> float:
        """Share of the bound; above 1 it is broken."""
        return self.bound.used_by(self.error)


Checker = Callable[[Op], LocalFinding | None]
"""Gives None where it does not apply or cannot tell."""

CHECKERS: list[Checker] = []
"""Run over every tap that differs, in this order, until one answers."""


def check_all(compared: RowComparison, checkers: Sequence[Checker]) -> list[LocalFinding]:
    """Ask the checkers about every tap that differs, in A's execution order; empty without any."""
    if not checkers:
        return []
    x = compared.alignment
    differing = np.flatnonzero(compared.compared & (compared.measures.differing > 0))
    places: dict[str, Place] = {}
    for a, _, rows in rows_by_pair(x, differing):
        tap = x.a.records[a].tap
        places.setdefault(tap, Place(tap)).rows.append(rows)
    answers = (
        check(Op(compared, place, inputs_equal=False), checkers) for place in places.values()
    )
    return [answer for answer in answers if answer is not None]


def check(op: Op, checkers: Sequence[Checker]) -> LocalFinding | None:
    """The first answer of the checkers; none for hashes and statistics, whose distance is not that
    of their tensors."""
    if stands_for(op.a):
        return None
    return next((found for checker in checkers if (found := checker(op)) is not None), None)
