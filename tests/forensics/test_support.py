"""Rows, heads and channels in words."""

import numpy as np
import pytest

from verify.forensics.support import describe_elements, describe_numbers, describe_rows


@pytest.mark.parametrize(
    ("touched", "size", "words"),
    [
        ([0, 1, 2], range(3), "all 3 heads"),
        ([0], range(1), "the only head"),
        ([2], range(9), "head 2 of 9"),
        ([3, 4, 5], range(9), "heads 3 to 5 (3 of 9)"),
        ([6, 7, 8], range(9), "heads from 6 on (3 of 9)"),
        ([0, 4, 7], range(9), "heads 0, 4, 7 of 9"),
        (list(range(1, 40, 2)), range(46), "20 of 46 heads, the first is 1"),
        ([34, 35], [*range(36)], "heads from 34 on (2 of 36)"),
        ([40, 44], [36, 40, 44, 48], "heads 40 to 44 (2 of 4)"),
    ],
)
def test_numbers(touched, size, words):
    assert describe_numbers("head", "heads", np.array(touched), size) == words


def test_rows_of_several_sequences():
    every = np.array([0, 1, 2, 0, 1, 2])
    assert describe_rows(np.array([1, 1]), every, 2) == "position 1 of 3, in 2 sequences"


def test_a_tensor_without_positions():
    assert describe_rows(np.array([-1]), np.array([-1])) == "the whole tensor"


@pytest.mark.parametrize(
    ("axes", "shape", "words"),
    [
        ("b h t d", [1, 3, 7, 4], "head 1 of 3, channels from 2 on (2 of 4)"),
        ("b t h d", [1, 7, 3, 4], "head 1 of 3, channels from 2 on (2 of 4)"),
        ("b t d", [1, 7, 12], "channels 6 to 7 (2 of 12)"),
        ("b t x", [1, 7, 12], "indices of x 6 to 7 (2 of 12)"),
        ("b t d", [1, 7, 5], "elements 6 to 7 (2 of 12)"),
    ],
)
def test_elements(axes, shape, words):
    touched = np.zeros(12, bool)
    touched[6:8] = True
    assert describe_elements(touched, axes, shape) == words


def numbers(touched, size):
    import numpy as np

    from verify.forensics.support import describe_numbers

    return describe_numbers("position", "positions", np.array(touched), size)


def test_positions_that_follow_a_rule():
    size = range(400)
    assert numbers(range(257, 400, 2), size) == "odd positions from 257 on (72 of 400)"
    assert numbers(range(0, 400, 2), size) == "even positions (200 of 400)"
    pages = range(15, 400, 16)
    assert numbers(pages, size) == "positions that leave 15 modulo 16 (25 of 400)"
    assert numbers([p for p in size if p != 9], size) == "all positions but 9 (399 of 400)"


def test_a_rule_needs_three_numbers_and_has_to_hold_exactly():
    assert numbers([3, 5], range(8)) == "positions 3, 5 of 8"
    assert "modulo" not in numbers([15, 31, 47, 63, 70], range(400))
    assert "odd" not in numbers([1, 3, 5, 9], range(12))


def test_heads_that_hold_most_of_a_difference():
    import numpy as np

    from verify.forensics.support import describe_concentration

    square = np.full((4, 8), 1e-9)
    square[2] = 1.0
    given = square.reshape(-1), "b t h d", [1, 5, 4, 8]
    assert describe_concentration(*given) == "head 2 of 4 holds 99 % of it"
    assert describe_concentration(np.ones(32), *given[1:]) == ""
    assert describe_concentration(np.zeros(32), *given[1:]) == ""
    assert describe_concentration(np.ones(32), "b t c", [1, 5, 32]) == ""
