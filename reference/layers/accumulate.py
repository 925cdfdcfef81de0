"""How a kernel adds products: chains with round to nearest (truncate.py: tensor cores).

An accumulation model turns a matrix product into an :class:`Enclosure`: the FP64 product, a
rigorous running bound (Higham, Accuracy and Stability, section 3.3: every partial sum pays for
its own rounding) and the standard deviation of the rounding model. docs/numerics.md derives both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verify.reference.layers.checks import Array, check_choice, check_count, check_number
from verify.reference.layers.enclosure import (
    FP64_SLACK,
    MEAN_ABS_OF_NORMAL,
    NEAR_SIGMAS,
    RMS_OF_ROUNDING,
    Enclosure,
    Noise,
)

FP32_UNIT = 2.0**-24
"""Largest relative error of one FP32 operation rounded to nearest."""
BF16_UNIT = 2.0**-8
SMALLEST_NORMAL_FP32 = 2.0**-126

# Partial sums are looked at after this many products; inside, |partial| <= |start| + sum|ab|.
_GRANULE = 16
# Interleaved chains, as SIMD registers and unrolled loops form them, that "any" order covers.
_LANES = 32
# A dot product with fewer distinct magnitudes in both operands repeats its rounding errors.
FEW_DISTINCT = 16
# An order that nobody declared may have larger partial sums than the two that are looked at.
_UNKNOWN_ORDER = 1.5


@dataclass(frozen=True, slots=True)
class FmaChain:
    """Sum of products in round-to-nearest arithmetic.

    Args:
        block: products in one chain; chains start at zero and their sums are added in ascending
            order. None: one chain over all of K.
        order: ``ascending``, or ``any`` where the library's order is not known (the rigorous
            bound is then the a-priori one, K u sum|ab|).
        fused: a product enters the sum unrounded.
        unit: largest relative error of one addition; 2^-24 for FP32, 2^-8 for bfloat16.
    """

    block: int | None = None
    order: Literal["ascending", "any"] = "any"
    fused: bool = True
    unit: float = FP32_UNIT

    def __post_init__(self) -> None:
        check_choice("order", self.order, ("ascending", "any"))
        check_number("unit", self.unit, least=0.0, strict=True)
        if self.block is not None:
            check_count("block", self.block)

    def __str__(self) -> str:
        unit = "FP32" if self.unit == FP32_UNIT else f"unit 2^{math.log2(self.unit):g}"
        order = "ascending order" if self.order == "ascending" else "sums in any order"
        blocks = f", chains of {self.block}" if self.block else ""
        return f"{unit} {order}{blocks}" + ("" if self.fused else ", products rounded")

    def matmul(self, x: Array, w: Array, start: Array | None = None) -> Enclosure:
        """``start + x [M, K] @ w [N, K].T`` as this chain can have computed it, before any store.

        ``start`` [N] may be the first term of the sum or the last: libraries do either.
        """
        offset = np.zeros(w.shape[0]) if start is None else np.abs(start)
        total, running, variance = self._ascending(x, w, offset)
        size = np.abs(x) @ np.abs(w).T + offset
        if self.order == "any":
            radius = self.a_priori_factor(x.shape[1] + (start is not None)) * size
            variance = np.maximum(variance, self._interleaved(x, w, offset))
            variance = _UNKNOWN_ORDER**2 * variance
        else:
            radius = running
        total = total if start is None else total + start
        radius = radius + FP64_SLACK * size + flushed(x, w)
        sigma = np.minimum(np.sqrt(variance), radius)
        repeats = repeats_roundings(x) & repeats_roundings(w).T
        sigma = np.where(repeats, radius / NEAR_SIGMAS, sigma)
        drift = np.where(repeats, radius, 0.0)
        noise = Noise(MEAN_ABS_OF_NORMAL * sigma, sigma, drift=drift)
        return Enclosure.around(total, radius, NEAR_SIGMAS * sigma + flushed(x, w), noise)

    def a_priori_factor(self, keys: int) -> float:
        """The factor of sum|ab| in the bound of a sum of ``keys`` products, whatever the data:
        (1 + u)^n - 1 with n the roundings that a product passes through."""
        block = min(self.block or keys, keys)
        longest = block + -(-keys // block) - 1 + (not self.fused)
        return math.expm1(longest * math.log1p(self.unit))

    def _ascending(self, x: Array, w: Array, offset: Array) -> tuple[Array, Array, Array]:
        """Sum, running bound and variance of the ascending order."""
        keys = x.shape[1]
        shape = (x.shape[0], w.shape[0])
        total, error, variance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        block = min(self.block or keys, keys)
        for start in range(0, keys, block):
            stop = min(start + block, keys)
            first = offset if start == 0 else np.zeros_like(offset)
            chain = self._chain(x[:, start:stop], w[:, start:stop], first)
            total = total + chain[0]
            error, variance = error + chain[1], variance + chain[2]
            if start:  # the addition of this chain to the ones before
                merged = np.abs(total) + offset
                error = (error + self.unit * merged) / (1 - self.unit)
                variance = variance + (RMS_OF_ROUNDING * self.unit * merged) ** 2
        return total, error, variance

    def _chain(self, x: Array, w: Array, offset: Array) -> tuple[Array, Array, Array]:
        """One chain; every partial sum is at most |sum of products| + ``offset``."""
        shape = (x.shape[0], w.shape[0])
        partial, error, variance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        granule = max(1, min(_GRANULE, int(0.125 / self.unit)))
        for start in range(0, x.shape[1], granule):
            a, b = x[:, start : start + granule], w[:, start : start + granule]
            count, size = a.shape[1], np.abs(a) @ np.abs(b).T
            before, partial = np.abs(partial), partial + a @ b.T
            paid = count * self.unit * (before + size + offset)
            paid = paid if self.fused else paid + self.unit * size
            # (e + paid) (1 - u)^-n <= (e + paid) (1 + 2 n u) for n u <= 1/8
            error = (error + paid) * (1 + 2 * count * self.unit)
            middle = (np.maximum(before, np.abs(partial)) + offset) ** 2 + size**2 / count
            variance += count * (RMS_OF_ROUNDING * self.unit) ** 2 * middle
        return partial, error, variance

    def _interleaved(self, x: Array, w: Array, offset: Array) -> Array:
        """Variance where every lane j sums the products j, j + lanes, j + 2 lanes, ..."""
        keys = x.shape[1]
        lanes = min(_LANES, keys)
        steps = -(-keys // lanes)
        signed = np.stack([x[:, j::lanes] @ w[:, j::lanes].T for j in range(lanes)])
        variance = np.zeros(signed.shape[1:])
        while True:
            sums = np.abs(signed)
            with_start = (sums**2).sum(axis=0) + 2 * sums.max(axis=0) * offset + offset**2
            variance = np.maximum(variance, steps * with_start)
            if len(signed) == 1:
                return np.asarray((RMS_OF_ROUNDING * self.unit) ** 2 * variance)
            if len(signed) % 2:
                signed = np.concatenate([signed, np.zeros_like(signed[:1])])
            signed = signed[: len(signed) // 2] + signed[len(signed) // 2 :]
            steps *= 2


def repeats_roundings(terms: Array) -> NDArray[np.bool_]:
    """Rows (last axis, kept) whose rounding errors do not average out, so that only the rigorous
    bound holds for their sums: few distinct magnitudes, or magnitudes so equal that each addition
    to a large partial sum rounds alike (their spread is below its spacing, about 2 n u each)."""
    ordered = np.sort(np.abs(terms), axis=-1)
    changes = (np.diff(ordered, axis=-1) != 0.0).sum(axis=-1, keepdims=True)
    alike = 8.0 * terms.shape[-1] * FP32_UNIT * ordered.mean(axis=-1, keepdims=True)
    few = changes + 1 < FEW_DISTINCT
    return np.asarray(few | (ordered.std(axis=-1, keepdims=True) < alike))


def flushed(x: Array, w: Array) -> Array:
    """What flushing subnormal operands, products and sums to zero can take away: below 2^-126 of
    each operand times its partner, and 2^-126 for each of K products."""
    tiny = SMALLEST_NORMAL_FP32
    rows, columns = np.abs(x).sum(axis=1)[:, None], np.abs(w).sum(axis=1)[None, :]
    lost: Array = tiny * (rows + columns + x.shape[1])
    return lost
