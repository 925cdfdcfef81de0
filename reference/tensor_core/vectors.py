"""Dot products whose result tells one arithmetic from another, with the result of each.

Every vector is one dot product of 16 places, zero where nothing is said, plus an accumulator; all
operands are exact in float16. Columns: ``V`` F=23 L=4 (V100); ``A`` F=24 L=8 (A100); ``H`` F=25
L=16 (H100, H200); ``E`` the routine behind m8n8k4 on sm_80 and later; ``X`` the exact sum rounded
once to nearest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import encode

PLACES = 16
COLUMNS = "VAHEX"

_FLT_MAX = float.fromhex("0x1.FFFFFEp127")
_INF = math.inf
_NAN = math.nan


@dataclass(frozen=True, slots=True)
class Vector:
    """One dot product.

    Args:
        name: what it tells apart.
        products: ``(k, a, b)`` of the places that are not zero.
        c: the accumulator, exact in float32.
        results: the value in each of :data:`COLUMNS`, in that order; NaN for NaN.
    """

    name: str
    products: tuple[tuple[int, float, float], ...]
    c: float
    results: tuple[float, float, float, float, float]


def _same(value: float) -> tuple[float, float, float, float, float]:
    return (value,) * 5


def _grouping(i: int) -> Vector:
    """1 - 1 at places 0 and 1 and a small product at place i: lost where i shares their step."""
    small = 2.0**-28
    in_step = [0.0 if i < length else small for length in (4, 8, 16)]
    return Vector(
        f"T3 place {i} outside the first step",
        ((0, 1.0, 1.0), (1, -1.0, 1.0), (i, 2.0**-14, 2.0**-14)),
        0.0,
        (in_step[0], in_step[1], in_step[2], small, small),
    )


def _power(k: int, exponent: int, sign: float = 1.0) -> tuple[int, float, float]:
    """``sign * 2^exponent`` at place k, from two normal float16 operands."""
    half = exponent // 2
    return (k, sign * 2.0 ** (exponent - half), 2.0**half)


_1 = 1.0
_ULP = 2.0**-23
_FIXED = (
    Vector(
        "T1 truncation or rounding",
        ((0, 1.5 * 2.0**-12, 2.0**-11),),
        1.0,
        (_1 + _ULP, _1 + _ULP, _1 + _ULP, _1 + 2 * _ULP, _1 + 2 * _ULP),
    ),
    Vector(
        "T1n toward zero, not down",
        ((0, -1.5 * 2.0**-12, 2.0**-11),),
        -1.0,
        (-_1 - _ULP, -_1 - _ULP, -_1 - _ULP, -_1 - 2 * _ULP, -_1 - 2 * _ULP),
    ),
    Vector(
        "T2a F >= 24",
        (_power(0, 0, -1.0), _power(1, -24)),
        1.0,
        (0.0, 2.0**-24, 2.0**-24, 2.0**-24, 2.0**-24),
    ),
    Vector(
        "T2b F >= 25",
        (_power(0, 0, -1.0), _power(1, -25)),
        1.0,
        (0.0, 0.0, 2.0**-25, 0.0, 2.0**-25),
    ),
    Vector(
        "T2c F >= 26",
        (_power(0, 0, -1.0), _power(1, -26)),
        1.0,
        (0.0, 0.0, 0.0, 0.0, 2.0**-26),
    ),
    Vector(
        "T4 ascending chain",
        (_power(0, 0), _power(1, -24), _power(2, -24)),
        0.0,
        (_1, _1 + _ULP, _1 + _ULP, _1, _1 + _ULP),
    ),
    Vector(
        "T4r the large product last",
        (_power(3, 0), _power(1, -24), _power(2, -24)),
        0.0,
        (_1, _1 + _ULP, _1 + _ULP, _1 + _ULP, _1 + _ULP),
    ),
    Vector(
        "T5 c is aligned with the products",
        tuple(_power(k, -26) for k in range(PLACES)),
        1.0,
        (_1, _1, _1, _1, _1 + 2 * _ULP),
    ),
    Vector(
        "T6 carry, then truncation",
        tuple(_power(k, -24) for k in range(4)),
        1.0 - 2.0**-24,
        (_1 + _ULP, _1 + _ULP, _1 + _ULP, _1 + 2 * _ULP, _1 + 2 * _ULP),
    ),
    Vector(
        "T7 products are not normalised",
        ((0, 1.5, 1.5), (1, -1.5, 1.5), _power(2, -25)),
        0.0,
        (0.0, 0.0, 2.0**-25, 2.0**-25, 2.0**-25),
    ),
    Vector(
        "T8 subnormal exponents are pinned",
        ((0, 2.0**-24, 1.0),),
        2.0**-40,
        (2.0**-24, 2.0**-24, 2.0**-24, 2.0**-24 + 2.0**-40, 2.0**-24 + 2.0**-40),
    ),
    Vector("T8b subnormal accumulator", (), 2.0**-149, _same(2.0**-149)),
    Vector("T9 infinity times zero", ((0, _INF, 0.0),), 1.0, _same(_NAN)),
    Vector("T9 opposite infinities", ((0, _INF, 1.0), (1, -_INF, 1.0)), 0.0, _same(_NAN)),
    Vector("T9 infinity against c", ((5, _INF, 1.0),), -_INF, _same(_NAN)),
    Vector("T9 infinity", ((0, -_INF, 1.0), (1, 1.0, 1.0)), 1.0, _same(-_INF)),
    Vector("T9 negative zeros", ((0, -0.0, 1.0),), -0.0, _same(0.0)),
    Vector("T9 largest accumulator", ((0, 65504.0, 65504.0),), _FLT_MAX, _same(_FLT_MAX)),
)

VECTORS: tuple[Vector, ...] = (*_FIXED, *(_grouping(i) for i in range(2, PLACES)))


def as_words(
    vectors: tuple[Vector, ...] = VECTORS,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The vectors as raw words: a and b float16 ``[rows, 16]``, c float32 ``[rows]``."""
    a = np.zeros((len(vectors), PLACES))
    b = np.zeros((len(vectors), PLACES))
    for row, vector in enumerate(vectors):
        for k, a_k, b_k in vector.products:
            a[row, k], b[row, k] = a_k, b_k
    c = np.array([vector.c for vector in vectors])
    return encode(a, "float16"), encode(b, "float16"), encode(c, "float32")
