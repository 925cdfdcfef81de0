"""The exact codec against itself and its own errors; tests/formats compares it with the fast one."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from verify.errors import ArgumentError
from verify.reference.exact_formats import LAYOUTS, decode_exact, encode_exact


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn"])
def test_round_trip(name: str) -> None:
    layout = LAYOUTS[name]
    for word in range(1 << (layout.sign + layout.exponent + layout.mantissa)):
        value = decode_exact(word, name)
        if not (isinstance(value, float) and math.isnan(value)):
            assert encode_exact(value, name) == word


def test_known_values() -> None:
    assert decode_exact(0x3555, "float16") == Fraction(1365, 4096)
    assert decode_exact(1, "float64") == Fraction(1, 2**1074)
    assert decode_exact(0xFC00, "float16") == -math.inf
    assert math.copysign(1.0, float(decode_exact(0x80, "float8_e5m2"))) == -1.0
    assert encode_exact(Fraction(1, 3), "float32") == 0x3EAAAAAB
    assert encode_exact(Fraction(1, 10), "float64") == 0x3FB999999999999A


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="unknown float format"):
        decode_exact(0, "fp8")
    with pytest.raises(ArgumentError, match="not a word of float8_e5m2"):
        decode_exact(256, "float8_e5m2")
    with pytest.raises(ArgumentError, match="no NaN"):
        encode_exact(math.nan, "float4_e2m1fn")
