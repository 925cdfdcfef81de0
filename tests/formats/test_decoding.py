"""All codes of every format of at most 16 bits, against ml_dtypes and against exact fractions."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from verify.formats import FORMATS, decode, is_nan, word_dtype
from verify.reference.exact_formats import decode_exact

SMALL = [name for name, fmt in FORMATS.items() if fmt.kind == "float" and fmt.bits <= 16]


def all_codes(name: str) -> np.ndarray:
    return np.arange(1 << FORMATS[name].bits, dtype=word_dtype(name))


def same_values(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, except that any NaN equals any NaN."""
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all((a.view(np.uint64) == b.view(np.uint64)) | nan))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_equals_ml_dtypes(name: str) -> None:
    codes = all_codes(name)
    dtype = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    with np.errstate(invalid="ignore"):
        theirs = codes.view(dtype).astype(np.float64)
    assert same_values(decode(codes, name), theirs)
    assert np.array_equal(is_nan(codes, name), np.isnan(theirs))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_equals_the_exact_decoder(name: str) -> None:
    codes = all_codes(name)
    exact = [decode_exact(int(code), name) for code in codes]
    assert same_values(decode(codes, name), np.array([float(value) for value in exact]))


@pytest.mark.parametrize(("name", "bits"), [("float32", 32), ("float64", 64)])
def test_wide_formats_equal_the_exact_decoder(name: str, bits: int) -> None:
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << bits, 2000, dtype=np.uint64, endpoint=bits == 64 and False)
    edges = [0, 1, 1 << (bits - 1), FORMATS[name].exponent_mask, FORMATS[name].exponent_mask + 1]
    words = np.concatenate([words, np.array(edges, np.uint64)]).astype(word_dtype(name))
    exact = np.array([float(decode_exact(int(word), name)) for word in words])
    assert same_values(decode(words, name), exact)


def test_published_constants() -> None:
    """Codes that the specifications print."""
    rows = [
        ("float8_e4m3fn", 0x7E, 448.0),
        ("float8_e4m3fn", 0x01, 2.0**-9),
        ("float8_e4m3fnuz", 0x7F, 240.0),
        ("float8_e5m2", 0x7B, 57344.0),
        ("float8_e5m2fnuz", 0x01, 2.0**-17),
        ("float8_e8m0fnu", 0x00, 2.0**-127),
        ("float4_e2m1fn", 0x7, 6.0),
        ("bfloat16", 0x3FC0, 1.5),
        ("float16", 0x0001, 2.0**-24),
    ]
    for name, code, value in rows:
        assert decode(np.array([code], word_dtype(name)), name)[0] == value


def test_zero_keeps_its_sign_where_the_format_has_one() -> None:
    assert math.copysign(1.0, decode(np.array([0x80], np.uint8), "float8_e4m3fn")[0]) == -1.0
    assert np.isnan(decode(np.array([0x80], np.uint8), "float8_e4m3fnuz")[0])


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers(name: str) -> None:
    limits = np.iinfo(name)
    values = np.array([limits.min, 0, 1, limits.max], dtype=name)
    decoded = decode(values.view(word_dtype(name)), name)
    assert decoded.tolist() == values.tolist()
    assert decoded.dtype == (np.uint64 if name.startswith("u") else np.int64)


def test_bool_complex_shapes_and_strides() -> None:
    assert decode(np.array([0, 1], np.uint8), "bool").tolist() == [0, 1]
    z = np.array([[1 + 2j], [3 - 4j]], np.complex64)
    assert np.array_equal(decode(z.view(np.uint64), "complex64"), z)
    nan = np.array([complex(0, math.nan)], np.complex64)
    assert is_nan(nan.view(np.uint64), "complex64").tolist() == [True]
    strided = np.arange(24, dtype=np.float32).reshape(4, 6).view(np.uint32)[::2, ::3]
    assert decode(strided, "float32").tolist() == [[0.0, 3.0], [12.0, 15.0]]
    assert decode(np.zeros((0, 5), np.uint8), "float8_e5m2").shape == (0, 5)
    assert decode(np.array(0x3C00, np.uint16), "float16") == 1.0
