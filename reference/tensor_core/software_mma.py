"""mma.m8n8k4 on sm_80 and later, which the compiler replaces by a routine.

``t = fma(a0,b0,0); t = fma(a1,b1,t); t = fma(a2,b2,t); t = fma(a3,b3,t); d = c + t`` in float32, to nearest
even, subnormals kept (read off the machine code of ptxas 12.9 and 13.0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NAN_WORD = 0x7FFFFFFF


def software_step(
    a: NDArray[np.float64], b: NDArray[np.float64], c_words: NDArray[Any]
) -> NDArray[np.uint32]:
    """d = c + sum over the first axis of a*b, by the routine.

    Args:
        a, b: values of float16 numbers, ``[products, ...]``, broadcast against each other.
        c_words: float32 words, ``[...]``.
    """
    with np.errstate(all="ignore"):
        total = (a[0] * b[0] + 0.0).astype(np.float32)  # 22 bits: exact; -0 + 0 is +0
        for a_k, b_k in zip(a[1:], b[1:], strict=True):
            total = add_once(a_k * b_k, total.astype(np.float64))
        result = c_words.view(np.float32) + total
    words = result.view(np.uint32)
    return np.where(np.isnan(result), np.uint32(NAN_WORD), words)


def add_once(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float32]:
    """float32 of x + y with one rounding, for any two float64 numbers.

    With x the exact float64 product of two short operands this is a float32 fused multiply-add.
    The float64 sum is rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded
    sums", IEEE TC 57:4, 2008): with 53 >= 24 + 2 bits the second rounding is then harmless.
    """
    with np.errstate(all="ignore"):  # an infinity has no error term
        total = x + y
        virtual = total - x
        error = (x - (total - virtual)) + (y - virtual)  # Knuth's two-sum: x + y - total, exactly
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    toward_zero = (error > 0) != (total > 0)
    odd = bits + np.where(toward_zero, -1, 1) * inexact
    with np.errstate(over="ignore", under="ignore"):
        rounded: NDArray[np.float32] = odd.view(np.float64).astype(np.float32)
    return rounded
