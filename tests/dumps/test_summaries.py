"""Sketches and statistics: against plain Python, and as estimators."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from verify.bounds import Bound
from verify.dumps.summaries import (
    STATISTICS,
    estimate_l2,
    row_sketches,
    row_statistics,
    sketch_plan,
    tree_sum,
)
from verify.errors import ArgumentError

DOC = Path(__file__).parents[2] / "docs" / "digests.md"


def as_words(values: object) -> np.ndarray:
    return np.atleast_2d(np.array(values, np.float32)).view(np.uint32)


def test_every_bucket_gets_one_element_of_a_group() -> None:
    plan = sketch_plan(0, 160)
    groups = plan.source.reshape(10, 16)
    for number, group in enumerate(groups):
        assert sorted(group) == list(range(16 * number, 16 * number + 16))
    assert set(plan.sign.tolist()) == {1.0, -1.0}


def test_a_sketch_is_the_signed_sum_of_its_buckets() -> None:
    row = np.random.default_rng(0).integers(-99, 99, 50).astype(np.float32)
    plan = sketch_plan(0, 50)
    expected = np.zeros(16)
    for place, (source, sign) in enumerate(zip(plan.source, plan.sign, strict=True)):
        if source < 50:
            expected[place % 16] += sign * row[source]
    assert row_sketches(as_words(row), "float32")[0].tolist() == expected.tolist()


def test_sketches_of_shards_add_up_exactly_on_integers() -> None:
    row = as_words(np.random.default_rng(1).integers(-99, 99, 50))
    parts = row_sketches(row[:, :21], "float32") + row_sketches(row[:, 21:], "float32", offset=21)
    assert (parts == row_sketches(row, "float32")).all()


def test_the_estimate_of_the_difference_keeps_its_standard_error() -> None:
    """Estimates over many rows scatter about the true squared norm as docs/digests.md derives."""
    rng = np.random.default_rng(2)
    a = rng.standard_normal((4000, 512)).astype(np.float32)
    b = a + rng.standard_normal((4000, 512)).astype(np.float32) * np.float32(0.01)
    truth = np.linalg.norm(b.astype(np.float64) - a, axis=1)
    found = estimate_l2(row_sketches(as_words(a), "float32"), row_sketches(as_words(b), "float32"))
    ratio = (found / truth) ** 2
    scatter = Bound(0.36, "sqrt(2/16) = 0.354 for the squared norm, +2 % for 4000 samples")
    assert scatter.used_by(float(ratio.std())) <= 1.0
    mean_error = Bound(4 * 0.354 / 4000**0.5, "four standard errors of the mean of 4000")
    assert mean_error.used_by(float(abs(ratio.mean() - 1.0))) <= 1.0


def test_a_difference_at_a_stride_of_16_is_not_estimated_worse() -> None:
    """Elements one head apart must not share a bucket: with ``i mod 16`` they all would."""
    rng = np.random.default_rng(3)
    delta = np.zeros((2000, 1024), np.float32)
    delta[:, 5::64] = rng.standard_normal((2000, 16)).astype(np.float32)
    found = estimate_l2(row_sketches(as_words(delta), "float32"), np.zeros((2000, 16), np.float32))
    ratio = (found / np.linalg.norm(delta.astype(np.float64), axis=1)) ** 2
    # The hash is fixed, so the scatter is that of this set of 16 places and not of the average:
    # all in one bucket would give sqrt(2) = 1.41, spread as intended 0.35.
    assert ratio.std() < Bound(0.71, "half of what one shared bucket gives").value


def test_statistics_by_hand() -> None:
    values = [1.5, -2.0, 0.0, -0.0, np.nan, np.inf, -np.inf, -np.inf]
    found = row_statistics(as_words(values), "float32")[0]
    expected = {"max_abs": 2.0, "sum": -0.5, "sum_sq": 6.25, "nan": 1, "pos_inf": 1, "neg_inf": 2}
    assert dict(zip(STATISTICS, found, strict=True)) == {**expected, "zero": 2}


def test_statistics_without_elements_or_rows() -> None:
    assert row_statistics(np.zeros((2, 0), np.uint32), "float32").tolist() == [[0.0] * 7] * 2
    assert row_statistics(np.zeros((0, 5), np.uint32), "float32").shape == (0, 7)
    assert row_sketches(np.zeros((2, 0), np.uint32), "float32").tolist() == [[0.0] * 16] * 2


@pytest.mark.parametrize("length", [16, 19, 4096, 4099])
def test_the_words_stay_as_they_are_and_each_row_is_judged_alone(length: int) -> None:
    """Rows with NaN, infinities and zeros change nothing in those beside them, in any block."""
    values = np.random.default_rng(6).standard_normal((11, length))
    values[3, 5], values[4, 6], values[7, 0], values[9, 1] = np.nan, np.inf, -0.0, 1e308
    words = values.view(np.uint64)
    before = words.copy()
    found = row_statistics(words, "float64")
    assert (words == before).all()
    for row in range(11):
        assert row_statistics(words[row : row + 1], "float64").tobytes() == found[row].tobytes()
    assert found[:, 3].tolist() == [0, 0, 0, 1] + [0] * 7
    assert found[7, 6] == 1 and found[9, 2] == np.inf and np.isfinite(found[:, :2]).all()
    groups = np.pad(np.where(np.isfinite(values), values, 0.0), ((0, 0), (0, -length % 16)))
    by_hand = tree_sum(tree_sum(groups.reshape(11, -1, 16)))
    assert found[:, 1].tobytes() == by_hand.tobytes()


def test_complex_numbers_count_as_pairs() -> None:
    pair = np.array([[3 - 4j, np.nan]], np.complex64)
    flat = as_words([3, -4, np.nan, 0])
    assert (row_sketches(pair.view(np.uint64), "complex64") == row_sketches(flat, "float32")).all()
    found = row_statistics(pair.view(np.uint64), "complex64")
    assert found.tolist() == row_statistics(flat, "float32").tolist()


def test_fp8_values_are_decoded() -> None:
    codes = np.array([[0x38, 0xB8, 0x7F, 0x00]], np.uint8)  # 1, -1, NaN, 0
    assert row_statistics(codes, "float8_e4m3fn")[0].tolist() == [1, 0, 2, 1, 0, 0, 1]


def test_the_tree_adds_the_upper_half_to_the_lower() -> None:
    order = np.array([[1e16, 1.0, 1.0, -1e16, 1.0]])  # [0+3, 1+4, 2] -> [0+2, 1] -> sum
    assert tree_sum(order.copy())[0] == ((1e16 - 1e16) + 1.0) + (1.0 + 1.0)
    assert tree_sum(np.zeros((3, 0))).tolist() == [0, 0, 0]


def test_blocks_do_not_change_a_row() -> None:
    rows = as_words(np.random.default_rng(4).standard_normal((300, 1000)))
    together = row_statistics(rows, "float32"), row_sketches(rows, "float32")
    alone = row_statistics(rows[299:], "float32"), row_sketches(rows[299:], "float32")
    assert together[0][299:].tobytes() == alone[0].tobytes()
    assert together[1][299:].tobytes() == alone[1].tobytes()


def test_a_vector_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a row matrix has two axes"):
        row_sketches(np.zeros(4, np.uint32), "float32")


def test_the_test_vector_of_the_document() -> None:
    text = DOC.read_text()
    row = np.arange(20, dtype=np.float32)[None]
    stated = (
        re.search(r"`sketch: ([-0-9. ]+)`", text),
        re.search(r"`statistics: ([-0-9. ]+)`", text),
    )
    found = row_sketches(as_words(row), "float32")[0], row_statistics(as_words(row), "float32")[0]
    for match, numbers in zip(stated, found, strict=True):
        assert match is not None
        assert [float(number) for number in match[1].split()] == numbers.tolist()
