"""ULP distance: order, neighbours, zeros, NaN, and the ends of the 64-bit formats."""

from __future__ import annotations

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.formats import FORMATS, decode, is_nan, word_dtype
from verify.ulp import INCOMPARABLE, distance, ordered

SMALL = [name for name, fmt in FORMATS.items() if fmt.bits <= 16 and fmt.kind != "bool"]


def number_codes(name: str) -> np.ndarray:
    codes = np.arange(1 << FORMATS[name].bits, dtype=word_dtype(name))
    return codes[~is_nan(codes, name)]


@pytest.mark.parametrize("name", SMALL)
def test_order_is_the_order_of_the_values_without_gaps(name: str) -> None:
    codes = number_codes(name)
    keys = ordered(codes, name)
    by_key = codes[np.argsort(keys)]
    assert np.all(np.diff(np.sort(keys)) == 1)  # every neighbour is exactly one step away
    values = decode(by_key, name)
    assert np.all(values[:-1] <= values[1:])
    zeros = np.flatnonzero(values == 0)
    if FORMATS[name].has_signed_zero:
        assert np.signbit(values[zeros]).tolist() == [True, False]


@pytest.mark.parametrize("name", ["float32", "float64", "int32", "int64", "uint32", "uint64"])
def test_order_of_the_wide_formats(name: str) -> None:
    bits = FORMATS[name].bits
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**64, 4000, dtype=np.uint64) >> np.uint64(64 - bits)
    words = words.astype(word_dtype(name))
    words = words[~is_nan(words, name)]
    values = decode(words, name)
    order = np.argsort(ordered(words, name), kind="stable")
    assert np.all(values[order][:-1] <= values[order][1:])


ROWS = [
    # format, a, b, options, distance
    ("float16", 0x3C00, 0x3C01, {}, 1),
    ("float16", 0x0000, 0x8000, {}, 1),
    ("float16", 0x0000, 0x8000, {"zeros_equal": True}, 0),
    ("float16", 0x0001, 0x8001, {}, 3),
    ("float16", 0x0001, 0x8001, {"zeros_equal": True}, 2),
    ("float16", 0x7BFF, 0x7C00, {}, 1),  # the largest finite value and infinity
    ("float16", 0x7C00, 0xFC00, {"zeros_equal": True}, 2 * 0x7C00),
    ("float16", 0x7E00, 0x7E00, {}, INCOMPARABLE),
    ("float16", 0x7E00, 0x7E00, {"nan_equal": True}, 0),
    ("float16", 0x7E00, 0x7E01, {"nan_equal": True}, INCOMPARABLE),
    ("float16", 0x7E00, 0xFE00, {"nan_equal": True}, INCOMPARABLE),
    ("float16", 0x7E00, 0x3C00, {"nan_equal": True}, INCOMPARABLE),
    ("float8_e4m3fnuz", 0x01, 0x81, {}, 2),  # one zero only
    ("float8_e4m3fnuz", 0x80, 0x80, {}, INCOMPARABLE),
    ("float8_e8m0fnu", 0x00, 0xFE, {}, 0xFE),
    ("float8_e8m0fnu", 0xFF, 0xFE, {}, INCOMPARABLE),
    ("float4_e2m1fn", 0x7, 0xF, {}, 15),
    ("float64", 0x7FF0 << 48, 0xFFF0 << 48, {}, 2 * (0x7FF0 << 48) + 1),
    ("int8", 0x80, 0x7F, {}, 255),
    ("int64", 1 << 63, (1 << 63) - 1, {}, INCOMPARABLE - 1),
    ("uint64", 0, 2**64 - 1, {}, INCOMPARABLE - 1),
    ("uint64", 0, 2**64 - 2, {}, 2**64 - 2),
    ("bool", 0, 1, {}, 1),
]


@pytest.mark.parametrize(("name", "a", "b", "options", "expected"), ROWS)
def test_distances(name: str, a: int, b: int, options: dict[str, bool], expected: int) -> None:
    first, second = (np.array([word], word_dtype(name)) for word in (a, b))
    assert int(distance(first, second, name, **options)[0]) == expected
    assert int(distance(second, first, name, **options)[0]) == expected


def test_complex_takes_the_worse_part() -> None:
    a = np.array([1 + 1j, np.nan + 1j], np.complex64)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)) + 1.0000004j, 1 + 1j], np.complex64)
    result = distance(a.view(np.uint64), b.view(np.uint64), "complex64")
    assert result.tolist() == [3, INCOMPARABLE]
    with pytest.raises(ArgumentError, match="no order"):
        ordered(a.view(np.uint64), "complex64")


def test_many_elements_and_any_stride() -> None:
    words = np.arange(200_000, dtype=np.uint16).reshape(-1, 2)
    a, b = words[:, 0], words[:, 1]
    expected = np.abs(ordered(a, "float16") - ordered(b, "float16"))
    number = ~(is_nan(a, "float16") | is_nan(b, "float16"))
    result = distance(a, b, "float16")
    assert np.array_equal(result[number], expected[number])
    assert (result[~number] == INCOMPARABLE).all()


def test_shapes_must_agree() -> None:
    with pytest.raises(ArgumentError, match="different shapes"):
        distance(np.zeros(3, np.uint8), np.zeros((3, 1), np.uint8), "uint8")
