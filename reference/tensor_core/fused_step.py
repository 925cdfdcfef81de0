"""One fused step: L products and an accumulator, truncated, added, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import get_format
from verify.reference.tensor_core.terms import Terms, unpack
from verify.reference.tensor_core.units import Unit

# The words of the one NaN that a tensor core makes; payloads are lost.
NAN_WORD = {"float32": 0x7FFFFFFF, "float16": 0x7FFF}


def fused_step(a: Terms, b: Terms, c_words: NDArray[Any], unit: Unit) -> NDArray[Any]:
    """d = c + sum over the first axis of a*b.

    Args:
        a, b: ``[products, ...]``, broadcast against each other and, without the first axis,
            against ``c_words``.
        c_words: ``[...]``, words of ``unit.output``.

    Returns:
        ``[...]``, words of ``unit.output``.
    """
    c = unpack(c_words, unit.output)
    total, largest = _aligned_sum(a, b, c, unit)
    words = _round(total, largest - unit.fraction_bits, unit.output)
    if a.special is None and b.special is None and c.special is None:
        return words
    return _with_specials(words, a, b, c, unit.output)


def _aligned_sum(
    a: Terms, b: Terms, c: Terms, unit: Unit
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The sum in multiples of 2^(E-F), and E.

    A product has at most 2 integer bits and F bits below, 27 bits on Hopper, so int32 holds a
    term and int64 a sum.
    """
    product_bits = 2 * get_format(unit.operands).mantissa_bits
    magnitude = (a.significand << (unit.fraction_bits - product_bits)) * b.significand
    exponent = a.exponent + b.exponent
    largest = np.maximum(exponent.max(axis=0), c.exponent)
    largest = np.maximum(largest, unit.floor_exponent)
    magnitude >>= np.minimum(largest - exponent, 31)
    total = _signed(magnitude, a.sign ^ b.sign).sum(axis=0, dtype=np.int64)
    c_bits = unit.fraction_bits - get_format(unit.output).mantissa_bits
    c_term = (c.significand << c_bits) >> np.minimum(largest - c.exponent, 31)
    return total + _signed(c_term, c.sign), largest


def _signed(magnitude: NDArray[Any], sign: NDArray[np.int32]) -> NDArray[Any]:
    """Negate where ``sign`` is -1 (it is 0 elsewhere)."""
    return (magnitude ^ sign) - sign


def _round(total: NDArray[np.int64], unit_exponent: NDArray[np.int32], output: str) -> NDArray[Any]:
    """Words of ``total * 2^unit_exponent``. A zero is +0, also where a negative sum rounds to it."""
    fmt = get_format(output)
    magnitude = np.abs(total)
    # |total| is below 2^53, so its float64 is exact and carries the position of the leading bit.
    leading = (magnitude.astype(np.float64).view(np.int64) >> 52) - 1023
    lowest = fmt.min_exponent - fmt.mantissa_bits
    quantum = np.maximum(leading + unit_exponent - fmt.mantissa_bits, lowest)
    dropped = quantum - unit_exponent
    kept = _shift(magnitude, dropped, to_nearest=output == "float16")
    code = ((quantum - lowest) << fmt.mantissa_bits) + kept
    code = np.minimum(code, fmt.exponent_mask)
    negative = (total < 0) & (code != 0)
    return np.asarray(
        (code | negative.astype(np.int64) << (fmt.bits - 1)).astype(f"uint{fmt.bits}")
    )


def _shift(
    magnitude: NDArray[np.int64], dropped: NDArray[np.int64], *, to_nearest: bool
) -> NDArray[np.int64]:
    """``magnitude * 2^-dropped`` as an integer, toward zero or to nearest even."""
    right = np.clip(dropped, 0, 62)
    kept = (magnitude >> right) << np.clip(-dropped, 0, 62)
    if to_nearest:
        half = (np.int64(1) << right) >> 1
        rest = magnitude & ((np.int64(1) << right) - 1)
        kept += (rest > half) | ((rest == half) & (half > 0) & (kept & 1 == 1))
    return kept


def _with_specials(words: NDArray[Any], a: Terms, b: Terms, c: Terms, output: str) -> NDArray[Any]:
    """IEEE rules over what is left of the operands when finite numbers are reduced to 0 and ±1."""
    with np.errstate(invalid="ignore"):
        total = (_classes(a) * _classes(b)).sum(axis=0) + _classes(c)
    infinity = np.where(np.signbit(total), np.inf * -1, np.inf)
    fmt = get_format(output)
    infinite = (infinity < 0) * np.int64(fmt.sign_bit) + fmt.exponent_mask
    special = np.where(np.isnan(total), NAN_WORD[output], infinite).astype(words.dtype)
    return np.where(np.isfinite(total), words, special)


def _classes(terms: Terms) -> NDArray[np.float64]:
    if terms.special is not None:
        return terms.special
    return np.where(terms.significand == 0, 0.0, 1.0 + 2.0 * terms.sign)
