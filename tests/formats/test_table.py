"""The table against an independent one, and against itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.formats import FORMATS, decode, encode, get_format, is_nan, word_dtype

FLOATS = [name for name, fmt in FORMATS.items() if fmt.kind == "float"]
SMALL = [name for name in FLOATS if FORMATS[name].bits <= 16]


@pytest.mark.parametrize("name", FLOATS)
def test_limits_equal_ml_dtypes(name: str) -> None:
    dtype = (
        np.dtype(name) if name.startswith("float") and "_" not in name else getattr(ml_dtypes, name)
    )
    info = ml_dtypes.finfo(dtype)
    fmt = FORMATS[name]
    assert fmt.max_finite == float(info.max)
    assert fmt.min_normal == float(info.smallest_normal)
    assert fmt.min_subnormal == float(info.smallest_subnormal)
    assert (fmt.mantissa_bits, fmt.exponent_bits) == (info.nmant, info.nexp)


def test_names_and_widths() -> None:
    assert [word_dtype(name).itemsize * 8 for name in ("float4_e2m1fn", "bool", "bfloat16")] == [
        8,
        8,
        16,
    ]
    assert word_dtype("complex64") == np.uint64
    assert all(name == fmt.name for name, fmt in FORMATS.items())
    assert get_format(FORMATS["int8"]) is FORMATS["int8"]


@pytest.mark.parametrize("name", ["float8_e4m3", "fp16", "", None, 3])
def test_unknown_format_names_the_known_ones(name: str) -> None:
    with pytest.raises(ArgumentError, match="unknown number format") as caught:
        get_format(name)
    assert "float8_e4m3fnuz" in str(caught.value)


def test_words_of_another_width_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"raw words of a float16 tensor have another dtype"):
        decode(np.zeros(3, np.float16), "float16")
    with pytest.raises(ArgumentError, match="uint16"):
        is_nan(np.zeros(3, np.uint8), "bfloat16")
    with pytest.raises(ArgumentError, match="above the low four"):
        decode(np.array([0x1F], np.uint8), "float4_e2m1fn")


def test_encoding_refuses_what_it_could_not_round_once() -> None:
    with pytest.raises(ArgumentError, match="one rounding"):
        encode(np.array([2**53 + 1]), "float16")
    with pytest.raises(ArgumentError, match="not a floating-point format"):
        encode(np.zeros(1), "int8")
    with pytest.raises(ArgumentError, match="no NaN to encode"):
        encode(np.array([np.nan]), "float4_e2m1fn")
