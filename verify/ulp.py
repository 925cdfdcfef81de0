"""Distance in units in the last place, through integers that are ordered as the values are.

Two neighbouring values of a format are 1 apart, whatever their exponent, and -0 lies 1 below +0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import Format, get_format, is_nan, word_dtype
from verify.formats.classify import complex_parts
from verify.formats.table import check_words

INCOMPARABLE = 2**64 - 1
"""The distance between NaN and anything that is not, bit for bit, the same NaN."""

# Elements worked on at a time: small enough that the temporaries stay in the cache.
_BLOCK = 1 << 15

_TOP_BIT = np.uint64(1 << 63)


def ordered(
    words: NDArray[Any], fmt: str | Format, *, zeros_equal: bool = False
) -> NDArray[np.int64]:
    """Integers in the order of the values: ``x < y`` exactly where ``ordered(x) < ordered(y)``.

    +0 is 0 and -0 is -1, or 0 with ``zeros_equal``. Infinities follow the largest finite value.
    NaN has no place in the order: its integer means nothing, ask :func:`verify.formats.is_nan`.
    uint64 values are shifted by ``-2**63``.

    Args:
        words: raw elements of ``fmt``, any shape.

    Raises:
        ArgumentError: unknown format, words of another width, or complex64, which has no order.
    """
    fmt = get_format(fmt)
    check_words(words, fmt)
    if fmt.kind == "complex":
        raise ArgumentError(
            "complex numbers have no order",
            where="format",
            found=fmt.name,
            hint="view the words as pairs of float32",
        )
    if fmt.name == "uint64":
        shifted: NDArray[np.int64] = (words ^ _TOP_BIT).view(np.int64)
        return shifted
    if fmt.kind == "int":
        signed: NDArray[np.int64] = words.view(f"int{fmt.bits}").astype(np.int64)
        return signed
    magnitude: NDArray[np.int64] = (words & words.dtype.type(fmt.magnitude_mask)).astype(np.int64)
    if not fmt.has_sign:
        return magnitude
    sign = -(words >> (fmt.bits - 1)).astype(np.int64)  # 0, or -1 for a negative word
    magnitude ^= sign  # -magnitude - 1 where negative
    if zeros_equal or not fmt.has_signed_zero:
        magnitude -= sign  # -magnitude
    return magnitude


def distance(
    a_words: NDArray[Any],
    b_words: NDArray[Any],
    fmt: str | Format,
    *,
    zeros_equal: bool = False,
    nan_equal: bool = False,
) -> NDArray[np.uint64]:
    """How many representable values apart two tensors are, element by element.

    Args:
        a_words, b_words: raw elements of ``fmt``, equal shapes.
        zeros_equal: count -0 and +0 as one value; else they are 1 apart.
        nan_equal: 0 between two NaN of the same bits; else NaN is never equal.

    Returns:
        uint64, same shape. :data:`INCOMPARABLE` where exactly one side is NaN, or both are and
        their bits differ (or agree and ``nan_equal`` is False). The larger of the two parts'
        distances for complex64. Distances between 64-bit integers stop at ``INCOMPARABLE - 1``.

    Raises:
        ArgumentError: unknown format, words of another width, or shapes that differ.
    """
    fmt = get_format(fmt)
    check_words(a_words, fmt)
    check_words(b_words, fmt)
    if a_words.shape != b_words.shape:
        raise ArgumentError(
            "two tensors of different shapes have no element-wise distance",
            where="b_words",
            found=b_words.shape,
            allowed=a_words.shape,
        )
    if fmt.kind == "complex":
        parts = (complex_parts(a_words), complex_parts(b_words))
        return np.asarray(
            distance(*parts, "float32", zeros_equal=zeros_equal, nan_equal=nan_equal).max(axis=-1)
        )
    a, b = a_words.reshape(-1), b_words.reshape(-1)
    result = np.empty(a.shape, dtype=np.uint64)
    for start in range(0, a.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _block_distance(a[block], b[block], fmt, zeros_equal, nan_equal)
    return result.reshape(a_words.shape)


def _block_distance(
    a: NDArray[Any], b: NDArray[Any], fmt: Format, zeros_equal: bool, nan_equal: bool
) -> NDArray[np.uint64]:
    result = _order_distance(a, b, fmt, zeros_equal)
    nan = is_nan(a, fmt) | is_nan(b, fmt)
    if nan.any():
        same = (a == b) & nan_equal
        result[nan] = np.where(same[nan], np.uint64(0), np.uint64(INCOMPARABLE))
    return result


def _order_distance(
    a_words: NDArray[Any], b_words: NDArray[Any], fmt: Format, zeros_equal: bool
) -> NDArray[np.uint64]:
    a = ordered(a_words, fmt, zeros_equal=zeros_equal)
    b = ordered(b_words, fmt, zeros_equal=zeros_equal)
    # Modulo 2^64 the larger less the smaller is exact, also beyond 2^63.
    result: NDArray[np.uint64] = np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
    if fmt.kind in ("int", "uint") and word_dtype(fmt).itemsize == 8:
        np.minimum(result, np.uint64(INCOMPARABLE - 1), out=result)
    return result
