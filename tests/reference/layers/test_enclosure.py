"""Enclosures: what they promise about arithmetic that is carried out in float32."""

import numpy as np
import pytest

from verify.reference.layers.accumulate import FP32_UNIT
from verify.reference.layers.enclosure import Enclosure, Noise
from verify.reference.layers.grid import round_to


def make_values(seed, count=2000):
    values = np.random.default_rng(seed).standard_normal(count)
    return round_to(values, "float32")


def assert_holds(held, computed):
    assert (computed >= held.lo).all()
    assert (computed <= held.hi).all()
    assert (held.lo <= held.near_lo).all()
    assert (held.near_lo <= held.mid).all()
    assert (held.mid <= held.near_hi).all()
    assert (held.near_hi <= held.hi).all()


def in_float32(values):
    return values.astype(np.float32).astype(np.float64)


def test_a_chain_of_operations_holds_its_float32_evaluation():
    a, b, c = (make_values(seed) for seed in (1, 2, 3))
    held = Enclosure.exactly(a).scaled(b).computed(FP32_UNIT).shifted(c).computed(FP32_UNIT)
    computed = in_float32(in_float32(a * b) + c)
    assert_holds(held, computed)
    # A fused multiply-add is another right answer.
    assert_holds(held, in_float32(a * b + c))
    assert (computed != held.mid).any()


def test_products_of_two_uncertain_factors_take_every_sign():
    a, b = make_values(4), make_values(5)
    off = np.full(a.shape, 1e-3)
    left, right = (Enclosure.around(v, off, off / 2, Noise()) for v in (a, b))
    product = left.times(right)
    for sa in (-1, 1):
        for sb in (-1, 1):
            assert_holds(product, (a + sa * off) * (b + sb * off))


def test_what_working_precision_holds_exactly_stays_exact():
    a, b = round_to(make_values(6), "bfloat16"), round_to(make_values(7), "bfloat16")
    held = Enclosure.exactly(a).scaled(b).computed(FP32_UNIT)
    assert (held.lo == held.hi).all()
    inexact = Enclosure.exactly(make_values(6)).scaled(b).computed(FP32_UNIT)
    assert (inexact.lo < inexact.hi).mean() > 0.9


def test_a_declared_rounding_is_replayed_to_the_bit():
    a = make_values(8)
    held = Enclosure.exactly(a).stored("float16")
    assert (held.mid == round_to(a, "float16")).all()
    assert (held.lo == held.hi).all()


def test_a_small_error_before_a_store_leaves_both_neighbours_only_near_a_tie():
    a = make_values(9)
    off = np.full(a.shape, 2.0**-30)
    held = Enclosure.around(a, off, off, Noise(mean_abs=off / 2)).stored("float16")
    undecided = held.lo < held.hi
    tie = np.abs(a - (held.lo + held.hi) / 2) <= off
    assert (tie[undecided]).all()
    assert undecided.mean() < 0.01
    exactly_on_a_tie = Enclosure.around(
        np.array([1.0 + 2.0**-11]), off[:1], off[:1], Noise(mean_abs=off[:1])
    ).stored("float16")
    assert exactly_on_a_tie.lo < exactly_on_a_tie.hi
    # It can only fall one way from the replayed value, so it never averages out.
    assert exactly_on_a_tie.noise.drift > off[:1]


def test_mean_size_survives_a_store_and_rms_grows_to_whole_spacings():
    rng = np.random.default_rng(10)
    exact = 1.0 + rng.random(200_000)
    sigma = 2.0**-16
    noise = Noise(mean_abs=np.full(exact.shape, 0.7979 * sigma), rms=np.full(exact.shape, sigma))
    held = Enclosure.around(exact, np.full_like(exact, 1e-3), 9 * noise.rms, noise)
    stored = held.stored("float16")
    moved = round_to(exact + sigma * rng.standard_normal(exact.shape), "float16") - stored.mid
    # 200000 draws with a chance of 1.25 % of one spacing: 2 % statistical error, taken 4 times.
    assert np.abs(moved).mean() == pytest.approx(stored.noise.mean_abs.mean(), rel=0.08)
    assert moved.std() == pytest.approx(np.sqrt((stored.noise.rms**2).mean()), rel=0.08)


def test_float64_stores_nothing():
    held = Enclosure.exactly(make_values(11))
    assert held.stored("float64") is held
