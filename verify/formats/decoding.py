"""Words to values, exactly."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats.classify import is_nan
from verify.formats.table import Format, check_words, get_format, word_dtype


def decode(words: NDArray[Any], fmt: str | Format) -> NDArray[Any]:
    """The values of raw words, exactly: every format here fits in the type that is returned.

    Args:
        words: raw elements of ``fmt``, any shape.

    Returns:
        Same shape. float64 for the float formats (NaN codes become NaN, their payload is lost),
        complex128 for complex64, int64 or uint64 for integers, uint8 for bool.

    Raises:
        ArgumentError: unknown format, or words of another width.
    """
    fmt = get_format(fmt)
    check_words(words, fmt)
    if fmt.kind == "bool":
        flags: NDArray[np.uint8] = words.copy()
        return flags
    if fmt.kind != "float" or fmt.name in _NATIVE:
        native = np.ascontiguousarray(words).view(_NATIVE[fmt.name]).reshape(words.shape)
        with np.errstate(invalid="ignore"):  # a signalling NaN is data here, not an event
            wide: NDArray[Any] = native.astype(_WIDE[fmt.kind])
        return wide
    if fmt.name == "bfloat16":  # the upper half of a float32
        return decode(words.astype(np.uint32) << np.uint32(16), "float32")
    values: NDArray[np.float64] = code_values(fmt.name)[words]
    return values


_NATIVE: dict[str, Any] = {
    name: np.dtype(name)
    for name in (
        *("float64", "float32", "float16", "complex64"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}
_WIDE: dict[str, Any] = {
    "float": np.float64,
    "complex": np.complex128,
    "int": np.int64,
    "uint": np.uint64,
}


@cache
def code_values(name: str) -> NDArray[np.float64]:
    """The value of every code of a float format of at most 16 bits: float64 ``[2**bits]``.

    Computed from the definition in :class:`Format`; read-only, made once a format.
    """
    fmt = get_format(name)
    if fmt.kind != "float" or fmt.bits > 16:
        raise ValueError(f"{name} has no table of codes")
    codes = np.arange(1 << fmt.bits, dtype=word_dtype(fmt))
    bits = codes.astype(np.int64)
    exponent = (bits & fmt.exponent_mask) >> fmt.mantissa_bits
    mantissa = bits & ((1 << fmt.mantissa_bits) - 1)
    is_normal = (exponent > 0) | (fmt.mantissa_bits == 0)
    significand = mantissa + (is_normal.astype(np.int64) << fmt.mantissa_bits)
    unit = np.where(is_normal, exponent - fmt.bias, 1 - fmt.bias) - fmt.mantissa_bits
    values: NDArray[np.float64] = np.ldexp(significand.astype(np.float64), unit)
    if fmt.has_inf:
        values[(bits & fmt.magnitude_mask) == fmt.exponent_mask] = np.inf
    values[(bits & fmt.sign_bit) != 0] *= -1.0
    values[is_nan(codes, fmt)] = np.nan
    values.flags.writeable = False
    return values
