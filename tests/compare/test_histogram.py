"""Histograms and the quantiles read from them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.compare.histogram import (
    RELATIVE_EDGES,
    ULP_EDGES,
    RelativeCounts,
    UlpCounts,
    ulp_bins,
)


def exact(distances):
    return np.array(distances, np.uint64)


@given(st.lists(st.integers(1, 2**53), min_size=1))
def test_every_distance_falls_into_the_bin_that_holds_it(distances):
    bins = ulp_bins(exact(distances))
    for distance, place in zip(distances, bins, strict=True):
        assert ULP_EDGES[place] <= distance < ULP_EDGES[place + 1]


def test_the_largest_distance_has_a_bin():
    assert ulp_bins(exact([2**64 - 2]))[0] == len(ULP_EDGES) - 2


def test_distances_below_16_have_bins_of_their_own():
    assert ulp_bins(exact(range(17))).tolist() == list(range(17))


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=200),
    st.integers(0, 300),
    st.sampled_from([0.5, 0.99]),
)
def test_quantiles_lie_at_most_an_eighth_below_the_exact_one(distances, equal, q):
    counts = UlpCounts()
    counts.add(exact(distances), 0)
    counts.add_equal(equal)
    everything = sorted([0] * equal + distances)
    rank = everything[max(1, math.ceil(q * len(everything))) - 1]
    assert rank * 8 / 9 <= counts.quantile(q) <= rank
    assert counts.maximum == max(distances)


def test_nan_counts_as_further_than_any_number():
    counts = UlpCounts()
    counts.add(exact([1, 2]), incomparable=2)
    assert counts.quantile(0.5) == 2.0
    assert counts.quantile(0.99) == math.inf


def test_nothing_counted_gives_zero():
    assert UlpCounts().quantile(0.99) == 0.0


def test_the_histogram_ends_with_its_last_filled_bin():
    counts = UlpCounts()
    counts.add(exact([3, 3, 1]), 1)
    counts.add_equal(5)
    found = counts.histogram()
    assert found.edges == [0, 1, 2, 3, 4]
    assert found.counts == [5, 1, 0, 2]
    assert found.incomparable == 1


@pytest.mark.parametrize("error", [1.1e-18, 1e-7, 0.3, 1.0, 5e5])
def test_relative_errors_fall_between_the_edges_around_their_logarithm(error):
    counts = RelativeCounts()
    counts.add(np.array([error]))
    found = counts.histogram()
    assert found.counts == [1]
    low, high = found.edges
    # The float32 logarithm may put an error at an edge into the bin beside it.
    assert low - 1e-5 <= math.log10(error) <= high + 1e-5


@pytest.mark.parametrize(("error", "edge"), [(1e-300, RELATIVE_EDGES[0]), (1e300, 5.75)])
def test_errors_outside_are_counted_in_the_end_bins(error, edge):
    counts = RelativeCounts()
    counts.add(np.array([error]))
    assert counts.histogram().edges[0] == edge
