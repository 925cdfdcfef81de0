"""Metrics of blocks, held to their definitions element by element."""

import math

import numpy as np
import pytest

from tests.support.synthetic_dumps import to_words
from verify.compare.elements import Pairing
from verify.compare.measure import Measure
from verify.formats import decode, encode

NAN, INF = math.nan, math.inf


def measured(a, b, dtype_a="float32", dtype_b=None, known=None):
    """The measure of two lists of rows, and the row measures."""
    dtype_b = dtype_b or dtype_a
    measure = Measure(Pairing.of(dtype_a, dtype_b))
    return measure, measure.add(to_words(a, dtype_a), to_words(b, dtype_b), known)


def test_the_definitions_on_random_rows():
    draw = np.random.default_rng(0)
    a = draw.standard_normal((7, 33)).astype(np.float32)
    b = a.copy()
    b[2:5, ::3] *= np.float32(1 + 2**-10)
    measure, rows = measured(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert measure.differing_elements == np.count_nonzero(a != b)
    assert measure.differing_rows == 3
    assert measure.max_abs == np.abs(y - x).max()
    # Sums of squares in another order: a few ULPs of float64.
    assert measure.relative_l2 == pytest.approx(
        np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-14, abs=0
    )
    assert rows.differing.tolist() == np.count_nonzero(a != b, axis=1).tolist()
    ordered = np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32))
    assert measure.ulps.maximum == ordered.max()
    assert rows.max_ulp.tolist() == ordered.max(axis=1).tolist()
    assert measure.ulps.counts.sum() == a.size == measure.elements


@pytest.mark.parametrize("length", [1, 100, (1 << 15) + 7, 3 << 15])
def test_rows_longer_than_a_tile_measure_the_same(length):
    draw = np.random.default_rng(length)
    a = draw.standard_normal((2, length)).astype(np.float32)
    b = a * np.float32(1.5)
    measure, rows = measured(a, b)
    assert measure.differing_elements == np.count_nonzero(a != b)
    # Sums of 1e5 squares in another order: n ULPs of float64 at the very most.
    expected = ((b.astype(float) - a) ** 2).sum(axis=1)
    assert rows.diff_sq == pytest.approx(expected, rel=length * 2**-52, abs=0)
    assert measure.elements == measure.ulps.counts.sum() == a.size


def test_known_norms_of_equal_rows_are_taken_instead_of_decoding():
    a = [[3.0, 4.0], [1.0, 0.0]]
    b = [[3.0, 4.0], [2.0, 0.0]]
    assert measured(a, b)[0].ref_sq == 26.0
    assert measured(a, b, known=np.array([25.0, NAN]))[0].ref_sq == 26.0


def test_all_zero_against_something_is_infinitely_far():
    assert measured([[0.0, 0.0]], [[0.0, 1.0]])[0].relative_l2 == INF


def test_nan_on_one_side_is_counted_and_hides_no_finite_difference():
    measure, rows = measured([[NAN, 1.0, 2.0]], [[0.0, NAN, 3.0]])
    assert measure.nonfinite == 2
    assert measure.max_abs == 1.0
    assert measure.ulps.incomparable == 2
    assert measure.ulps.quantile(0.99) == INF
    assert rows.nonfinite.tolist() == [2]
    assert rows.differing.tolist() == [3]


def test_equal_nan_and_infinities_are_equal():
    measure, _ = measured([[NAN, INF, -INF]], [[NAN, INF, -INF]])
    assert measure.differing_elements == measure.nonfinite == 0


def test_nan_of_another_payload_differs_but_is_no_mismatch_of_kind():
    a = np.array([[0x7FC00000, 0]], np.uint32)
    b = np.array([[0xFFC00000, 0]], np.uint32)
    measure, _ = measured(a, b)
    assert measure.differing_elements == measure.nan_payload_only == 1
    assert measure.nonfinite == 0


def test_opposite_infinities_mismatch():
    assert measured([[INF, 1.0]], [[-INF, 1.0]])[0].nonfinite == 1


def test_zeros_of_another_sign_differ_in_bits_and_not_in_size():
    measure, _ = measured([[0.0, 1.0]], [[-0.0, 1.0]])
    assert measure.signed_zero_only == measure.differing_elements == 1
    assert measure.max_abs == 0.0
    assert measure.relative.equal == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_a_narrower_dtype_compares_by_value_in_its_own_ulps(dtype):
    values = np.array([[1.0, 1.001, -3.3, 0.02]])
    words = encode(values, dtype)
    rounded = Measure(Pairing.of("float32", dtype))
    rounded.add(to_words(values, "float32"), words, None)
    assert rounded.ulps.maximum == 0  # rounding to the coarser dtype is no step away from it
    assert rounded.differing_elements == np.count_nonzero(
        np.float32(values).astype(float) != decode(words, dtype)
    )
    stepped = Measure(Pairing.of("float32", dtype))
    stepped.add(to_words(values, "float32"), words + words.dtype.type(2), None)
    assert stepped.ulps.maximum == 2


def test_equal_values_of_two_dtypes_do_not_differ():
    measure, _ = measured([[1.0, -0.5, NAN]], [[1.0, -0.5, NAN]], "float32", "bfloat16")
    assert measure.differing_elements == 0


@pytest.mark.parametrize(
    ("dtype_a", "dtype_b", "a", "b", "largest"),
    [
        ("int64", "int64", [[2**62, 5]], [[2**62 + 1, 5]], 1),
        ("int32", "int64", [[7, -1]], [[9, -1]], 2),
        ("bool", "bool", [[True, False]], [[True, True]], 1),
        ("uint8", "uint8", [[0, 255]], [[0, 254]], 1),
    ],
)
def test_integers_differ_by_ones(dtype_a, dtype_b, a, b, largest):
    measure, _ = measured(a, b, dtype_a, dtype_b)
    assert measure.differing_elements == 1
    assert measure.ulps.maximum == largest
    assert measure.signed_zero_only == 0


def test_a_float_against_an_integer_has_no_ulps():
    assert Pairing.of("float32", "int32").common is None
    measure, _ = measured([[1.0, 2.0]], [[1, 3]], "float32", "int32")
    assert (measure.differing_elements, measure.max_abs) == (1, 1.0)


def test_complex_numbers_compare_part_by_part():
    a = np.array([[1 + 2j, 3 + 4j]], np.complex64).view(np.uint64)
    b = np.array([[1 + 2j, 3 + 4.5j]], np.complex64).view(np.uint64)
    measure, _ = measured(a, b, "complex64")
    assert measure.differing_elements == 1
    assert measure.max_abs == 0.5


def test_rows_without_elements_are_equal():
    measure, rows = measured(np.zeros((3, 0)), np.zeros((3, 0)))
    assert (measure.rows, measure.differing_rows, measure.elements) == (3, 0, 0)
    assert rows.differing.tolist() == [0, 0, 0]
