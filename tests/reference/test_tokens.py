"""Margins, shifts and token flips: identities, bounds that are attained, and counts that agree."""

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.flips import (
    density_at_zero,
    flip_probability,
    flip_statistics,
    sigma_by_position,
)
from verify.reference.layers.grid import round_to
from verify.reference.tokens import compare_logits, top_two


def make_logits(positions=400, vocabulary=200, seed=0):
    rng = np.random.default_rng(seed)
    return 4.0 * rng.standard_normal((positions, vocabulary))


def test_top_two_counts_the_margin_in_spacings_of_the_first_logit():
    logits = np.array([[20.0, 19.5, 0.0], [1.0, 3.0, 2.0]])
    leaders = top_two(logits, "bfloat16")
    assert leaders.first.tolist() == [0, 1]
    assert leaders.second.tolist() == [1, 2]
    assert leaders.margin.tolist() == [0.5, 1.0]
    # bfloat16 between 16 and 32 has a spacing of 1/8, between 2 and 4 of 1/64.
    assert leaders.margin_ulps.tolist() == [4.0, 64.0]


def test_an_exact_tie_is_flagged_and_follows_the_rule():
    logits = np.array([[1.0, 7.0, 7.0]])
    leaders = top_two(logits, "float16")
    assert leaders.tie.tolist() == [True]
    assert (leaders.first[0], leaders.second[0]) == (1, 2)
    assert top_two(logits, "float16", ties="highest-index").first[0] == 2


def test_pair_shift_decides_the_flip():
    a = make_logits()
    b = a + 0.5 * np.random.default_rng(1).standard_normal(a.shape)
    seen = compare_logits(a, b, "float32")
    assert seen.flipped.any()
    assert not seen.flipped.all()
    # Where the choices differ, A's choice fell behind B's by more than it led B's choice.
    rows = np.arange(len(a))
    lead = a[rows, seen.a.first] - a[rows, seen.b.first]
    assert (-seen.pair_shift[seen.flipped] > lead[seen.flipped]).all()
    assert (seen.pair_shift[~seen.flipped] > -seen.a.margin[~seen.flipped]).all()
    assert not (seen.flipped & seen.safe).any()


def test_a_common_shift_changes_nothing_but_its_own_size():
    a = make_logits(8)
    seen = compare_logits(a, a + 3.0, "float64")
    assert seen.shift == pytest.approx(np.full(8, 3.0))
    for quantity in (seen.spread, seen.pair_shift, seen.sigma, seen.kl, seen.tv):
        assert quantity == pytest.approx(np.zeros(8), abs=1e-12)


def test_divergence_bounds_hold_and_are_attained():
    a = make_logits(200, 50)
    b = a + np.random.default_rng(2).uniform(-1.0, 1.0, a.shape)
    seen = compare_logits(a, b, "float32")
    assert (seen.kl <= seen.kl_bound).all()
    assert (seen.tv <= seen.tv_bound).all()
    # Two tokens, equally likely half way: the extreme of both bounds.
    r = 0.5
    pair = compare_logits(np.array([[r / 2, 0.0]]), np.array([[-r / 2, 0.0]]), "float64")
    assert pair.tv[0] == pytest.approx(pair.tv_bound[0], rel=1e-12)
    assert pair.spread[0] == pytest.approx(r)
    small = compare_logits(np.array([[1e-3, 0.0]]), np.array([[0.0, 0.0]]), "float64")
    assert small.kl[0] == pytest.approx(small.kl_bound[0], rel=1e-3)


def test_masked_tokens_take_no_part_in_shift_and_divergence():
    a = np.array([[1.0, 0.0, -np.inf]])
    b = np.array([[1.5, 0.0, -np.inf]])
    seen = compare_logits(a, b, "float32")
    assert seen.shift.tolist() == [0.5]
    assert np.isfinite(seen.kl).all()


def test_flip_probability():
    probability = flip_probability([0.0, 1.0, 6.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0, 0.0])
    assert probability[:2] == pytest.approx([0.5, 0.158655], rel=1e-5)
    assert probability[2] < 1e-8
    assert probability[3:].tolist() == [0.5, 0.0]


def test_expected_flips_match_observed_ones_on_synthetic_logits():
    a = make_logits(4000, 64)
    noise = np.random.default_rng(3).standard_normal(a.shape)
    seen = compare_logits(a, a + 0.2 * noise, "float32")
    count = flip_statistics(seen)
    assert count.sigma == pytest.approx(0.2 * np.sqrt(2.0), rel=0.05)
    assert count.observed > 100
    # Poisson counts of a hundred and more: agreement within the 1e-4 tails.
    assert count.p_more > 1e-4
    assert count.p_fewer > 1e-4
    # The closed form takes the density at 0 for the whole width of the noise.
    assert count.rate * count.positions == pytest.approx(count.expected, rel=0.25)
    assert count.sure_flips == ()
    assert count.first_flip == int(np.nonzero(seen.flipped)[0][0])


def test_a_defect_at_a_few_positions_gives_sure_flips():
    a = make_logits(1000, 64)
    b = a + 0.01 * np.random.default_rng(4).standard_normal(a.shape)
    trusted = flip_statistics(compare_logits(a, b, "float32")).sigma
    for position in (100, 101, 500):
        b[position, np.argsort(a[position])[-2]] += 10.0
    count = flip_statistics(compare_logits(a, b, "float32"), sigma=trusted)
    assert set(count.sure_flips) >= {100, 101, 500} - set(
        np.nonzero(top_two(a, "float32").margin <= 6 * trusted)[0]
    )
    assert len(count.sure_flips) >= 2


def test_a_systematic_shift_of_one_token_is_more_than_its_noise():
    a = make_logits(2000, 16)
    noise = 0.05 * np.random.default_rng(5).standard_normal(a.shape)
    quiet = flip_statistics(compare_logits(a, a + noise, "float32"))
    shifted = a + noise
    shifted[:, 3] += 1.0
    count = flip_statistics(compare_logits(a, shifted, "float32"), sigma=quiet.sigma)
    assert count.p_more < 1e-9


def test_no_flips_of_equal_runs():
    a = make_logits(50)
    count = flip_statistics(compare_logits(a, a, "float32"))
    assert (count.observed, count.expected, count.sigma, count.first_flip) == (0, 0.0, 0.0, None)
    assert count.p_more == 1.0


def test_sixteen_bit_logits_tie():
    logits = round_to(make_logits(400, 2000) + 16.0, "bfloat16")
    count = flip_statistics(compare_logits(logits, logits, "bfloat16"))
    assert count.ties > 0
    # A tie can fall either way, so it counts a half even where the noise is zero.
    assert count.expected == pytest.approx(count.ties / 2)


def test_density_at_zero_of_an_exponential():
    margins = np.random.default_rng(6).exponential(2.0, 20_000)
    # The estimate averages the density over the smallest fifth: 0.9 of its value at 0.
    assert density_at_zero(margins) == pytest.approx(0.5 * 0.9, rel=0.05)


def test_sigma_by_position_shows_a_step():
    a = make_logits(128, 64)
    scale = np.where(np.arange(128) < 64, 0.01, 0.1)[:, None]
    seen = compare_logits(
        a, a + scale * np.random.default_rng(7).standard_normal(a.shape), "float32"
    )
    windows = sigma_by_position(seen, 32)
    assert windows.shape == (4,)
    assert windows[:2].max() < windows[2:].min() / 5


@pytest.mark.parametrize(
    ("a", "b", "pattern"),
    [
        (np.ones((2, 3)), np.ones((3, 3)), "shape of logits_a"),
        (np.ones(3), np.ones(3), r"\[positions, vocabulary\]"),
        (np.ones((2, 1)), np.ones((2, 1)), "at least two tokens"),
        (np.array([[1.0, np.nan]]), np.ones((1, 2)), r"logits_a\[0, 1\]"),
        (np.full((1, 2), np.inf), np.ones((1, 2)), "two infinities lead"),
    ],
)
def test_wrong_logits_are_refused(a, b, pattern):
    with pytest.raises(ArgumentError, match=pattern):
        compare_logits(a, b, "float32")


def test_a_negative_sigma_is_refused():
    a = make_logits(2)
    with pytest.raises(ArgumentError, match="sigma"):
        flip_statistics(compare_logits(a, a, "float32"), sigma=-1.0)
