"""Attention problems and simulated kernels for the certificate tests."""

import pytest
import torch

from verify.reference.attention import AttentionInputs
from verify.reference.replay.attention import replay
from verify.reference.replay.exponential import Exponential


def build(
    keys=512, rows=4, dim=32, seed=0, mean=0.0, size=2.0, heads=(1, 1), values=None, **options
):
    """Scores of deviation ``size``; ``values`` maps the drawn values to others."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, rows, heads[0], dim, generator=generator) * size
    k, v = (torch.randn(1, keys, heads[1], dim, generator=generator) for _ in range(2))
    v = v + mean if values is None else values(v)
    options.setdefault("causal", False)
    return AttentionInputs(q.half(), k.half(), v.half(), **options)


def run(inputs, rule, seed=5):
    """[rows, value_dim] of a correct kernel with an exponential of its own."""
    exponential = Exponential("scattered", rule.exp_error, seed=seed)
    return torch.from_numpy(replay(inputs, rule, exponential=exponential).output)


@pytest.fixture
def problem():
    return build


@pytest.fixture
def simulate():
    return run
