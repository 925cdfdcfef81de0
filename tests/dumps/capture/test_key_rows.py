"""Which rows of the key axis are new at a read."""

from __future__ import annotations

import numpy as np
import torch

from verify.dumps.capture.key_rows import KeyRowSelector
from verify.dumps.capture.positions import PositionTracker

AXES, TAP = "b h s d", ("k", 0)


class Reader:
    """Reads keys step by step, as a capture does."""

    def __init__(self, batch=1):
        self.tracker, self.selector = PositionTracker(), KeyRowSelector()
        self.names = [f"s{row}" for row in range(batch)]

    def read(self, keys, positions, cached=None):
        """(names of new rows, count of carried ones) of ``keys`` [b, h, s, d]."""
        step = self.tracker.begin(np.array(positions), self.names, cached=cached)
        found = self.selector.select(TAP, keys, AXES, step)
        names = found.names
        assert len(found.words) == len(found.digest) == len(names)
        listed = zip(names.sequence, names.position, names.visit, strict=True)
        return [(s, int(p), int(v)) for s, p, v in listed], found.carried


def keys(batch, length):
    return torch.arange(batch * 2 * length * 4, dtype=torch.float32).view(batch, 2, length, 4)


def test_a_growing_cache_gives_the_new_row():
    reader, first = Reader(), keys(1, 3)
    assert reader.read(first, [[0, 1, 2]], 0) == ([("s0", 0, 0), ("s0", 1, 0), ("s0", 2, 0)], 0)
    grown = torch.cat([first, torch.ones(1, 2, 1, 4)], dim=2)
    assert reader.read(grown, [[3]], 3) == ([("s0", 3, 0)], 3)


def test_changed_bits_are_another_visit():
    reader, first = Reader(), keys(1, 3)
    reader.read(first, [[0, 1, 2]], 0)
    changed = torch.cat([first, torch.ones(1, 2, 1, 4)], dim=2)
    changed[0, 1, 1, 3] = -0.5
    assert reader.read(changed, [[3]], 3) == ([("s0", 1, 1), ("s0", 3, 0)], 2)


def test_a_tensor_that_was_written_to_is_no_witness_of_what_it_held():
    reader, cache = Reader(), torch.zeros(1, 2, 4, 4)
    cache[:, :, :3] = keys(1, 3)
    reader.read(cache, [[0, 1, 2]], 0)
    cache[0, 1, 1, 3] = -0.5
    cache[:, :, 3] = 1.0
    assert reader.read(cache, [[3]], 3) == ([("s0", 1, 1), ("s0", 3, 0)], 2)


def test_a_change_in_one_sequence_is_not_one_in_the_other():
    reader, first = Reader(batch=2), keys(2, 2)
    reader.read(first, [[0, 1], [0, 1]], 0)
    changed = torch.cat([first, torch.ones(2, 2, 1, 4)], dim=2)
    changed[1, 0, 0, 0] += 1
    new, carried = reader.read(changed, [[2], [2]], 2)
    assert sorted(new) == [("s0", 2, 0), ("s1", 0, 1), ("s1", 2, 0)]
    assert carried == 3


def test_the_sign_of_zero_and_nan_payloads_count_as_bits():
    reader, first = Reader(), torch.zeros(1, 2, 2, 4)
    first[..., 1, :] = torch.nan
    reader.read(first, [[0, 1]], 0)
    again = torch.cat([first, torch.ones(1, 2, 1, 4)], dim=2)
    assert reader.read(again, [[2]], 2) == ([("s0", 2, 0)], 2)
    negative = torch.cat([again, torch.ones(1, 2, 1, 4)], dim=2)
    negative[0, 0, 0, 0] = -0.0
    assert reader.read(negative, [[3]], 3) == ([("s0", 0, 1), ("s0", 3, 0)], 2)


def test_a_sliding_cache_keeps_positions():
    reader, first = Reader(), keys(1, 4)
    reader.read(first, [[0, 1, 2, 3]], 0)
    slid = torch.cat([first[:, :, 2:], torch.ones(1, 2, 1, 4)], dim=2)
    assert reader.read(slid, [[4]], 4) == ([("s0", 4, 0)], 2)


def test_an_emptied_cache_is_compared_by_digest():
    reader, first = Reader(), keys(1, 2)
    reader.read(first, [[0, 1]], 0)
    recomputed = first.clone()
    recomputed[0, 0, 1, 0] += 1
    assert reader.read(recomputed, [[0, 1]], 0) == ([("s0", 1, 1)], 1)


def test_equal_bits_of_another_text_are_new():
    reader, first = Reader(), keys(1, 2)
    reader.read(first, [[0, 1]], 0)
    reader.names = ["other"]
    assert reader.read(first.clone(), [[0, 1]], 0) == ([("other", 0, 0), ("other", 1, 0)], 0)


def test_unfilled_slots_of_a_preallocated_cache_are_no_rows():
    reader, cache = Reader(), torch.zeros(1, 2, 6, 4)
    cache[:, :, :2] = keys(1, 2)
    assert reader.read(cache, [[0, 1]], 0) == ([("s0", 0, 0), ("s0", 1, 0)], 0)
    cache[:, :, 2] = 7.0
    assert reader.read(cache, [[2]], 2) == ([("s0", 2, 0)], 2)
