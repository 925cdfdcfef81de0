"""Raw words as sign, integer significand and exponent, the way a tensor core reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import decode, get_format

ABSENT = -(1 << 20)
"""Exponent of a term that is zero: below every other, so it takes no part in the maximum."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Numbers ``(-1)^sign * significand * 2^(exponent - mantissa_bits)``, any shape.

    ``exponent`` is max(floor(log2|x|), smallest normal exponent), so the significand of a
    subnormal is below one: nothing is normalised. Zeros, infinities and NaN have significand 0
    and exponent :data:`ABSENT`. ``special`` is None where all are finite; else it holds infinities
    and NaN as they are, zeros as zero, and every other number as 1 with its sign.
    """

    sign: NDArray[np.int32]
    significand: NDArray[np.int32]
    exponent: NDArray[np.int32]
    special: NDArray[np.float64] | None

    def __getitem__(self, index: Any) -> Terms:
        special = None if self.special is None else self.special[index]
        return Terms(self.sign[index], self.significand[index], self.exponent[index], special)


def unpack(words: NDArray[Any], name: str) -> Terms:
    """Split the words of float16, bfloat16 or float32; ``sign`` is 0 or -1."""
    fmt = get_format(name)
    bits = words.astype(np.int64)
    field = (bits & fmt.exponent_mask) >> fmt.mantissa_bits
    mantissa = bits & ((1 << fmt.mantissa_bits) - 1)
    significand = mantissa + ((field > 0).astype(np.int64) << fmt.mantissa_bits)
    finite = field != fmt.exponent_mask >> fmt.mantissa_bits
    present = finite & (significand != 0)
    exponent = np.where(present, np.maximum(field, 1) - fmt.bias, ABSENT)
    return Terms(
        sign=-(bits >> (fmt.bits - 1)).astype(np.int32),
        significand=np.where(present, significand, 0).astype(np.int32),
        exponent=exponent.astype(np.int32),
        special=None if finite.all() else _classes(words, name),
    )


def _classes(words: NDArray[Any], name: str) -> NDArray[np.float64]:
    values = decode(words, name)
    return np.where(np.isfinite(values) & (values != 0), np.copysign(1.0, values), values)
