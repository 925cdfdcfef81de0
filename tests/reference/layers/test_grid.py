"""Spacing and rounding cells, exhaustively on the small formats."""

import numpy as np
import pytest

from verify.formats import FORMATS, decode, word_dtype
from verify.reference.layers.grid import (
    cell,
    distance_to_cell,
    half_ulp,
    round_to,
    spacing,
    tie_distance,
)

SMALL = ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"]


def finite_values(fmt):
    codes = np.arange(1 << FORMATS[fmt].bits, dtype=word_dtype(FORMATS[fmt]))
    values = decode(codes, fmt)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("fmt", SMALL)
def test_spacing_is_the_gap_to_the_next_magnitude(fmt):
    values = finite_values(fmt)
    positive = values[values >= 0]
    assert (spacing(positive[:-1], fmt) == np.diff(positive)).all()
    assert (spacing(-positive, fmt) == spacing(positive, fmt)).all()


@pytest.mark.parametrize("fmt", SMALL)
def test_a_cell_is_what_rounds_to_its_value(fmt):
    values = finite_values(fmt)
    low, high = cell(values, fmt)
    middles = (values[1:] + values[:-1]) / 2
    assert (low[1:] == middles).all()
    assert (high[:-1] == middles).all()
    inside = np.concatenate([low + (high - low) * share for share in (0.01, 0.5, 0.99)])
    assert (round_to(inside, fmt) == np.tile(values, 3)).all()


def test_the_cell_of_infinity_begins_half_a_spacing_beyond_the_largest():
    low, high = cell(np.array([np.inf, -np.inf]), "float16")
    assert low.tolist() == [65520.0, -np.inf]
    assert high.tolist() == [np.inf, -65520.0]


def test_distance_to_cell_is_signed_and_zero_inside():
    exact = np.array([1.0, 1.0 + 2.0**-12, 1.0 + 2.0**-10, 1.0])
    values = np.array([1.0, 1.0, 1.0, 1.0 + 2.0**-10])
    moves = distance_to_cell(exact, values, "float16")
    assert moves.tolist() == [0.0, 0.0, -(2.0**-11), 2.0**-11]


def test_distance_to_cell_where_nothing_is_finite():
    exact = np.array([np.nan, np.nan, 1.0, 1e9, np.inf])
    values = np.array([np.nan, 1.0, np.nan, np.inf, np.inf])
    moves = distance_to_cell(exact, values, "float16")
    assert np.isnan(moves).tolist() == [False, True, True, False, False]
    assert moves[[0, 3, 4]].tolist() == [0.0, 0.0, 0.0]


def test_tie_distance():
    assert tie_distance(
        np.array([1.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-12]), "float16"
    ).tolist() == [
        2.0**-12,  # downward, below a power of two, the spacing halves
        0.0,
        2.0**-12,
    ]


@pytest.mark.parametrize(("fmt", "expected"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_half_ulp(fmt, expected):
    assert half_ulp(fmt) == expected


def test_rounding_keeps_the_shape_even_without_axes():
    assert round_to(np.asarray(33.94), "bfloat16").shape == ()
    assert float(round_to(np.asarray(33.94), "bfloat16")) == 34.0
