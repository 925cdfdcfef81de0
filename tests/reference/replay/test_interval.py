"""The replay interval holds every admissible exponential and excludes small faults."""

import numpy as np
import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs
from verify.reference.replay.arithmetic import Chain, tensor_core_prefill, wave_decode
from verify.reference.replay.attention import replay
from verify.reference.replay.exponential import Exponential
from verify.reference.replay.interval import replay_interval


def problem(keys=2048, rows=4, dim=32, value_mean=0.0, **options):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, n, 1, dim, generator=generator) for n in (rows, keys, keys))
    return AttentionInputs((2 * q).half(), k.half(), (v + value_mean).half(), **options)


RULES = {
    "blocks": tensor_core_prefill("sm_90"),
    "chain": tensor_core_prefill("sm_70", accumulate="chain"),
    "unrounded mass in parts": tensor_core_prefill("sm_90", mass="unrounded", partition=512),
    "own maximum": tensor_core_prefill("sm_90", step=256, base="step"),
    "high and low": tensor_core_prefill("sm_90", parts=2),
    "decode": wave_decode(512),
    "fp16 accumulator": tensor_core_prefill(
        "sm_70", value_chain=Chain("tensor_core", "sm_70", output="float16"), accumulate="chain"
    ),
}


@pytest.mark.parametrize("sinks", [None, torch.tensor([3.0])])
@pytest.mark.parametrize("name", RULES)
def test_holds_every_admissible_exponential(name, sinks):
    inputs = problem(value_mean=0.3, sinks=sinks)
    interval = replay_interval(inputs, RULES[name])
    for kind, seed in (("scattered", 1), ("scattered", 2), ("low", 0), ("high", 0)):
        other = replay(inputs, RULES[name], exponential=Exponential(kind, seed=seed))
        assert interval.contains(other.output).all(), kind
        moved = np.abs(other.unrounded.astype(np.float64) - interval.centre.unrounded)
        assert (moved <= interval.radius).all()


def test_few_probabilities_depend_on_the_exponential():
    interval = replay_interval(problem(), RULES["blocks"])
    share = interval.ambiguous / 2048
    assert 0 < share.max() < 0.01  # 2 * 3e-7 of spacings 2^-11 .. 2^-10, about 0.1 %


def test_is_narrow_enough_to_refuse_a_missing_key():
    """One key of average weight out of 2048 is left out."""
    inputs = problem(rows=1, causal=False)
    interval = replay_interval(inputs, RULES["blocks"])
    fewer = AttentionInputs(inputs.q, inputs.k[:, 1:], inputs.v[:, 1:], causal=False)
    assert not interval.contains(replay(fewer, RULES["blocks"]).output).all()
    assert not interval.contains(np.full((1, 32), np.nan)).any()


def test_what_has_no_interval_is_refused():
    with pytest.raises(ArgumentError, match="roundings"):
        replay_interval(problem(), tensor_core_prefill("sm_70", roundings=2))
    with pytest.raises(ArgumentError, match="softcap"):
        replay_interval(problem(softcap=5.0), RULES["blocks"])
