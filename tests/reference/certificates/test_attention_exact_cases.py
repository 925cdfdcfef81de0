"""Exact cases (C0): every declared kernel passes bit for bit, every faulty one does not."""

from dataclasses import replace

import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import attend
from verify.reference.certificates.attention.exact_cases import (
    Shape,
    check_exact,
    constant_value,
    dead_slots,
    edge_keys,
    exact_cases,
    planted_key,
    zero_query,
)
from verify.reference.replay.arithmetic import (
    prefix_rounded_twice,
    tensor_core_prefill,
    wave_decode,
)
from verify.reference.replay.attention import replay

SHAPE = Shape(batch=2, tokens_q=3, tokens_kv=200, heads_q=2, heads_kv=1, head_dim=16)
RULES = [
    tensor_core_prefill("sm_70", accumulate="chain"),
    tensor_core_prefill("sm_90", partition=64),
    tensor_core_prefill("sm_90", partition="prefix_tail", parts=2),
    prefix_rounded_twice("sm_70", step=128),
    wave_decode(64),
]


def run(inputs, rule):
    output = torch.from_numpy(replay(inputs, rule).output)
    return output.reshape(*inputs.q.shape[:3], -1)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_declared_kernel_is_exact(rule):
    cases = list(exact_cases(SHAPE, rule))
    assert len(cases) > 15
    for case in cases:
        check = check_exact(case, run(case.inputs, rule))
        assert check.passed, (check.name, check.detail)


def test_the_reference_agrees_with_the_cases():
    for case in exact_cases(SHAPE, RULES[1]):
        exact = attend(case.inputs).output.reshape(case.expected.shape)
        # The cases are exact; FP64 sums and one division leave at most some hundred 2^-53.
        assert torch.allclose(exact, case.expected.double(), rtol=1e-13, atol=1e-13), case.name


def test_edges_are_on_both_sides_of_tiles_parts_and_seam():
    edges = edge_keys(SHAPE, tensor_core_prefill("sm_90", partition=80))
    assert {0, 199, 63, 64, 127, 128, 79, 80, 159, 160, 196, 197} <= set(edges)


@pytest.mark.parametrize("key", [0, 63, 64, 127, 197, 199])
def test_a_dropped_key_is_not_exact(key):
    case = planted_key(SHAPE, key)
    lost = case.inputs.v.clone()
    lost[:, key] = 0.0
    check = check_exact(case, run(replace(case.inputs, v=lost), RULES[0]))
    assert not check.passed
    assert "[batch, token, head, element]" in check.detail


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_mask_off_by_one_is_not_exact(shift):
    """Key 198 is seen by the last two of three rows. Whoever sees a key more or less differs."""
    case = planted_key(SHAPE, 198)
    output = run(case.inputs, RULES[0])
    shifted = output.roll(shift, dims=1)  # row i answers as row i - shift
    assert not check_exact(case, shifted).passed


def test_a_doubled_tile_or_a_short_mass_is_not_exact():
    case = zero_query(SHAPE)
    for factor in (1 + 2.0**-7, 1 - 2.0**-7):
        assert not check_exact(case, (run(case.inputs, RULES[0]) * factor).half()).passed


def test_reading_dead_slots_is_not_exact():
    case = dead_slots(SHAPE, 65)
    assert torch.isnan(case.inputs.v[:, 65:]).all()
    read = replace(case.inputs, kv_lengths=(66, 66))
    output = attend(read).output.reshape(case.expected.shape)
    assert not check_exact(case, output).passed


@pytest.mark.parametrize("keys", [1, 2, 7, 16, 1000, 4096])
def test_zero_query_is_representable_at_any_length(keys):
    case = zero_query(replace_keys(keys))
    exact = attend(case.inputs).output.reshape(case.expected.shape)
    assert torch.equal(exact, case.expected.double())
    assert case.expected.abs().max() <= 4.0


def replace_keys(keys):
    return Shape(1, 1, keys, 2, 2, 8)


def test_causal_rows_before_the_first_key_give_zero():
    shape = Shape(1, 5, 3, 1, 1, 16)
    case = constant_value(shape)
    assert not case.expected[:, :2].any()
    assert check_exact(case, run(case.inputs, RULES[0])).passed


def test_misuse_is_refused():
    with pytest.raises(ArgumentError, match=r"200\n.*0\.\.199"):
        planted_key(SHAPE, 200)
    with pytest.raises(ArgumentError, match=r"\[1\]\n.*\[2, 3, 2, 16\]"):
        check_exact(zero_query(SHAPE), torch.zeros(1))
