"""How a tensor core adds products: truncating steps of a few products each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.reference.layers.accumulate import FP32_UNIT, flushed
from verify.reference.layers.checks import Array, check_count
from verify.reference.layers.enclosure import (
    FP64_SLACK,
    MEAN_ABS_OF_NORMAL,
    NEAR_SIGMAS,
    RMS_OF_ROUNDING,
    Enclosure,
    Noise,
)

# Partial sums are looked at after about this many products.
_GRANULE = 16


@dataclass(frozen=True, slots=True)
class TensorCore:
    """Truncating fused dot products of ``products`` terms and the accumulator, aligned to the
    largest exponent with ``fraction_bits`` kept; steps ascend over K.

    ``chain`` products accumulate in the tensor core before the sum is added to FP32 registers
    with round to nearest; None: all of K in one chain. ``min_exponent`` is that of the operand
    format: subnormal operands are not normalised and align as if they had it.
    """

    products: int
    fraction_bits: int
    chain: int | None = None
    min_exponent: int = -14

    def __post_init__(self) -> None:
        check_count("products", self.products)
        check_count("fraction_bits", self.fraction_bits)
        if self.chain is not None:
            check_count("chain", self.chain)

    def __str__(self) -> str:
        chain = f", chains of {self.chain}" if self.chain else ""
        return f"tensor core: {self.products} products a step, {self.fraction_bits} bits{chain}"

    def matmul(self, x: Array, w: Array, start: Array | None = None) -> Enclosure:
        """``start + x [M, K] @ w [N, K].T`` as this tensor core can have computed it, in FP32;
        ``start`` [N] as in :meth:`FmaChain.matmul`."""
        shape = (x.shape[0], w.shape[0])
        offset = np.zeros(w.shape[0]) if start is None else np.abs(start)
        total, error = np.zeros(shape), np.zeros(shape)
        variance, drift = np.zeros(shape), np.zeros(shape)
        chain = self.chain or x.shape[1]
        for begin in range(0, x.shape[1], chain):
            first = offset if begin == 0 else np.zeros_like(offset)
            part = self._chain(x[:, begin : begin + chain], w[:, begin : begin + chain], first)
            total = total + part[0]
            error, variance, drift = error + part[1], variance + part[2], drift + part[3]
            if begin:
                merged = np.abs(total) + offset
                error = (error + FP32_UNIT * merged) / (1 - FP32_UNIT)
                variance = variance + (RMS_OF_ROUNDING * FP32_UNIT * merged) ** 2
        total = total if start is None else total + start
        radius = error + FP64_SLACK * (np.abs(x) @ np.abs(w).T + offset) + flushed(x, w)
        sigma, drift = np.minimum(np.sqrt(variance), radius), np.minimum(drift, radius)
        noise = Noise(MEAN_ABS_OF_NORMAL * sigma, sigma, np.zeros(()), drift)
        return Enclosure.around(total, radius, NEAR_SIGMAS * sigma + drift, noise)

    def a_priori_factor(self, keys: int) -> float:
        """The factor of sum|ab| in the bound of a sum of ``keys`` products, whatever the data:
        ``ceil(K / L)`` steps that lose ``(L 2^-F + 2^-23)`` each, and one rounding a chain."""
        steps = -(-keys // self.products)
        loss = self.products * 2.0**-self.fraction_bits + 2.0**-23
        merges = -(-keys // self.chain) - 1 if self.chain else 0
        longest = min(steps, -(-(self.chain or keys) // self.products))
        return longest * loss * (1 + steps * loss) + merges * FP32_UNIT

    def _chain(self, x: Array, w: Array, offset: Array) -> tuple[Array, Array, Array, Array]:
        """Sum, running bound, variance and drift of one chain, looked at every few steps."""
        shape = (x.shape[0], w.shape[0])
        partial, error = np.zeros(shape), np.zeros(shape)
        variance, drift = np.zeros(shape), np.zeros(shape)
        floor = 2.0**self.min_exponent
        granule = self.products * max(1, _GRANULE // self.products)
        lost = self.products * 2.0**-self.fraction_bits
        for start in range(0, x.shape[1], granule):
            a, b = x[:, start : start + granule], w[:, start : start + granule]
            steps = -(-a.shape[1] // self.products)
            # Products of pinned exponents bound what aligns the step (see min_exponent).
            size = _pinned(a, floor) @ _pinned(b, floor).T
            before, partial = np.abs(partial), partial + a @ b.T
            # Each of at most L terms loses < 2^(E-F), then 24 bits are kept by truncation.
            top = before + size + error + offset
            error = (error + steps * (lost + 2.0**-23) * top) * (1 + steps * 2.0**-20)
            middle = np.maximum(before, np.abs(partial)) + offset
            # Truncations are uniform on [0, quantum): deviation quantum / sqrt(12) each.
            deviation = 2.0**-23 + self.products**0.5 * 2.0**-self.fraction_bits
            variance += steps * (deviation / 12**0.5) ** 2 * (middle + size / steps**0.5) ** 2
            # Mean loss is half a quantum a term, all of one sign where the sum has one.
            drift += steps * (lost / 2 + 2.0**-24) * middle
        return partial, error, variance, drift


V100 = TensorCore(products=4, fraction_bits=23)
A100 = TensorCore(products=8, fraction_bits=24)
H200 = TensorCore(products=16, fraction_bits=25)


def _pinned(operand: Array, floor: float) -> Array:
    return np.where(operand == 0.0, 0.0, np.maximum(np.abs(operand), floor))
