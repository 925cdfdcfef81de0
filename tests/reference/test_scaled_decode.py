"""Scaled decode: every code, scale and convention against exact fractions, and the classes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.exact_formats import decode_exact, encode_exact
from verify.reference.rounding import round_word
from verify.reference.scaled_decode import (
    CONVENTIONS,
    STATES,
    Convention,
    decode_scaled,
    decode_table,
    float32_scale,
)

FP8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
E4M3 = "float8_e4m3fn"

POWERS = [2.0**k for k in range(-17, 8)]
SEVEN_BITS = [65 / 64, 127 / 64, 97 / 512, 3 / 256, 1.5, 100.0, 127.0]
# 15, the largest significand of E4M3, times an odd s fits in 11 bits up to s = 135.
EIGHT_BITS_EXACT = [129 / 128, 131.0, 135 / 256]
EIGHT_BITS = [137 / 128, 255 / 128, 201 / 1024, 143.0]
DECIMALS = [3.14159, 0.0123, 0.003, 146.24]
LATTICE = [
    *POWERS[:4],
    1.0,
    128.0,
    *SEVEN_BITS[:4],
    *EIGHT_BITS,
    *DECIMALS,
    146.25,
    1e6,
    1e-30,
    3e38,
    1e-45,
]


def exact_result(code: int, name: str, scale: float, convention: Convention) -> int:
    """The float16 word, by rational arithmetic alone."""

    def through(value: Fraction | float, to: str) -> Fraction | float:
        return decode_exact(round_word(value, to), to)

    def times(x: Fraction | float, y: Fraction | float) -> Fraction | float:
        if isinstance(x, Fraction) and isinstance(y, Fraction) and x * y != 0:
            return x * y
        return float(x) * float(y)  # zeros, infinities and NaN: their signs are all that counts

    value, factor = decode_exact(code, name), through(Fraction(scale), "float32")
    if convention == "fp16_multiply":
        value, factor = through(value, "float16"), through(factor, "float16")
    product = times(value, factor)
    if convention == "fp32_multiply":
        product = through(product, "float32")
    if isinstance(product, float) and math.isnan(product):
        return 0x7E00
    return encode_exact(product, "float16")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", [*FP8, "float4_e2m1fn"])
def test_every_code_and_scale_against_fractions(name: str, convention: Convention) -> None:
    scales = LATTICE if name == E4M3 else LATTICE[::4]
    for scale in scales:
        table = decode_table(name, scale, convention)
        expected = [exact_result(code, name, scale, convention) for code in range(len(table.words))]
        assert table.words.tolist() == expected, scale


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_unit_scale_is_exact_for_every_format(convention: Convention) -> None:
    for name in FP8:
        assert decode_table(name, 1.0, convention).all_exact
    table = decode_table(E4M3, 1.0, convention)
    assert table.counts == {"exact": 254, "rounded": 0, "subnormal": 0, "overflow": 0, "nan": 2}
    assert (table.words[0x80], table.words[0x01]) == (0x8000, 0x1800)  # -0; 2^-9 is a normal
    assert [code for code in range(256) if table.states[code] == "nan"] == [0x7F, 0xFF]


@pytest.mark.parametrize(("name", "codes"), [("float8_e5m2", 6), ("float8_e5m2fnuz", 14)])
def test_which_codes_become_subnormal(name: str, codes: int) -> None:
    table = decode_table(name)
    assert table.counts["subnormal"] == codes
    assert table.all_exact


@pytest.mark.parametrize("scale", [*(2.0**k for k in range(-15, 8)), *SEVEN_BITS])
def test_at_most_seven_bits_in_range_are_exact(scale: float) -> None:
    table = decode_table(E4M3, scale)
    assert table.scale_bits <= 7
    assert table.all_exact
    assert table.counts["overflow"] == table.counts["rounded"] == 0 == table.is_flushed.sum()


@pytest.mark.parametrize("scale", [*EIGHT_BITS_EXACT, *EIGHT_BITS])
def test_eight_bits_round_from_137_on(scale: float) -> None:
    table = decode_table(E4M3, scale)
    assert table.scale_bits == 8
    assert table.all_exact == (scale in EIGHT_BITS_EXACT)
    assert (table.counts["rounded"] > 0) == (scale in EIGHT_BITS)


@pytest.mark.parametrize("scale", [3.14159, 0.0123, 0.003, 146.24])
def test_ordinary_scales_round_without_overflow(scale: float) -> None:
    table = decode_table(E4M3, scale)
    assert table.counts["rounded"] > 200 and table.counts["overflow"] == 0
    assert not table.is_flushed.any()


def test_overflow_starts_at_146_25() -> None:
    """448 * 146.25 = 65520 lies half way between the largest float16 and 2^16."""
    table = decode_table(E4M3, 146.25)
    assert [hex(code) for code in range(256) if table.states[code] == "overflow"] == [
        "0x7e",
        "0xfe",
    ]
    assert (table.words[0x7E], table.words[0xFE]) == (0x7C00, 0xFC00)


@pytest.mark.parametrize(("exponent", "flushed"), [(-15, 0), (-16, 2), (-17, 4)])
def test_flush_to_zero_starts_at_two_to_the_minus_16(exponent: int, flushed: int) -> None:
    """2^-9 * 2^-16 is half the smallest float16 and goes to the even neighbour, zero."""
    table = decode_table(E4M3, 2.0**exponent)
    assert table.is_flushed.sum() == flushed
    assert table.all_exact == (exponent == -15)


def test_conventions_differ_where_they_should() -> None:
    scale = 0.0123
    once, twice, half = (
        decode_table(E4M3, scale, c) for c in ("single_rounding", "fp32_multiply", "fp16_multiply")
    )
    number = ~np.isnan(once.values)
    # The float16 of 0.0123 is 1.2e-4 of it too small, an eighth of a step or more: some codes move.
    assert np.count_nonzero((half.words != once.words)[number]) > 25
    assert np.abs(twice.words.astype(int) - once.words)[number].max() <= 1
    # Double rounding, by digits: 13 * s in 37 bits ends in a half and a bit too small for float32.
    scale = find_double_rounding_scale()
    once, twice = (decode_table(E4M3, scale, c) for c in ("single_rounding", "fp32_multiply"))
    assert not np.array_equal(once.words, twice.words)


def find_double_rounding_scale() -> float:
    """A 24-bit scale s with 13 * s = (odd float16 midpoint) + 1 in the last place of the product.

    13 s has 28 bits and float32 keeps 24: s is chosen so that the bits below float16's eleven are
    1000...0001, which float32 rounds to 1000...0, a tie that goes to even; the exact product
    is above it. Solvable because 13 is odd: s = (k * 2^17 + 2^16 + 1) / 13 for some k.
    """
    for k in range(1024, 2048, 2):
        quotient, rest = divmod((k << 17) + (1 << 16) + 1, 13)
        if rest == 0 and quotient < 1 << 24:
            return math.ldexp(quotient, -24)
    raise AssertionError("no such scale")


def test_tensor_of_codes_and_states() -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(2, 8, 16)
    table = decode_table(E4M3, 0.3)
    assert np.array_equal(decode_scaled(codes, E4M3, 0.3), table.words.reshape(codes.shape))
    assert set(table.states) <= set(STATES)
    assert table.scale == float(np.float32(0.3)) and table.scale_given == 0.3
    infinite = decode_table("float8_e5m2", 2.0)
    assert infinite.states[0x7C] == "exact" and infinite.states[0x7B] == "overflow"


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e39, 1e-46])
def test_scales_that_are_refused(scale: float) -> None:
    with pytest.raises(ArgumentError, match="not a usable scale"):
        float32_scale(scale)


def test_formats_and_conventions_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at most 8 bits"):
        decode_table("float16")
    with pytest.raises(ArgumentError, match="unknown number format"):
        decode_table("e4m3")
    with pytest.raises(ArgumentError, match="not a floating-point format"):
        decode_table("int8")
    with pytest.raises(ArgumentError, match="unknown rounding convention"):
        decode_table(E4M3, 1.0, "bf16_multiply")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="another dtype"):
        decode_scaled(np.zeros(4, np.int8), E4M3)
