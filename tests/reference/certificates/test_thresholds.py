"""Limits of statistics: the tail bounds hold for uniform roundings, and invert each other."""

import math

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.certificates.thresholds import Family, log10_p_of_chi2, log10_p_of_z


def test_the_limit_of_z_grows_with_the_number_of_tests():
    few, many = Family(1).z_limit(), Family(10**8).z_limit()
    assert 6.4 < few.value < 6.6  # sqrt(2 ln(2e9))
    assert 8.8 < many.value < 9.0
    assert "100000000 tests" in many.why


def test_p_values_invert_the_limits():
    family = Family(4096)
    assert log10_p_of_z(family.z_limit(1e-9).value, 4096) == pytest.approx(-9.0, abs=1e-9)
    limit = family.chi2_limit(64, squares=400.0, largest=9.0, chance=1e-9).value
    p = log10_p_of_chi2(limit, 64, 4096, squares=400.0, largest=9.0)
    assert p == pytest.approx(-9.0, abs=1e-9)


def test_the_bound_covers_correlated_uniform_errors():
    """One common rounding error in all 64 elements: the uncorrelated limit would be broken."""
    rng = np.random.default_rng(1)
    common = rng.uniform(-math.sqrt(3), math.sqrt(3), 20000)
    sums = 64 * common**2
    apart = Family(1).chi2_limit(64, chance=1e-3).value
    together = Family(1).chi2_limit(64, squares=64.0**2, largest=64.0, chance=1e-3).value
    assert np.mean(sums > apart) > 0.01
    assert not np.any(sums > together)


def test_an_empty_family_is_refused():
    with pytest.raises(ArgumentError, match="at least one test"):
        Family(0)
