"""What a reference says about a case, and which side is which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.reference.certificates.result import Outcome
from verify.replay.cases import Case

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the reference says about the rows of a case.

    ``error_a`` and ``error_b``: relative L2 distances from FP64. ``used``: share of the budget that
    the element which uses most of it needs, ``apart`` its |b - a|; ``row`` and ``element`` say
    which one.
    """

    outcome: Outcome
    op: str
    reason: str
    error_a: float
    error_b: float
    used: float
    apart: float
    row: int
    element: int
    rows: int

    @property
    def closer(self) -> str:
        """Which side is closer to FP64: ``A``, ``B`` or ``equal`` (within 5 %)."""
        low, high = sorted((self.error_a, self.error_b))
        # Two correct kernels round differently here and there; their errors agree that well.
        if high <= 1.05 * low:
            return "equal"
        return "A" if self.error_a < self.error_b else "B"


@dataclass(frozen=True, slots=True)
class Sides:
    """Which of a case's words are of run A, and what A's and B's cores are called."""

    wanted_is_a: bool
    implementation_a: str = ""
    implementation_b: str = ""
    both_move: bool = False
    """Between the recorded inputs and the tap both runs only moved values."""

    def of(self, case: Case) -> tuple[Any, Any]:
        """Words of A and of B."""
        return (case.wanted, case.computed) if self.wanted_is_a else (case.computed, case.wanted)


def worst_element(a: Values, b: Values) -> tuple[int, int, float]:
    with np.errstate(invalid="ignore"):
        apart = np.abs(b - a)
    apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)
    apart = np.where(np.isfinite(apart), apart, np.inf)
    row, element = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return int(row), int(element), float(apart[row, element])


def relative_error(values: Values, truth: Values) -> float:
    with np.errstate(invalid="ignore"):
        apart = np.abs(values - truth)
    apart = np.where((values == truth) | (np.isnan(values) & np.isnan(truth)), 0.0, apart)
    if not np.isfinite(apart).all():
        return float("inf")
    size = float(np.linalg.norm(np.where(np.isfinite(truth), truth, 0.0)))
    error = float(np.linalg.norm(apart))
    return error / size if size > 0.0 else (float("inf") if error else 0.0)
