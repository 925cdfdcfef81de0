"""Limits of test statistics, from the number of tests made and the error rate wanted.

Roundings are bounded, so their sums have lighter tails than the normal law with the same variance
(a uniform variable is strictly sub-Gaussian: Arbel, Marchal, Nguyen, "On strict sub-Gaussianity",
ESAIM: PS 24, 2020). The tail bounds below hold for all of those and need no table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify.bounds import Bound
from verify.errors import ArgumentError

DEFECT_P = 1e-9
"""Family-wise chance of calling correct rounding a defect."""

SUSPECT_P = 1e-4
"""Family-wise chance of calling correct rounding suspect."""


@dataclass(frozen=True, slots=True)
class Family:
    """All tests that are made together, over which the chance of a false alarm is kept.

    Args:
        tests: how many statistics are compared with a limit, over all outputs judged.
    """

    tests: int

    def __post_init__(self) -> None:
        if self.tests < 1:
            raise ArgumentError(
                "a family of tests has at least one test", where="tests", found=self.tests,
                allowed="an integer >= 1",
            )  # fmt: skip

    def exponent(self, chance: float = DEFECT_P) -> float:
        """t with ``tests * exp(-t) = chance`` (union bound)."""
        return math.log(self.tests / chance)

    def z_limit(self, chance: float = DEFECT_P) -> Bound:
        """Limit on |z|: sub-Gaussian tail P(|z| > x) <= 2 exp(-x^2 / 2)."""
        value = math.sqrt(2.0 * (self.exponent(chance) + math.log(2.0)))
        return Bound(value, f"|z| with chance {chance:g} over {self.tests} tests, sub-Gaussian")

    def chi2_limit(
        self, dof: float, *, squares: float | None = None, largest: float = 1.0,
        chance: float = DEFECT_P,
    ) -> Bound:  # fmt: skip
        """Limit on a sum of squared z, whatever their correlation.

        Hsu, Kakade, Zhang, "A tail inequality for quadratic forms of subgaussian random vectors"
        (ECP 17, 2012): P(sum z^2 > tr C + 2 sqrt(tr C^2 t) + 2 |C| t) <= exp(-t), C the
        correlation matrix of the z.

        Args:
            dof: tr C, the number of terms.
            squares: tr C^2; ``dof`` where the z are uncorrelated.
            largest: |C|, the largest eigenvalue; 1 where uncorrelated.
        """
        t = self.exponent(chance)
        spread = dof if squares is None else squares
        value = dof + 2.0 * math.sqrt(spread * t) + 2.0 * largest * t
        return Bound(
            value, f"sum of {dof:g} squares with chance {chance:g} over {self.tests} tests"
        )


def log10_p_of_z(z: float, tests: int) -> float:
    """log10 of the family-wise chance bound of |z|, at most 0."""
    return min(0.0, (math.log(2.0 * tests) - 0.5 * z * z) / math.log(10.0))


def log10_p_of_chi2(
    value: float, dof: float, tests: int, *, squares: float | None = None, largest: float = 1.0
) -> float:
    """log10 of the family-wise chance bound of a sum of squares, at most 0.

    Inverts the tail inequality of :meth:`Family.chi2_limit` for t.
    """
    excess = value - dof
    if excess <= 0.0:
        return 0.0
    spread = dof if squares is None else squares
    # dof + 2 sqrt(spread t) + 2 largest t = value, a quadratic in sqrt(t)
    root = (-math.sqrt(spread) + math.sqrt(spread + 2.0 * largest * excess)) / (2.0 * largest)
    return min(0.0, (math.log(tests) - root * root) / math.log(10.0))
