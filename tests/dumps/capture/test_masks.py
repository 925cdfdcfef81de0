"""Masks that say the same become the same numbers, and masks that do not, do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verify.dumps.capture.masks import MaskRule, canonical_mask
from verify.dumps.capture.positions import PositionTracker

CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()


def step_of(positions, past=None):
    tracker = PositionTracker()
    names = [f"s{i}" for i in range(len(positions))]
    if past is not None:
        tracker.begin(np.array(past), names, cached=0)
        return tracker.begin(np.array(positions), names, cached=len(past[0]))
    return tracker.begin(np.array(positions), names, cached=0)


def additive(mask, lowest):
    return torch.zeros(mask.shape).masked_fill(~mask, lowest)


@pytest.mark.parametrize(
    "mask",
    [
        CAUSAL,
        CAUSAL[None, None],
        additive(CAUSAL, float("-inf")),
        additive(CAUSAL, torch.finfo(torch.float32).min)[None, None],
        additive(CAUSAL, torch.finfo(torch.bfloat16).min).bfloat16(),
        None,
    ],
)
def test_equal_masks(mask):
    rule = MaskRule(causal=mask is None)
    found, beyond = canonical_mask(mask, rule, 3, 3, step_of([[0, 1, 2]]))
    assert found.tolist() == [[[0, 0, 1], [0, 1, 2], [0, 2, 3]]]
    assert beyond == {}


def test_left_padding_counts_positions_not_columns():
    mask = torch.tensor([[False, False, False], [False, True, False], [False, True, True]])
    found, _ = canonical_mask(mask, MaskRule(), 3, 3, step_of([[-1, 0, 1]]))
    assert found.tolist() == [[[-1, -1, 0], [0, 0, 1], [0, 1, 2]]]


def test_a_chunk_reads_the_keys_before_it():
    step = step_of([[3, 4]], past=[[0, 1, 2]])
    mask = torch.ones(2, 5, dtype=torch.bool).tril(diagonal=3)
    found, _ = canonical_mask(mask, MaskRule(), 2, 5, step)
    assert found.tolist() == [[[0, 3, 4], [0, 4, 5]]]
    lower = MaskRule(causal=True, alignment="lower-right")
    assert np.array_equal(found, canonical_mask(None, lower, 2, 5, step)[0])
    upper = canonical_mask(None, MaskRule(causal=True), 2, 5, step)[0]
    assert upper.tolist() == [[[0, 0, 1], [0, 1, 2]]]  # torch's own alignment, rarely meant


def test_a_window():
    rule = MaskRule(causal=True, window=2)
    found, _ = canonical_mask(None, rule, 3, 3, step_of([[0, 1, 2]]))
    assert found.tolist() == [[[0, 0, 1], [0, 1, 2], [1, 2, 2]]]


def test_a_bias_is_an_attribute():
    bias = additive(CAUSAL, float("-inf")) + torch.tensor([0.0, -0.5, -1.0])
    found, beyond = canonical_mask(bias, MaskRule(), 3, 3, step_of([[0, 1, 2]]))
    assert found[0, 2].tolist() == [0, 2, 3]
    assert set(beyond) == {"bias"}


def test_unfilled_slots_of_a_preallocated_cache_have_no_position():
    mask = torch.ones(1, 4, dtype=torch.bool)
    found, _ = canonical_mask(mask, MaskRule(), 1, 4, step_of([[2]], past=[[0, 1]]))
    assert found.tolist() == [[[0, -1, 4]]]  # reading an unfilled slot shows
