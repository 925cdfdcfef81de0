"""Encoding: every code, every midpoint, inputs that expose a second rounding, special values."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from verify.formats import FORMATS, decode, encode, is_nan, word_dtype
from verify.reference.exact_formats import encode_exact
from verify.reference.rounding import round_words, to_exact

FLOATS = [name for name, fmt in FORMATS.items() if fmt.kind == "float"]
SMALL = [name for name in FLOATS if FORMATS[name].bits <= 16]
SIGNED = [name for name in FLOATS if FORMATS[name].has_sign]


def finite_magnitudes(name: str) -> np.ndarray:
    """Codes of the finite values from the smallest up."""
    codes = np.arange(FORMATS[name].magnitude_mask + 1, dtype=word_dtype(name))
    return codes[np.isfinite(decode(codes, name))]


@pytest.mark.parametrize("name", SMALL)
def test_every_value_encodes_to_its_code(name: str) -> None:
    codes = np.arange(1 << FORMATS[name].bits, dtype=word_dtype(name))
    values = decode(codes, name)
    number = ~np.isnan(values)
    assert np.array_equal(encode(values[number], name), codes[number])
    if FORMATS[name].has_nan:
        assert is_nan(encode(values[~number], name), name).all()


@pytest.mark.parametrize("name", SMALL)
def test_every_midpoint_and_its_neighbours(name: str) -> None:
    """A midpoint of neighbours is exact in float64; one float64 step decides the other way."""
    codes = finite_magnitudes(name).astype(np.int64)
    values = decode(codes.astype(word_dtype(name)), name)
    middle = (values[:-1] + values[1:]) / 2
    low, high = codes[:-1], codes[1:]
    to_even = np.where(low % 2 == 0, low, high) if FORMATS[name].mantissa_bits else high
    assert np.array_equal(encode(middle, name), to_even)
    assert np.array_equal(encode(np.nextafter(middle, 0.0), name), low)
    assert np.array_equal(encode(np.nextafter(middle, np.inf), name), high)
    if FORMATS[name].has_signed_zero:
        sign = FORMATS[name].sign_bit
        assert np.array_equal(encode(-middle, name), to_even | sign)


def wider_than(name: str) -> list[str]:
    """Formats through which somebody might round on the way from float64 to ``name``."""
    target = FORMATS[name]
    return [
        other
        for other in ("float32", "float16", "bfloat16")
        if target.mantissa_bits + 1 < FORMATS[other].mantissa_bits
    ]


PAIRS = [(name, via) for name in FLOATS for via in wider_than(name)]


@pytest.mark.parametrize(("name", "via"), PAIRS)
def test_one_rounding_only(name: str, via: str) -> None:
    """x = odd or even code + half a step + (or -) too little for ``via`` to see.

    With t digits after the point in the target and w in ``via``, x = k*2^-t + 2^-(t+1) ± 2^-(w+2):
    ``via`` rounds the last term away and leaves a tie, which then goes to even, wrongly for one
    sign of the term each.
    """
    t, w = FORMATS[name].mantissa_bits, FORMATS[via].mantissa_bits
    for k, sign in itertools.product((0, 1) if t else (0,), (-1, 1)):
        x = np.array([1.0 + k * 2.0**-t + 2.0 ** -(t + 1) + sign * 2.0 ** -(w + 2)])
        right = encode(np.array([1.0 + (k + (sign > 0)) * 2.0**-t]), name)
        assert encode(x, name) == right
        twice = encode(decode(encode(x, via), via), name)
        ties_wrongly = (k % 2 == 0) == (sign > 0) if t else sign < 0
        assert (twice != right) == ties_wrongly  # else this input would prove nothing


def spread(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    """Values over the whole exponent range of a format and a little beyond both ends."""
    fmt = FORMATS[name]
    lowest = max(fmt.min_exponent - fmt.mantissa_bits - 3, -1074)
    highest = min(int(np.log2(fmt.max_finite)) + 2, 1023)
    exponents = rng.integers(lowest, highest, count, endpoint=True)
    signs = rng.choice([-1.0, 1.0], count) if fmt.has_sign else 1.0
    return signs * np.ldexp(rng.uniform(1.0, 2.0, count), exponents)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("saturate", [False, True])
def test_random_values_against_both_exact_encoders(name: str, saturate: bool) -> None:
    values = spread(np.random.default_rng(11), name, 1500)
    words = encode(values, name, saturate=saturate)
    assert np.array_equal(words, round_words(values, name, saturate=saturate))
    searched = [encode_exact(to_exact(float(x)), name, saturate=saturate) for x in values]
    assert words.tolist() == searched


@pytest.mark.parametrize("name", [name for name in SMALL if name != "float4_e2m1fn"])
def test_random_values_against_ml_dtypes(name: str) -> None:
    """From float32, so that ml_dtypes rounds once too."""
    dtype = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    with np.errstate(over="ignore"):
        values = spread(np.random.default_rng(12), name, 20000).astype(np.float32)
        if name == "float8_e8m0fnu":
            # ml_dtypes 0.6.0 takes 1.3 * 2^-127, a subnormal float32, to 2^-126, the farther one.
            values = values[values >= np.finfo(np.float32).smallest_normal]
        theirs = values.astype(dtype).view(word_dtype(name))
    assert np.array_equal(encode(values, name), theirs)


SPECIALS = [
    # format, value, word, saturated word
    ("float16", np.inf, 0x7C00, 0x7BFF),
    ("float16", -np.inf, 0xFC00, 0xFBFF),
    ("float16", 65520.0, 0x7C00, 0x7BFF),  # the midpoint to 2^16
    ("float16", 65519.99, 0x7BFF, 0x7BFF),
    ("float32", 1e300, 0x7F800000, 0x7F7FFFFF),
    ("float64", np.inf, 0x7FF0 << 48, (0x7FF0 << 48) - 1),
    ("float8_e4m3fn", 464.0, 0x7E, 0x7E),  # a tie, and 448 has the even code
    ("float8_e4m3fn", 465.0, 0x7F, 0x7E),
    ("float8_e4m3fn", -np.inf, 0xFF, 0xFE),
    ("float8_e4m3fnuz", 1e9, 0x80, 0x7F),
    ("float8_e4m3fnuz", -1e9, 0x80, 0xFF),
    ("float8_e5m2", 61440.0, 0x7C, 0x7B),
    ("float8_e5m2fnuz", -np.inf, 0x80, 0xFF),
    ("float8_e8m0fnu", 1e300, 0xFF, 0xFE),
    ("float8_e8m0fnu", 2.0**-128, 0x00, 0x00),
    ("float8_e8m0fnu", 2.0**-1074, 0x00, 0x00),  # no zero: 2^-127 is the nearest value there is
    ("float8_e8m0fnu", 0.0, 0xFF, 0xFF),
    ("float8_e8m0fnu", -1.0, 0xFF, 0xFF),
    ("float4_e2m1fn", 1e9, 0x7, 0x7),
    ("float4_e2m1fn", -np.inf, 0xF, 0xF),
    ("bfloat16", np.nan, 0x7FC0, 0x7FC0),
    ("bfloat16", -np.nan, 0xFFC0, 0xFFC0),
    ("float32", -np.nan, 0xFFC00000, 0xFFC00000),
    ("float8_e4m3fn", -np.nan, 0xFF, 0xFF),
    ("float8_e5m2", np.nan, 0x7E, 0x7E),
    ("float8_e5m2fnuz", -np.nan, 0x80, 0x80),
    ("float16", -0.0, 0x8000, 0x8000),
    ("float8_e4m3fn", -0.0, 0x80, 0x80),
    ("float8_e4m3fnuz", -0.0, 0x00, 0x00),
    ("float8_e4m3fnuz", -1e-9, 0x00, 0x00),
    ("float8_e4m3fn", -1e-9, 0x80, 0x80),
]


@pytest.mark.parametrize(("name", "value", "word", "saturated"), SPECIALS)
def test_special_values(name: str, value: float, word: int, saturated: int) -> None:
    for saturate, expected in ((False, word), (True, saturated)):
        assert int(encode(np.array([value]), name, saturate=saturate)[0]) == expected
        assert round_words([value], name, saturate=saturate).tolist() == [expected]
        exact = to_exact(float(value))
        assert encode_exact(exact, name, saturate=saturate) == expected


def test_float64_keeps_its_bits_and_shapes_are_kept() -> None:
    payload = np.array([0x7FF8000000000123, 0xFFF0000000000001], np.uint64)
    assert np.array_equal(encode(payload.view(np.float64), "float64"), payload)
    assert encode(np.zeros((2, 0, 3)), "float16").shape == (2, 0, 3)
    assert encode(np.ones((70000, 2))[:, ::2], "bfloat16").tolist() == [[0x3F80]] * 70000
