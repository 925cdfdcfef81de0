"""A kind of fault: what goes wrong, where it enters, and what a right report says of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from verify.bisect.result import Verdict
from verify.selftest.sizes import Size

DEFECT = frozenset({Verdict.DEFECT})
BROKEN = frozenset({Verdict.DEFECT, Verdict.OVERFLOW})
CONVENTION = frozenset({Verdict.PRECISION, Verdict.UNRESOLVED, Verdict.ROUNDING})
"""Another accepted way of rounding: to name it is best, to leave it open is right, to blame it is
not."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial plants its fault."""

    layer: int
    head: int
    """A key/value head; the query heads that share it are meant."""
    size: Size
    seed: int

    def draw(self) -> random.Random:
        """Numbers that belong to this place."""
        return random.Random(f"{self.layer} {self.head} {self.seed}")


Plant = Callable[[Any, Place], AbstractContextManager[None]]
"""(model, place): inside, the model has the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to go wrong."""

    kind: str
    """As the list of reported faults numbers it: ``K04``."""
    name: str
    plant: Plant
    taps: tuple[str, ...]
    """Taps of its layer at which it shows first, without the layer's path. ``*`` in front: of the
    whole model."""
    verdicts: frozenset[Verdict] = DEFECT
    dtype: str = ""
    """The only dtype in which it is one; empty: any."""
    sizes: tuple[Size, ...] = tuple(Size)
    on_top: bool = True
    """Also tried above innocent rounding."""
    forced: bool = True
    """B is given A's tokens."""
    heads: bool = False
    """Only the query heads of the place's group are touched, and the report has to say so."""

    def first_taps(self, place: Place, layers: str) -> frozenset[str]:
        """Full names of the taps at which this fault may show first; ``layers`` is the path of the
        model's list of layers."""
        at = f"{layers}.{place.layer}."
        return frozenset(t[1:] if t.startswith("*") else at + t for t in self.taps)
