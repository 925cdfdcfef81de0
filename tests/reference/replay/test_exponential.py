"""Every admissible exponential stays in its interval, and ex2(0) is 1 in each."""

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.replay.exponential import Exponential

ERROR = 2.5 * 2.0**-23
T = -np.geomspace(1e-6, 125.0, 20001).astype(np.float32)


@pytest.mark.parametrize("kind", ["nearest", "scattered", "low", "high"])
def test_within_the_stated_error(kind):
    found = Exponential(kind, ERROR, seed=3).exp2(T).astype(np.float64)
    relative = found / np.exp2(T.astype(np.float64)) - 1.0
    assert np.abs(relative).max() <= ERROR
    assert Exponential(kind).exp2(np.zeros(1, np.float32))[0] == 1.0
    assert Exponential(kind).exp2(np.full(1, -np.inf, np.float32))[0] == 0.0


def test_the_scatter_fills_the_interval_and_is_a_function():
    one, again, other = (Exponential("scattered", ERROR, seed=s).exp2(T) for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert np.mean(one != other) > 0.5
    relative = one / np.exp2(T.astype(np.float64)) - 1.0
    assert relative.max() > 0.7 * ERROR
    assert relative.min() < -0.7 * ERROR
    assert abs(relative.mean()) < 0.03 * ERROR  # 20001 draws: 4 standard errors are 0.016


def test_low_and_high_enclose_the_others():
    low, high = (Exponential(kind, ERROR).exp2(T) for kind in ("low", "high"))
    for kind in ("nearest", "scattered"):
        found = Exponential(kind, ERROR).exp2(T)
        assert (low <= found).all()
        assert (found <= high).all()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ArgumentError, match="nearest, scattered, low, high"):
        Exponential("random")
