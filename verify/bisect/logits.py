"""The two best candidates of a position and how far they are apart, from recorded logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format

TOP = 5
"""Candidates listed of each side."""


@dataclass(frozen=True, slots=True)
class Logits:
    """Logits of one position in one run, [vocabulary]."""

    values: NDArray[np.float64]
    fmt: Format

    @property
    def best(self) -> set[int]:
        """All candidates with the largest logit; empty where every logit is NaN."""
        top = np.fmax.reduce(self.values, initial=-np.inf)
        return set(np.flatnonzero(self.values == top).tolist())

    def below_best(self, token: int) -> float:
        """How far a candidate is below the best."""
        known = 0 <= token < len(self.values)
        with np.errstate(invalid="ignore"):
            return float(np.fmax.reduce(self.values) - self.values[token]) if known else math.nan


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates of one row, the best first; equal logits in the order of their ids."""

    ids: list[int]
    logits: list[float]
    step: float
    """One ULP of the logits' dtype at the size of the best."""

    @property
    def margin(self) -> float:
        """Best minus second; NaN where there are not two."""
        return self.logits[0] - self.logits[1] if len(self.logits) > 1 else math.nan

    @property
    def margin_steps(self) -> float:
        """The margin in ULPs."""
        return self.margin / self.step if self.step > 0 else math.nan

    @property
    def tie(self) -> bool:
        """Best and second are equal, so that the order of evaluation decides."""
        return self.margin == 0.0


def rank(logits: NDArray[np.float64], fmt: Format, count: int = TOP) -> Ranking:
    """The ``count`` best of a row of logits, [vocabulary]; NaN is no candidate."""
    usable = np.flatnonzero(~np.isnan(logits))
    values = logits[usable]
    if len(values) > count:
        # Every logit equal to the last one that fits stays in, so that ties are seen whole.
        least = np.partition(values, len(values) - count)[len(values) - count]
        usable, values = usable[values >= least], values[values >= least]
    order = np.lexsort((usable, -values))[:count]
    best = [float(value) for value in values[order]]
    return Ranking(
        [int(token) for token in usable[order]], best, ulp_size(best[0], fmt) if best else math.nan
    )


def ulp_size(value: float, fmt: Format) -> float:
    """Distance from |value| to the next larger number of a float format; 1 for integers."""
    if fmt.kind != "float":
        return 1.0
    if not math.isfinite(value):
        return math.nan
    exponent = math.frexp(max(abs(value), fmt.min_normal))[1] - 1
    return math.ldexp(1.0, exponent - fmt.mantissa_bits)
