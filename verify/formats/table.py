"""The table of number formats: one row a format, named as in ml_dtypes.

Sources: IEEE 754-2019 section 3.4 (float16, float32, float64); the OCP 8-bit Floating Point
Specification 1.0 (float8_e4m3fn, float8_e5m2); Noune et al., arXiv 2206.02915 (the ``fnuz``
pair); the OCP Microscaling Formats Specification 1.0 (float8_e8m0fnu, float4_e2m1fn).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from verify.errors import ArgumentError

Kind = Literal["float", "int", "uint", "bool", "complex"]

# Which codes are NaN:
#   ieee           exponent field all ones and mantissa not zero (mantissa zero is an infinity)
#   all_ones       every bit below the sign set, and no infinities
#   negative_zero  the code that would be -0, and no infinities
#   none           no code is NaN
NanRule = Literal["ieee", "all_ones", "negative_zero", "none"]


@dataclass(frozen=True, slots=True)
class Format:
    """One number format. A float's value is ``(-1)^s * 2^(e-bias) * (1 + m/2^mantissa_bits)``
    where the exponent field e is not 0, and ``(-1)^s * 2^(1-bias) * m/2^mantissa_bits`` where it
    is 0 (float8_e8m0fnu has no mantissa and reads every exponent field by the first rule).

    ``bits`` is the width of the value; a float4 value is stored one a byte, in the low four bits.
    The float attributes of an integer format are 0. complex64 is a pair of float32.
    """

    name: str
    bits: int
    kind: Kind
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    has_sign: bool = True
    has_inf: bool = False
    has_signed_zero: bool = False
    nan: NanRule = "none"
    max_finite: float = 0.0

    @property
    def precision(self) -> int:
        """Digits of a significand, the implicit one included."""
        return self.mantissa_bits + 1

    @property
    def has_nan(self) -> bool:
        return self.nan != "none"

    @property
    def has_zero(self) -> bool:
        """False for float8_e8m0fnu alone, which has no mantissa and no zero."""
        return self.kind != "float" or self.mantissa_bits > 0

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias if self.mantissa_bits else -self.bias

    @property
    def min_normal(self) -> float:
        return float(2.0**self.min_exponent) if self.kind == "float" else 0.0

    @property
    def min_subnormal(self) -> float:
        """The smallest positive value; equals ``min_normal`` where there are no subnormals."""
        if self.kind != "float":
            return 0.0
        return float(2.0 ** (self.min_exponent - self.mantissa_bits))

    @property
    def sign_bit(self) -> int:
        """Mask of the sign bit, 0 for a format without one."""
        return 1 << (self.bits - 1) if self.has_sign else 0

    @property
    def magnitude_mask(self) -> int:
        """Mask of every bit below the sign."""
        return (1 << (self.bits - 1 if self.has_sign else self.bits)) - 1

    @property
    def exponent_mask(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits


_hex = float.fromhex

# fmt: off
_ROWS = (
    #      name               bits kind     exp mant bias  sign   inf    -0     NaN rule         max finite
    Format("float64",         64, "float",  11, 52, 1023,  True,  True,  True,  "ieee",          _hex("0x1.FFFFFFFFFFFFFp1023")),
    Format("float32",         32, "float",   8, 23,  127,  True,  True,  True,  "ieee",          _hex("0x1.FFFFFEp127")),
    Format("float16",         16, "float",   5, 10,   15,  True,  True,  True,  "ieee",          _hex("0x1.FFCp15")),
    Format("bfloat16",        16, "float",   8,  7,  127,  True,  True,  True,  "ieee",          _hex("0x1.FEp127")),
    Format("float8_e4m3fn",    8, "float",   4,  3,    7,  True,  False, True,  "all_ones",      _hex("0x1.Cp8")),
    Format("float8_e4m3fnuz",  8, "float",   4,  3,    8,  True,  False, False, "negative_zero", _hex("0x1.Ep7")),
    Format("float8_e5m2",      8, "float",   5,  2,   15,  True,  True,  True,  "ieee",          _hex("0x1.Cp15")),
    Format("float8_e5m2fnuz",  8, "float",   5,  2,   16,  True,  False, False, "negative_zero", _hex("0x1.Cp15")),
    Format("float8_e8m0fnu",   8, "float",   8,  0,  127,  False, False, False, "all_ones",      _hex("0x1p127")),
    Format("float4_e2m1fn",    4, "float",   2,  1,    1,  True,  False, True,  "none",          _hex("0x1.8p2")),
    Format("int8",             8, "int"),
    Format("int16",           16, "int"),
    Format("int32",           32, "int"),
    Format("int64",           64, "int"),
    Format("uint8",            8, "uint", has_sign=False),
    Format("uint16",          16, "uint", has_sign=False),
    Format("uint32",          32, "uint", has_sign=False),
    Format("uint64",          64, "uint", has_sign=False),
    Format("bool",             8, "bool", has_sign=False),
    Format("complex64",       64, "complex", 8, 23, 127,   True,  True,  True,  "ieee",          _hex("0x1.FFFFFEp127")),
)
# fmt: on

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}


def get_format(name: str | Format) -> Format:
    """The row called ``name``; a row is given back as it is.

    Raises:
        ArgumentError: no such format.
    """
    if isinstance(name, Format):
        return name
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ArgumentError(
            "unknown number format", where="format", found=repr(name), allowed=", ".join(FORMATS)
        )
    return found


def float_format(name: str | Format) -> Format:
    """As :func:`get_format`, for the real floating-point formats only.

    Raises:
        ArgumentError: no such format, or one that is not a real floating-point format.
    """
    fmt = get_format(name)
    if fmt.kind != "float":
        floats = ", ".join(row.name for row in _ROWS if row.kind == "float")
        raise ArgumentError(
            "not a floating-point format", where="format", found=fmt.name, allowed=floats
        )
    return fmt


_WORDS: dict[int, np.dtype[Any]] = {
    bits: np.dtype(f"uint{max(bits, 8)}") for bits in (4, 8, 16, 32, 64)
}


def word_dtype(fmt: str | Format) -> np.dtype[Any]:
    """The unsigned dtype of one raw element: uint8, uint16, uint32 or uint64.

    Raises:
        ArgumentError: no such format.
    """
    return _WORDS[get_format(fmt).bits]


def check_words(words: np.ndarray[Any, Any], fmt: Format) -> None:
    """Raise ArgumentError unless ``words`` can be raw elements of ``fmt``."""
    expected = _WORDS[fmt.bits]
    if not isinstance(words, np.ndarray) or words.dtype != expected:
        raise ArgumentError(
            f"the raw words of a {fmt.name} tensor have another dtype",
            where="words",
            found=getattr(words, "dtype", type(words).__name__),
            allowed=expected,
            hint=f"pass the raw bits, for example array.view(numpy.{expected})",
        )
    if fmt.bits == 4 and words.size and int(words.max()) > 15:
        raise ArgumentError(
            "a float4 word has bits above the low four",
            where="words",
            found=hex(int(words.max())),
            allowed="0x0 to 0xf",
            hint="unpack two values a byte into two words first",
        )
