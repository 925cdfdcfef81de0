"""Element-wise comparison of two blocks of words: what differs, the values, the ULP distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify import ulp
from verify.formats import Format, decode, encode, get_format

Words = NDArray[Any]
Mask = NDArray[np.bool_]

_INTEGER_KINDS = ("int", "uint", "bool")


@dataclass(frozen=True)
class Pairing:
    """How the elements of two formats compare.

    Equal formats compare by their bits. Different formats compare by value, with distances in ULPs
    of the coarser float format, or in ones between integers.
    """

    a: Format
    b: Format
    common: Format | None
    """Format that ULP distances are counted in; None where the two have no order in common."""

    @classmethod
    def of(cls, dtype_a: str, dtype_b: str) -> Pairing:
        a, b = get_format(dtype_a), get_format(dtype_b)
        return cls(a, b, _common(a, b))

    @property
    def same(self) -> bool:
        return self.a.name == self.b.name

    @property
    def is_integer(self) -> bool:
        return self.common is not None and self.common.kind in _INTEGER_KINDS

    @property
    def smallest_normal(self) -> float:
        """Floor of the denominator of a relative error; 1 for integers."""
        floors = [f.min_normal for f in (self.a, self.b) if f.kind not in _INTEGER_KINDS]
        return max([f for f in floors if f > 0.0], default=_MIN_NORMAL_F32 if floors else 1.0)

    def rows_equal(self, a: Words, b: Words) -> Mask:
        """Which rows of two ``[rows, row_length]`` blocks are equal."""
        if not self.same:
            return np.logical_not(self.differs(a, b).any(axis=1))
        return np.asarray(np.equal(_wide(a), _wide(b)).all(axis=1), np.bool_)

    def differs(self, a: Words, b: Words) -> Mask:
        """Where elements differ: in any bit, or in value (zeros in sign) between formats."""
        if self.same:
            return np.asarray(a != b)
        x, y = decode(a, self.a), decode(b, self.b)
        unequal = (x != y) & ~(np.isnan(x) & np.isnan(y))
        if self.a.has_signed_zero and self.b.has_signed_zero:
            unequal |= (x == 0) & (np.signbit(x.real) != np.signbit(y.real))
        return np.asarray(unequal)

    def values(self, a: Words, b: Words) -> tuple[NDArray[Any], NDArray[Any]]:
        """Values as float64, or complex128 where either side is complex."""
        return floating_values(a, self.a), floating_values(b, self.b)

    def distances(self, a: Words, b: Words) -> NDArray[np.uint64] | None:
        """ULP distances (:data:`verify.ulp.INCOMPARABLE` for NaN against a number)."""
        if self.common is None:
            return None
        return ulp.distance(
            _words_in(a, self.a, self.common), _words_in(b, self.b, self.common), self.common
        )


_MIN_NORMAL_F32 = 2.0**-126


def _common(a: Format, b: Format) -> Format | None:
    if a.name == b.name:
        return a
    if a.kind == b.kind == "float":
        if not (a.has_nan and b.has_nan and a.has_sign and b.has_sign):
            return None  # NaN or a negative number could not be rounded into the coarser one
        return min(a, b, key=lambda fmt: (fmt.mantissa_bits, fmt.exponent_bits))
    if a.kind in _INTEGER_KINDS and b.kind in _INTEGER_KINDS and "uint64" not in (a.name, b.name):
        return get_format("int64")
    return None


def _words_in(words: Words, fmt: Format, common: Format) -> Words:
    """Words of ``fmt`` as words of ``common``, rounded once where it is coarser."""
    if fmt.name == common.name:
        return words
    values = decode(words, fmt)
    if common.kind == "float":
        return encode(values, common)
    return values.astype(np.int64).view(np.uint64)


def floating_values(words: Words, fmt: Format) -> NDArray[Any]:
    """Values as float64, or complex128; integers beyond 2^53 are rounded."""
    values = decode(words, fmt)
    return values if values.dtype.kind in "fc" else values.astype(np.float64)


def _wide(words: Words) -> Words:
    """The same rows in 8-byte words where they divide evenly: equality at the speed of memory."""
    if words.shape[1] * words.itemsize % 8 or not words.flags.c_contiguous:
        return words
    return words.view(np.uint64)
