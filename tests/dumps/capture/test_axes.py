"""Which axis counts what, from shapes alone."""

from __future__ import annotations

import pytest

from verify.dumps.capture.axes import fits, infer_axes


def contiguous(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


@pytest.mark.parametrize(
    ("shape", "batch", "tokens", "kept", "axes"),
    [
        ((2, 5), 2, 5, None, "b t"),
        ((2, 5, 64), 2, 5, None, "b t c"),
        ((2, 5, 4, 16), 2, 5, None, "b t h d"),
        ((2, 4, 5, 16), 2, 5, None, "b h t d"),
        ((10, 64), 2, 5, None, "t c"),  # tokens of all sequences behind each other
        ((5, 64), 1, 5, None, "t c"),
        ((2, 1, 99), 2, 5, 1, "b t c"),  # logits of the last column
        ((2, 0, 99), 2, 5, 0, "b t c"),
        ((3, 64), 3, 1, None, "b c"),  # one row a batch entry
        ((3, 8, 7, 7), 3, 1, None, "b x0 x1 x2"),
        ((7, 9), 2, 5, None, "x0 x1"),
        ((1, 5, 16), 2, 5, None, "x0 x1 x2"),
        ((), 1, 1, None, ""),
        ((2, 4, 5, 6, 7), 2, 5, None, "b x1 t x3 x4"),
    ],
)
def test_axes(shape, batch, tokens, kept, axes):
    assert infer_axes(shape, contiguous(shape), batch, tokens, kept) == axes


def test_as_many_heads_as_tokens_is_decided_by_memory_order():
    # [b, t, h, d] as a projection leaves it, and its transposition to [b, h, t, d].
    assert infer_axes((1, 4, 4, 8), (128, 32, 8, 1), 1, 4) == "b t h d"
    assert infer_axes((1, 4, 4, 8), (128, 8, 32, 1), 1, 4) == "b h t d"


@pytest.mark.parametrize(
    ("axes", "shape", "batch", "counts", "expected"),
    [
        ("b t c", (1, 1, 64), 1, [1], True),
        ("t c", (1, 64), 1, [1], True),
        ("b t c", (1, 46, 64), 1, [46, 1], True),
        ("b t c", (1, 3, 64), 1, [46, 1], False),
        ("b t c", (2, 1, 64), 1, [1], False),
        ("b t c", (1, 64), 1, [1], False),
        ("b c", (2, 64), 2, [1], True),
        ("b c", (2, 64), 2, [5], False),
        ("x0 x1", (9, 9), 1, [1], True),
    ],
)
def test_the_axes_of_a_tap_are_kept_while_they_fit(axes, shape, batch, counts, expected):
    assert fits(axes, shape, batch, counts) is expected
