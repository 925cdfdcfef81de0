"""Correct outputs are EXPLAINED: every kind of kernel, and data that breaks naive statistics."""

import math
from dataclasses import replace

import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import Row
from verify.reference.certificates.attention import certify_attention, certify_rows
from verify.reference.certificates.result import Outcome
from verify.reference.replay.arithmetic import (
    prefix_rounded_twice,
    tensor_core_prefill,
    wave_decode,
)

RULES = {
    "V100 chain": tensor_core_prefill("sm_70", accumulate="chain"),
    "H200 blocks": tensor_core_prefill("sm_90"),
    "H200 chain in parts, unrounded mass": tensor_core_prefill(
        "sm_90", accumulate="chain", partition=128, mass="unrounded"
    ),
    "high and low": tensor_core_prefill("sm_80", parts=2),
    "rounded twice": prefix_rounded_twice("sm_70", step=256),
    "decode": wave_decode(128),
    "prefix and tail": tensor_core_prefill("sm_90", partition="prefix_tail"),
    "FP32 output": tensor_core_prefill("sm_90", output="float32"),
}


def low_rank(v):
    """All columns are multiples of one: their errors are one and the same."""
    return v[..., :1] * torch.linspace(-2, 2, v.shape[-1]) + 0.3


def spiked(v):
    return torch.where(v > 3.0, v * 1e4, v)


def with_large_scores(inputs):
    """x = 1000 + ordinary: FP32 keeps 2^-14 of it, far more than any other rounding."""
    q, k = inputs.q.clone(), inputs.k.clone()
    q[..., 0], k[..., 0] = 64.0, 1000.0 * math.sqrt(inputs.q.shape[3]) / 64.0
    return replace(inputs, q=q, k=k)


DATA = {
    "ordinary": {},
    "mean 1": {"mean": 1.0},
    "low rank": {"values": low_rank},
    "one column": {"values": lambda v: v[..., :1].expand_as(v).contiguous()},
    "constant": {"values": lambda v: torch.full_like(v, 0.3)},
    "integers": {"values": torch.round},
    "spikes": {"values": spiked},
    "near overflow": {"values": lambda v: (v * 15000).clamp(-65000, 65000)},
    "subnormal": {"values": lambda v: v * 1e-5},
    "flat scores": {"size": 0.0},
    "one key wins": {"size": 20.0},
    "window": {"causal": True, "window": 200},
    "everything": {
        "causal": True, "heads": (6, 2), "rows": 2, "softcap": 5.0, "sinks": torch.full((6,), 4.0),
        "v_scale": 3.14159, "k_scale": 0.77,
    },
    "one key": {"keys": 1},
    "17 keys": {"keys": 17, "causal": True},
}  # fmt: skip


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kernel", RULES)
def test_correct_outputs_are_explained(problem, simulate, kernel, data):
    inputs, rule = problem(**DATA[data]), RULES[kernel]
    found = certify_attention(simulate(inputs, rule), inputs, rule, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED, found.reasons


@pytest.mark.parametrize("kernel", RULES)
def test_large_scores_are_explained_by_their_own_rounding(problem, simulate, kernel):
    inputs, rule = with_large_scores(problem()), replace(RULES[kernel], output="float32")
    found = certify_attention(simulate(inputs, rule), inputs, rule, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED, found.reasons
    assert found.numbers["T1/W"] > 10 * found.numbers["T5/W"]


@pytest.mark.parametrize("mass", ["rounded", "unrounded"])
@pytest.mark.parametrize("offset", [-1e-7, 0.0, 1e-7])
def test_tied_scores_at_a_rounding_midpoint_are_explained(problem, simulate, mass, offset):
    """All p are 0.5 + 2^-12: the exponential alone decides which way all of them are rounded."""
    inputs = problem(rows=1, dim=64, mean=1.0, scale=1.0)
    inputs.q.zero_()
    inputs.q[..., :3] = 1.0
    inputs.k.zero_()
    left = math.log(0.5 + 2.0**-12) + offset
    for place in range(3):  # three FP16 numbers hold 33 bits of it
        inputs.k[:, 1:, :, place] = left
        left -= float(inputs.k[0, 1, 0, place])
    rule = tensor_core_prefill("sm_90", mass=mass)
    found = certify_attention(simulate(inputs, rule), inputs, rule, inputs.all_rows())
    assert found.numbers["tied_keys"] == 511
    assert found.outcome is Outcome.EXPLAINED, found.reasons


@pytest.mark.parametrize("data", ["ordinary", "low rank", "flat scores", "everything"])
def test_an_undeclared_maximum_is_admitted(problem, simulate, data):
    """Whoever cannot say what P is relative to gets wider limits, not a false alarm."""
    inputs, rule = problem(**DATA[data]), RULES["V100 chain"]
    loose = replace(rule, base="unknown")
    found = certify_attention(simulate(inputs, rule), inputs, loose, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED, found.reasons


def test_drift_of_a_long_chain_is_modelled(problem, simulate):
    """V100, one chain, values of mean 1: half an ulp of drift at 16384 keys, and EXPLAINED."""
    inputs = problem(keys=16384, rows=2, dim=128, mean=1.0)
    rule = RULES["V100 chain"]
    output = simulate(inputs, rule)
    found = certify_attention(output, inputs, rule, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED, found.reasons
    assert -0.9 < found.numbers["drift_modelled"] < -0.3
    blind = replace(rule, accumulate="blocks", name="says it has no drift")
    wrong = certify_attention(output, inputs, blind, inputs.all_rows())
    assert wrong.outcome is Outcome.DEFECT
    assert "signed drift" in [check.name for check in wrong.failed]


def test_the_replay_interval_is_one_more_check(problem, simulate):
    inputs, rule = problem(), RULES["H200 blocks"]
    output = simulate(inputs, rule)
    found = certify_attention(output, inputs, rule, inputs.all_rows(), replay=True)
    assert found.outcome is Outcome.EXPLAINED
    assert "replay interval (C1)" in [check.name for check in found.checks]
    output[2, 7] *= 1 + 2.0**-8
    moved = certify_attention(output, inputs, rule, inputs.all_rows(), replay=True)
    check = next(check for check in moved.checks if check.name == "replay interval (C1)")
    assert not check.passed
    assert "token 2" in check.detail
    assert "[7]" in check.detail


def test_a_certificate_states_its_numbers(problem, simulate):
    inputs, rule = problem(), RULES["V100 chain"]
    found = certify_attention(simulate(inputs, rule), inputs, rule, inputs.all_rows())
    expected = {"T1/W", "T2/W", "T3/W", "T4/W", "T5/W", "B_ref/W", "B/W", "n_eff", "error",
                "expected_error", "chi2_per_element", "drift_modelled", "correlated",
                "tied_keys"}  # fmt: skip
    assert set(found.numbers) == expected
    assert found.numbers["B_ref/W"] < 1e-9 < found.numbers["B/W"]
    assert 0.2 < found.numbers["error"] / found.numbers["expected_error"] < 3.0


def test_rows_without_keys_must_be_zero(problem):
    inputs = problem(keys=64, rows=2, kv_lengths=(0,))
    zeros = torch.zeros(2, 32)
    rule = RULES["H200 blocks"]
    assert certify_attention(zeros, inputs, rule, inputs.all_rows()).outcome is Outcome.EXPLAINED
    zeros[1, 3] = 1e-3
    found = certify_attention(zeros, inputs, rule, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    assert "empty row" in found.reasons[0]


def test_whole_outputs_and_chosen_rows_are_taken(problem, simulate):
    inputs, rule = problem(rows=3, heads=(2, 1)), RULES["H200 blocks"]
    whole = simulate(inputs, rule).reshape(1, 3, 2, 32)
    rows = [Row(0, 2, 1), Row(0, 0, 0)]
    from_whole = certify_rows(whole, inputs, rule, rows)
    from_rows = certify_rows(whole[0, [2, 0], [1, 0]], inputs, rule, rows)
    assert from_whole == from_rows
    assert len(from_whole) == 2
    with pytest.raises(ArgumentError, match=r"\[3, 32\]\n.*\[1, 3, 2, 32\], or \[2, 32\]"):
        certify_rows(whole[0, :, 0], inputs, rule, rows)
