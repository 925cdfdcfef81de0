"""Aligning two logs of operations: against all subsequences of short ones, and planted insertions."""

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

from verify.errors import NotComparableError
from verify.taps import logs
from verify.taps.logs import Operation, match_operations


def operations(keys, hashes):
    return [Operation((str(k), 0, ""), (int(h),)) for k, h in zip(keys, hashes, strict=True)]


def best(x, y):
    """Largest (matches, agreeing hashes) over all common subsequences."""

    @lru_cache(None)
    def of(i, j):
        if i == len(x) or j == len(y):
            return (0, 0)
        found = max(of(i + 1, j), of(i, j + 1))
        if x[i].key == y[j].key:
            more = of(i + 1, j + 1)
            found = max(found, (more[0] + 1, more[1] + (x[i].hashes == y[j].hashes)))
        return found

    return of(0, 0)


def test_most_matches_and_most_equal_hashes():
    rng = np.random.default_rng(3)
    for _ in range(200):
        x, y = (
            operations(rng.integers(3, size=n), rng.integers(3, size=n))
            for n in rng.integers(0, 9, size=2)
        )
        pairs = match_operations(x, y)
        assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
        assert all(x[i].key == y[j].key for i, j in pairs)
        agreeing = sum(x[i].hashes == y[j].hashes for i, j in pairs)
        assert (len(pairs), agreeing) == best(tuple(x), tuple(y))


def test_a_removed_layer_is_the_one_whose_hashes_are_gone():
    block = ["mm", "add", "relu"]
    x = operations(block * 5, range(15))
    y = x[:3] + x[6:]
    assert match_operations(x, y) == [
        (i, i if i < 3 else i - 3) for i in [*range(3), *range(6, 15)]
    ]


def test_logs_that_are_too_long_are_refused(monkeypatch):
    monkeypatch.setattr(logs, "_CELLS", 100)
    x, y = operations(range(11), range(11)), operations(range(20, 31), range(11))
    with pytest.raises(NotComparableError, match="too little in common"):
        match_operations(x, y)
    same_keys = operations(range(11), range(50, 61))
    assert len(match_operations(x, same_keys)) == 11
