"""Correct rounding of exact numbers: against float(Fraction), modes, and mpmath's own mistake."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.rounding import floor_log2, round_value, round_word, to_exact


def random_mpf(rng: np.random.Generator, exponent: int) -> mpmath.mpf:
    """A number of 120 bits with its leading bit at 2^exponent."""
    mantissa = (1 << 119) | int.from_bytes(rng.bytes(14), "little")
    return mpmath.mpf((0, mantissa, exponent - 119, mantissa.bit_length()))


def test_mpf_to_float64_equals_fraction_where_float_mpf_does_not() -> None:
    """Subnormal results are where mpmath's conversion rounds twice."""
    rng = np.random.default_rng(5)
    wrong_by_mpmath = 0
    with mpmath.workprec(160):
        for _ in range(4000):
            x = random_mpf(rng, int(rng.integers(-1074, -1022)))
            exact = to_exact(x)
            assert isinstance(exact, Fraction)
            assert round_value(x) == float(exact)  # CPython rounds a Fraction once
            wrong_by_mpmath += float(x) != float(exact)
    # If this fails mpmath was mended, and the warning in the module's docstring is out of date.
    assert wrong_by_mpmath > 0


def test_subnormal_double_rounding_by_construction() -> None:
    """53 bits of a subnormal end far below the last place of the result: half a quantum and
    2^-60 of one must go up, and rounding to 53 bits first makes it a tie that goes to even."""
    quantum = Fraction(2) ** -1074
    x = 2 * quantum + quantum / 2 + quantum * Fraction(2) ** -60
    assert round_value(x) == 3 * 2.0**-1074


@pytest.mark.parametrize("exponent", [-1080, -1040, -1022, -3, 0, 1000, 1023, 1024])
def test_float64_equals_float_of_fraction(exponent: int) -> None:
    rng = np.random.default_rng(abs(exponent))
    for _ in range(100):
        x = Fraction(int.from_bytes(rng.bytes(16), "little"), 1 << 127) * Fraction(2) ** exponent
        try:
            expected = float(x)
        except OverflowError:
            expected = math.inf
        assert round_value(x) == expected
        assert round_value(-x) == -expected


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        # 1/3, -1/3, 2^20, -2^20, tiny, -tiny in float16
        ("nearest_even", [0x3555, 0xB555, 0x7C00, 0xFC00, 0x0000, 0x8000]),
        ("toward_zero", [0x3555, 0xB555, 0x7BFF, 0xFBFF, 0x0000, 0x8000]),
        ("down", [0x3555, 0xB556, 0x7BFF, 0xFC00, 0x0000, 0x8001]),
        ("up", [0x3556, 0xB555, 0x7C00, 0xFBFF, 0x0001, 0x8000]),
    ],
)
def test_modes(mode: str, words: list[int]) -> None:
    tiny = Fraction(1, 1 << 60)
    values = [Fraction(1, 3), Fraction(-1, 3), 2**20, -(2**20), tiny, -tiny]
    assert [round_word(value, "float16", mode=mode) for value in values] == words


def test_exact_numbers_and_special_values() -> None:
    assert to_exact(mpmath.mpf("0.1")) == Fraction(float("0.1"))
    assert to_exact(mpmath.mpf("-inf")) == -math.inf
    assert math.isnan(float(to_exact(mpmath.nan)))
    assert to_exact(np.int64(-7)) == -7
    assert to_exact(np.float16(0.5)) == Fraction(1, 2)
    assert math.copysign(1.0, float(to_exact(-0.0))) == -1.0
    assert round_value(mpmath.mpf(1) / 3, "bfloat16") == 0.333984375
    assert round_value(Fraction(-7, 1), "float4_e2m1fn") == -6.0
    assert math.isnan(round_value(500, "float8_e4m3fn"))
    assert [floor_log2(Fraction(3, 4)), floor_log2(Fraction(1)), floor_log2(Fraction(5))] == [
        -1,
        0,
        2,
    ]


@pytest.mark.parametrize("value", ["0.1", None, True, 1j, np.longdouble(1)])
def test_what_is_not_an_exact_number_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="not an exact binary number"):
        to_exact(value)


def test_unknown_mode() -> None:
    with pytest.raises(ArgumentError, match="unknown rounding mode"):
        round_word(1, "float16", mode="away")
