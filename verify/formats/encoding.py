"""Values to words: one round-to-nearest-even, straight from float64.

Rounding twice (float64 to float32 to float16) moves values near a midpoint, so no encoder here
goes through another format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verify.errors import ArgumentError
from verify.formats.table import Format, float_format, word_dtype

# Elements worked on at a time: small enough that the temporaries stay in the cache.
_BLOCK = 1 << 15


def encode(values_f64: ArrayLike, fmt: str | Format, *, saturate: bool = False) -> NDArray[Any]:
    """Round values to ``fmt`` and give its raw words.

    Ties go to the even neighbour; float8_e8m0fnu has no even neighbour (one digit), and there a
    tie goes to the larger, as IEEE 754-2019 section 4.3.1 says. What is too large becomes an
    infinity, NaN where there are none, and the largest finite value in float4_e2m1fn, which has
    neither. float8_e8m0fnu has no zero and no sign: zero and negative values are NaN, and a
    positive value below its smallest goes to its smallest.
    A NaN keeps its sign where the format has one; its payload is dropped (float64 keeps all bits).

    Args:
        values_f64: float64, float32 or float16 values of any shape.
        fmt: a real floating-point format.
        saturate: clamp to the largest finite value instead, infinities too (the saturating
            conversion of the OCP 8-bit specification, section 5.2.1).

    Returns:
        Words of ``word_dtype(fmt)``, same shape.

    Raises:
        ArgumentError: not a floating-point format, values of another type, or a NaN for
            float4_e2m1fn.
    """
    fmt = float_format(fmt)
    values = _as_float64(values_f64)
    flat = values.reshape(-1)
    words = np.empty(flat.size, dtype=word_dtype(fmt))
    for start in range(0, flat.size, _BLOCK):
        words[start : start + _BLOCK] = _encode_block(flat[start : start + _BLOCK], fmt, saturate)
    return words.reshape(values.shape)


def _as_float64(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ArgumentError(
            "only float64, float32 and float16 values can be encoded with one rounding",
            where="values",
            found=array.dtype,
            allowed="float64, float32, float16",
            hint="convert exactly first; verify.reference.rounding rounds exact numbers",
        )
    return array.astype(np.float64, copy=False)


def _encode_block(values: NDArray[np.float64], fmt: Format, saturate: bool) -> NDArray[Any]:
    if fmt.nan == "none" and np.isnan(values).any():
        raise ArgumentError(
            f"{fmt.name} has no NaN to encode a NaN with", where="values", found="NaN"
        )
    if saturate or fmt.nan == "none":
        values = np.clip(values, -fmt.max_finite, fmt.max_finite)
    if fmt.name == "float64":
        return values.view(np.uint64)
    if fmt.name == "float32":
        return _encode_float32(values)
    code = _round_magnitude(np.abs(values), fmt)
    code = _with_sign(code, values, fmt) if fmt.has_sign else _without_sign(code, values)
    return code.astype(word_dtype(fmt))


def _encode_float32(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """The processor's own conversion rounds once from float64 (tests hold it to that)."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        words = values.astype(np.float32).view(np.uint32)
    nan = np.isnan(values)
    if nan.any():
        words[nan] = 0x7FC00000 | (np.signbit(values[nan]) * np.uint32(1 << 31))
    return words


def _round_magnitude(magnitude: NDArray[np.float64], fmt: Format) -> NDArray[np.int64]:
    """The code of |x| rounded to nearest, by integer arithmetic on the bits of float64.

    Free of branches: masks that change from element to element cost more than the arithmetic.
    """
    dropped = 52 - fmt.mantissa_bits
    bits = magnitude.view(np.int64)
    # The lowest kept bit makes a tie go to even; without mantissa bits a tie goes up.
    lowest = (bits >> dropped) & 1 if fmt.mantissa_bits else 1
    code = (bits + ((1 << (dropped - 1)) - 1 + lowest)) >> dropped
    code -= (1023 - fmt.bias) << fmt.mantissa_bits
    if fmt.mantissa_bits:
        code = np.maximum(code, _round_subnormal(magnitude, fmt))
    # In every format the code after the largest finite one is what overflow becomes.
    return np.asarray(np.minimum(code, _overflow_code(fmt)))


def _round_subnormal(magnitude: NDArray[np.float64], fmt: Format) -> NDArray[np.int64]:
    """The code of min(|x|, smallest normal), which grows linearly with |x|.

    The code of the normal rule is the smaller one below ``min_normal`` (it is linear between
    powers of two and falls by 2^mantissa_bits an octave), so the larger of the two is right.
    """
    # Adding 2^52 quanta rounds to a multiple of the quantum, to nearest even.
    shift = np.float64(fmt.min_subnormal * 2.0**52)
    rounded = np.fmin(magnitude, fmt.min_normal) + shift
    return np.asarray(rounded.view(np.int64) - shift.view(np.int64))


def _overflow_code(fmt: Format) -> int:
    """The infinity, or the NaN, that follows the largest finite magnitude."""
    if fmt.nan == "ieee":
        return fmt.exponent_mask
    return fmt.magnitude_mask + (fmt.nan != "all_ones")


def _with_sign(
    code: NDArray[np.int64], values: NDArray[np.float64], fmt: Format
) -> NDArray[np.int64]:
    negative = (values.view(np.uint64) >> np.uint64(63)).astype(np.int64)
    if not fmt.has_signed_zero:
        negative &= code != 0  # a negative that rounds to zero is +0: the code of -0 is NaN
    if fmt.nan == "ieee":  # infinity so far; the quiet bit makes it NaN
        code |= np.isnan(values).astype(np.int64) << (fmt.mantissa_bits - 1)
    return np.asarray(code | (negative << (fmt.bits - 1)))


def _without_sign(code: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """float8_e8m0fnu: NaN for what is not positive; tiny values go to the nearest one it has."""
    return np.asarray(np.where(values > 0.0, np.maximum(code, 0), 0xFF))
