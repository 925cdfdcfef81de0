"""What is said of an accumulation chain, against the tensor-core model bit for bit."""

import numpy as np
import pytest
import torch

from verify.reference.certificates.attention.chain import (
    Accumulated,
    accumulate,
    chain_rule,
    last_bit,
    power_of_two,
    score_bound,
)
from verify.reference.replay.arithmetic import Chain, tensor_core_prefill
from verify.reference.replay.chains import multiply, operand_words

CHAINS = {
    "V100": Chain("tensor_core", "sm_70"),
    "T4": Chain("tensor_core", "sm_75"),
    "H200": Chain("tensor_core", "sm_90"),
    "FP32 FMA": Chain("fma"),
    "FP16 accumulator": Chain("tensor_core", "sm_80", output="float16"),
}


def operands(mean, keys=2048, rows=3, width=16, seed=0):
    rng = np.random.default_rng(seed)
    p = np.exp2(-rng.exponential(4.0, (rows, keys))).astype(np.float16)
    v = (rng.standard_normal((keys, width)) + mean).astype(np.float16)
    return p.astype(np.float64), v.astype(np.float64)


def carried_out(p, v, chain):
    if chain.kind == "fma":
        return multiply(p, v, None, chain, "float16")
    words = [operand_words(x, "float16", "x") for x in (p, v)]
    return multiply(*words, None, chain, "float16")


def analysed(p, v, chain):
    p, v = torch.from_numpy(p), torch.from_numpy(v)
    rule = chain_rule(chain, tensor_core_prefill("sm_70"))
    return accumulate(p, v, Accumulated.zeros(p @ v), rule)


def test_power_of_two():
    x = torch.tensor([0.0, 1.0, -1.5, 0.49, 2.0**-24, 65504.0], dtype=torch.float64)
    expected = torch.tensor([0.0, 1.0, 1.0, 0.25, 2.0**-24, 32768.0], dtype=torch.float64)
    assert torch.equal(power_of_two(x), expected)


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize("name", CHAINS)
def test_the_bound_holds_and_is_no_wild_guess(name, mean):
    p, v = operands(mean)
    found = analysed(p, v, CHAINS[name])
    error = torch.from_numpy(carried_out(p, v, CHAINS[name]).astype(np.float64) - p @ v)
    share = error.abs() / found.bound
    assert float(share.max()) <= 1.0
    assert float(share.max()) > 0.002  # measured 0.004 (zero mean) to 0.5


@pytest.mark.parametrize("name", ["V100", "T4", "H200"])
def test_the_drift_is_predicted(name):
    p, v = operands(1.0, keys=8192)
    found = analysed(p, v, CHAINS[name])
    error = torch.from_numpy(carried_out(p, v, CHAINS[name]).astype(np.float64) - p @ v)
    assert float(found.drift.max()) < 0.0
    assert float(error.sum() / found.drift.sum()) == pytest.approx(1.0, abs=0.03)
    left = (error - found.drift).abs() / found.variance.sqrt()
    assert float(left.max()) < 5.0  # 48 elements


def test_multiply_adds_do_not_drift():
    p, v = operands(1.0)
    found = analysed(p, v, CHAINS["FP32 FMA"])
    assert float(found.drift.abs().max()) == 0.0
    error = torch.from_numpy(carried_out(p, v, CHAINS["FP32 FMA"]).astype(np.float64) - p @ v)
    assert float((error.abs() / found.variance.sqrt()).max()) < 5.0


def test_subnormal_operands_are_not_normalised():
    """P below 2^-14 keeps the exponent -14: its truncation is coarser than its size suggests."""
    p = np.full((1, 64), 3 * 2.0**-24)
    v = np.full((64, 1), 1.0 + 2.0**-10)
    chain = CHAINS["V100"]
    found = analysed(p, v, chain)
    error = carried_out(p, v, chain).astype(np.float64) - p @ v
    assert abs(float(error[0, 0])) <= float(found.bound[0, 0])
    pinned = 64 / 4 * 4 * 2.0**-23 * 2.0**-14  # steps * L * 2^-F * 2^E
    assert float(found.bound[0, 0]) >= pinned


@pytest.mark.parametrize("name", ["V100", "H200", "FP32 FMA"])
def test_scores_stay_within_their_bound(name):
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((n, 256)).astype(np.float16).astype(np.float64) for n in (3, 200))
    chain = CHAINS[name]
    rule = chain_rule(chain, tensor_core_prefill("sm_70"))
    bound = score_bound(torch.from_numpy(q), torch.from_numpy(k), rule).numpy()
    error = np.abs(carried_out(q, np.ascontiguousarray(k.T), chain).astype(np.float64) - q @ k.T)
    assert (error <= bound).all()
    a_priori = 256 / rule.products * 5 * 2.0**-23 * (np.abs(q) @ np.abs(k.T))
    if chain.kind == "tensor_core":
        assert (bound < a_priori).all()  # the running form is the sharper one


def test_a_bound_that_is_too_small_would_show():
    """Judged by the H200's constants, V100 sums with a drift leave the bound."""
    p, v = operands(1.0, keys=8192)
    rule = chain_rule(CHAINS["FP32 FMA"], tensor_core_prefill("sm_70"))
    tensors = torch.from_numpy(p), torch.from_numpy(v)
    found = accumulate(*tensors, Accumulated.zeros(tensors[0] @ tensors[1]), rule)
    fp16 = carried_out(p, v, CHAINS["FP16 accumulator"]).astype(np.float64) - p @ v
    assert (np.abs(fp16) > found.bound.numpy()).all()


@pytest.mark.parametrize("name", ["V100", "H200"])
def test_integers_lose_nothing_and_are_predicted_to(name):
    """Sums of small integers stay multiples of 1, so there is nothing to truncate."""
    rng = np.random.default_rng(2)
    p, v = np.ones((1, 4096)), rng.integers(-3, 8, (4096, 8)).astype(np.float64)
    found = analysed(p, v, CHAINS[name])
    assert np.array_equal(carried_out(p, v, CHAINS[name]), (p @ v).astype(np.float32))
    assert float(found.drift.abs().max()) == 0.0
    assert float(found.grain.min()) == 1.0


def test_last_bit():
    x = torch.tensor([1.0, 3.0, -0.75, 12.0, 2.0**-24, 0.0], dtype=torch.float64)
    expected = torch.tensor([1.0, 1.0, 0.25, 4.0, 2.0**-24, torch.inf], dtype=torch.float64)
    assert torch.equal(last_bit(x), expected)


def test_steps_that_repeat_are_not_taken_as_random():
    """One value for every key: each step is cut alike, and the coherent part covers the gap."""
    p, v = np.ones((1, 4096)), np.full((4096, 1), 0.3).astype(np.float16).astype(np.float64)
    for name in ("V100", "H200", "FP32 FMA"):
        found = analysed(p, v, CHAINS[name])
        error = carried_out(p, v, CHAINS[name]).astype(np.float64) - p @ v
        missed = abs(float(error[0, 0] - found.drift[0, 0]))
        assert missed <= float(found.coherent[0, 0]), name
        assert float(found.coherent[0, 0]) > 0.0
