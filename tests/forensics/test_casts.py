"""A cast is named where it explains every element, and not where it does not."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import to_words
from verify.forensics.casts import find_casts
from verify.formats import decode, encode, get_format

VALUES = np.random.default_rng(5).standard_normal((50, 40)) * 3


def casts(a, b, dtype_a="float32", dtype_b=None):
    dtype_b = dtype_b or dtype_a
    words = to_words(a, dtype_a), to_words(b, dtype_b)
    return find_casts([words], get_format(dtype_a), get_format(dtype_b))


def through(values, dtype, saturate=True):
    return decode(encode(values, dtype, saturate=saturate), dtype)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz"]
)
@pytest.mark.parametrize("rounded", ["A", "B"])
def test_a_cast_of_either_side_is_named(dtype, rounded):
    values = np.float32(VALUES).astype(float)
    sides = (values, through(values, dtype))
    found = casts(*(sides if rounded == "B" else sides[::-1]))
    assert dtype in {cast.format for cast in found}
    assert all(cast.exact and cast.rounded == rounded for cast in found)


def test_formats_that_cannot_be_told_apart_are_all_named():
    """Inside the range of both, E4M3 of the two kinds rounds alike."""
    values = np.linspace(1, 2, 64)[None]
    found = [cast.format for cast in casts(values, through(values, "float8_e4m3fn"))]
    assert found == ["float8_e4m3fn", "float8_e4m3fnuz"]


@pytest.mark.parametrize("saturate", [True, False])
def test_saturation_shows_where_values_are_too_large(saturate):
    values = np.float32(VALUES * 300).astype(float)
    (cast,) = casts(values, through(values, "float8_e4m3fn", saturate))
    assert cast.saturating is saturate
    assert cast.describe() == (
        f"B is A rounded to float8_e4m3fn (scale 1, {'' if saturate else 'not '}saturating): "
        "2,000 of 2,000 elements, 2,000 of the 2,000 that differ"
    )


def test_a_run_in_another_dtype_is_a_cast_of_the_first():
    values = np.float32(VALUES).astype(float)
    (cast,) = casts(values, values, "float32", "bfloat16")
    assert (cast.format, cast.exact) == ("bfloat16", True)


def test_one_element_off_is_not_exact():
    values = np.float32(VALUES).astype(float)
    other = through(values, "float8_e4m3fn")
    other[3, 7] += 1
    (cast, *_) = casts(values, other)
    assert not cast.exact
    assert cast.matching == 1999


@pytest.mark.parametrize("stayed", [1, 38])
def test_elements_that_are_equal_must_be_fixed_by_the_cast_as_well(stayed):
    """Where some channels stayed as they were, the tensor as a whole was not cast."""
    values = np.float32(VALUES).astype(float)
    other = through(values, "float16")
    other[:, :stayed] = values[:, :stayed]
    assert not any(cast.exact for cast in casts(values, other))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda v: v * (1 + 1e-3), id="gain"),
        pytest.param(lambda v: v + 1e-3 * np.sin(np.arange(40)), id="offset"),
        pytest.param(lambda v: v[:, ::-1], id="permutation"),
        pytest.param(lambda v: v, id="nothing"),
    ],
)
def test_other_differences_are_no_cast(change):
    values = np.float32(VALUES).astype(float)
    assert casts(values, change(values)) == []


def test_integers_are_no_cast():
    words = np.arange(8, dtype=np.uint64)[None]
    assert find_casts([(words, words + 1)], get_format("int64"), get_format("int64")) == []
