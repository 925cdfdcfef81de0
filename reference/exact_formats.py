"""A second decoder and encoder for every float format, in exact rational arithmetic.

It shares nothing with ``verify.formats``: the constants are written out again, a value is built
from the bits as a Fraction, and encoding is a search for the two neighbouring codes and a
comparison with their midpoint. Slow, and short enough to be checked against the specification by
eye; it is what the fast codec is tested with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from verify.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Layout:
    """How to read the bits of one format.

    ``last`` is the magnitude code of the largest finite value; ``inf`` that of infinity, if any;
    ``nan`` the words, sign included, that encoding may produce for NaN: (for +, for -).
    """

    sign: int
    exponent: int
    mantissa: int
    bias: int
    last: int
    inf: int | None
    nan: tuple[int, int] | None
    negative_zero: bool


# fmt: off
# IEEE 754-2019 table 3.5; OCP OFP8 1.0 tables 1 and 2; arXiv 2206.02915 table 2; OCP MX 1.0
# section 5.3.3 (FP4) and 5.4.1 (E8M0). bfloat16 is a float32 without its low 16 bits.
LAYOUTS: dict[str, Layout] = {
    "float64":         Layout(1, 11, 52, 1023, (2047 << 52) - 1, 2047 << 52, (0x7FF8 << 48, 0xFFF8 << 48), True),
    "float32":         Layout(1, 8, 23, 127, 0x7F7FFFFF, 0x7F800000, (0x7FC00000, 0xFFC00000), True),
    "float16":         Layout(1, 5, 10, 15, 0x7BFF, 0x7C00, (0x7E00, 0xFE00), True),
    "bfloat16":        Layout(1, 8, 7, 127, 0x7F7F, 0x7F80, (0x7FC0, 0xFFC0), True),
    "float8_e4m3fn":   Layout(1, 4, 3, 7, 0x7E, None, (0x7F, 0xFF), True),
    "float8_e4m3fnuz": Layout(1, 4, 3, 8, 0x7F, None, (0x80, 0x80), False),
    "float8_e5m2":     Layout(1, 5, 2, 15, 0x7B, 0x7C, (0x7E, 0xFE), True),
    "float8_e5m2fnuz": Layout(1, 5, 2, 16, 0x7F, None, (0x80, 0x80), False),
    "float8_e8m0fnu":  Layout(0, 8, 0, 127, 0xFE, None, (0xFF, 0xFF), False),
    "float4_e2m1fn":   Layout(1, 2, 1, 1, 0x7, None, None, True),
}
# fmt: on


def decode_exact(word: int, name: str) -> Fraction | float:
    """The value of one word: a Fraction, or a float for NaN, an infinity and -0.0.

    Raises:
        ArgumentError: unknown format, or a word that does not fit in it.
    """
    layout = _layout(name)
    width = layout.sign + layout.exponent + layout.mantissa
    if not 0 <= word < 1 << width:
        raise ArgumentError(
            f"not a word of {name}", where="word", found=hex(word), allowed=f"{width} bits"
        )
    negative = bool(layout.sign) and word >> (width - 1) == 1
    magnitude = word - (1 << (width - 1)) if negative else word
    if negative and magnitude == 0:
        return -0.0 if layout.negative_zero else math.nan
    if magnitude == layout.inf:
        return -math.inf if negative else math.inf
    if magnitude > layout.last:
        return math.nan
    value = _magnitude(magnitude, layout)
    return -value if negative else value


def encode_exact(value: Fraction | float, name: str, *, saturate: bool = False) -> int:
    """The word of the nearest value, ties to the even code; see ``verify.formats.encode``.

    Raises:
        ArgumentError: unknown format, or a NaN for float4_e2m1fn.
    """
    layout = _layout(name)
    if isinstance(value, float) and math.isnan(value):
        if layout.nan is None:
            raise ArgumentError(f"{name} has no NaN", where="value", found="NaN")
        return layout.nan[math.copysign(1.0, value) < 0]
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    if layout.sign == 0 and (negative or value == 0):
        assert layout.nan is not None
        return layout.nan[0]
    code = _nearest(-value if negative else value, layout)
    if code > layout.last and (saturate or layout.nan is None):
        code = layout.last
    return _with_sign(code, negative, layout)


def _layout(name: str) -> Layout:
    if name not in LAYOUTS:
        raise ArgumentError(
            "unknown float format", where="format", found=repr(name), allowed=", ".join(LAYOUTS)
        )
    return LAYOUTS[name]


def _magnitude(code: int, layout: Layout) -> Fraction:
    """The value of a magnitude code, also of the one that would follow the largest finite."""
    field = code >> layout.mantissa
    fraction = Fraction(code % (1 << layout.mantissa), 1 << layout.mantissa)
    if field == 0 and layout.mantissa:
        return fraction * Fraction(2) ** (1 - layout.bias)
    return (1 + fraction) * Fraction(2) ** (field - layout.bias)


def _nearest(magnitude: Fraction | float, layout: Layout) -> int:
    """The nearest magnitude code; ``last + 1`` stands for everything too large."""
    if magnitude == math.inf:
        return layout.last + 1
    exact = Fraction(magnitude)
    if exact < _magnitude(0, layout):  # float8_e8m0fnu, which has no zero
        return 0
    low, high = 0, layout.last + 1
    while high - low > 1:  # value(low) <= exact, and high is past the end or value(high) > exact
        middle = (low + high) // 2
        low, high = (middle, high) if _magnitude(middle, layout) <= exact else (low, middle)
    twice = 2 * exact - (_magnitude(low, layout) + _magnitude(low + 1, layout))
    if twice == 0 and layout.mantissa:
        return low + low % 2
    return low + (twice >= 0)


def _with_sign(code: int, negative: bool, layout: Layout) -> int:
    if code > layout.last and layout.inf is None:
        assert layout.nan is not None
        return layout.nan[negative]
    if code == 0 and not layout.negative_zero:
        return 0
    return code + ((1 << (layout.exponent + layout.mantissa)) if negative else 0)
