"""Choices among equal logits."""

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.layers.select import argmax, kept_by_top_k, top_k

TIED = np.array([[3.0, 2.0, 2.0, 1.0], [0.0, 5.0, 5.0, 5.0]])


def test_argmax_takes_the_named_one_of_equals():
    assert argmax(TIED).tolist() == [0, 1]
    assert argmax(TIED, ties="highest-index").tolist() == [0, 3]


def test_top_k_orders_by_value_then_by_the_tie_rule():
    assert top_k(TIED, 3).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert top_k(TIED, 3, ties="highest-index").tolist() == [[0, 2, 1], [3, 2, 1]]


def test_top_k_agrees_with_a_full_sort():
    values = np.round(np.random.default_rng(0).standard_normal((20, 300)), 1)
    expected = np.argsort(-values, axis=-1, kind="stable")[:, :40]
    assert (top_k(values, 40) == expected).all()


def test_a_filter_by_value_keeps_all_ties_and_one_by_rank_exactly_k():
    assert kept_by_top_k(TIED[0], 2).tolist() == [True, True, False, False]
    assert kept_by_top_k(TIED[0], 2, keep="by-value").tolist() == [True, True, True, False]


@pytest.mark.parametrize("k", [0, 5, 1.5, True])
def test_k_outside_the_vocabulary_is_refused(k):
    with pytest.raises(ArgumentError, match=r"allowed: an integer in 1 \.\. 4"):
        top_k(TIED, k)


def test_nan_has_no_rank():
    with pytest.raises(ArgumentError, match=r"logits\[0, 2\]"):
        argmax(np.array([[1.0, 2.0, np.nan]]))
