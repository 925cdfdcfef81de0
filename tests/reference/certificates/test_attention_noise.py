"""The noise model: what is correlated, what the mass shares, and how the limits follow."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from verify.reference.attention.inputs import row_groups
from verify.reference.certificates.attention.filters import residual
from verify.reference.certificates.attention.noise import count_ties, expected_noise
from verify.reference.certificates.attention.walk import round_in_doubt, walk
from verify.reference.replay.arithmetic import tensor_core_prefill
from verify.reference.replay.attention import replay
from verify.reference.replay.exponential import Exponential

RULE = tensor_core_prefill("sm_90", output="float32")


def noise_of(inputs, rule):
    group = next(iter(row_groups(inputs, inputs.all_rows())))
    return expected_noise(walk(group, rule, rule.ranges(inputs)), rule)


def test_ties_are_the_longest_run_of_equal_scores():
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0],
                      [0.0, -torch.inf, -torch.inf, 0.0, 1.0]], dtype=torch.float64)  # fmt: skip
    assert count_ties(x).tolist() == [3.0, 1.0, 2.0]


def test_rounding_in_doubt_is_a_rounding_far_from_midpoints():
    p = torch.tensor([0.7001, 1.0, 0.5 + 2.0**-12, 3 * 2.0**-25], dtype=torch.float64)
    mean, variance = round_in_doubt(p, torch.full_like(p, 1e-9), "float16")
    expected = p.numpy().astype(np.float16).astype(np.float64)
    assert mean[:2].tolist() == expected[:2].tolist()
    assert variance[:2].tolist() == [0.0, 0.0]
    assert float(mean[2]) == pytest.approx(0.5 + 2.0**-12)  # between both neighbours
    assert float(variance[2]) == pytest.approx((2.0**-11) ** 2 / 4)


def test_the_model_matches_many_replays(problem):
    """Mean and deviation over 40 exponentials: the centre is the mean, sigma no less than it."""
    inputs = problem(keys=256, rows=2, dim=16, mean=1.0)
    noise = noise_of(inputs, RULE)
    runs = np.stack([
        replay(inputs, RULE, exponential=Exponential("scattered", seed=seed)).unrounded
        for seed in range(40)
    ]).astype(np.float64)  # fmt: skip
    off = (runs.mean(0) - noise.centre.numpy()) / noise.sigma.numpy()
    assert np.abs(off).max() < 3.0
    assert (runs.std(0) < 1.5 * noise.sigma.numpy()).all()


def test_a_shared_mass_removes_the_noise_along_the_output(problem):
    """Values of mean 10: with rounded mass only their deviation from the output counts."""
    inputs = problem(mean=10.0)
    rules = [replace(RULE, base="unknown", mass=mass) for mass in ("rounded", "unrounded")]
    shared, alone = (noise_of(inputs, rule).sigma.mean() for rule in rules)
    assert float(alone / shared) > 5.0


def test_correlated_elements_raise_the_limit(problem):
    """Values that are multiples of one column: one error in all elements, one large eigenvalue."""
    loose = replace(RULE, base="unknown")
    found = {}
    for name, values in (("independent", None), ("low rank", lambda v: v[..., :1] * v[:, :1])):
        noise = noise_of(problem(values=values), loose)
        found[name] = residual(noise.centre[0], noise, 0)
    assert found["low rank"].largest > 25.0  # of 32 elements
    assert found["low rank"].squares > 600.0
    assert found["independent"].largest < found["low rank"].largest


def test_repeated_elements_are_counted_once(problem):
    noise = noise_of(problem(values=lambda v: v[..., :4].repeat(1, 1, 1, 8)), RULE)
    assert noise.counted.sum(1).tolist() == [4, 4, 4, 4]
