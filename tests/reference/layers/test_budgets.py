"""Closed-form budgets: above the running ones and above torch's errors, and not idle."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from verify.reference.layers.accumulate import FmaChain
from verify.reference.layers.activations import activation, gated, gated_enclosure
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.budgets import (
    SILU_SLOPE,
    Budget,
    floor_budget,
    gated_budget,
    gemm_budget,
    norm_budget,
    rope_budget,
    running_budget,
    softmax_budget,
    storing_budget,
)
from verify.reference.layers.linear import linear, linear_enclosure
from verify.reference.layers.norms import rms_norm, rms_norm_enclosure
from verify.reference.layers.softmax import softmax, softmax_enclosure
from verify.reference.layers.truncate import A100, H200, V100

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(params=sorted(DTYPES))
def store(request):
    return request.param


def make(shape, store, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DTYPES[store])


def assert_covers(budget, output, exact):
    used = budget.used_by(output.double().numpy() - exact)
    assert used <= 1.0
    return used


def test_norm_budget_covers_torch_in_both_conventions(store):
    x, weight = make((16, 1024), store), make((1024,), store, 1)
    exact = rms_norm(x, weight, eps=1e-6)
    once = functional.rms_norm(x, (1024,), weight, 1e-6)
    twice = weight * functional.rms_norm(x, (1024,), None, 1e-6)
    assert assert_covers(norm_budget(exact, 1024, store), once, exact) > 0.001
    assert_covers(norm_budget(exact, 1024, store, roundings=2), twice, exact)
    if store != "float32":
        assert norm_budget(exact, 1024, store).used_by(twice.double().numpy() - exact) > 1.0
    held = rms_norm_enclosure(x, weight, eps=1e-6, store=store)
    assert (
        running_budget(held, exact, store).values <= norm_budget(exact, 1024, store).values
    ).all()


@pytest.mark.parametrize("accumulate", [FmaChain(), FmaChain(block=64), V100, A100, H200])
def test_gemm_budget_is_above_the_running_one(accumulate, store):
    x, weight = make((8, 512), store), make((12, 512), store, 1)
    exact = linear(x, weight)
    budget = gemm_budget(x, weight, accumulate, store)
    held = linear_enclosure(x, weight, store=store, arithmetic=Arithmetic(accumulate))
    assert (running_budget(held, exact, store).values <= budget.values * 1.001).all()
    assert_covers(budget, functional.linear(x, weight), exact)


def test_gated_budget(store):
    gate, up = make((16, 256), store), make((16, 256), store, 1)
    exact = gated(gate, up)
    fused = (functional.silu(gate.float()) * up.float()).to(gate.dtype)
    assert assert_covers(gated_budget(gate, up, store), fused, exact) > 0.01
    assert_covers(gated_budget(gate, up, store, roundings=2), functional.silu(gate) * up, exact)
    held = gated_enclosure(gate, up, store=store)
    assert (running_budget(held, exact, store).values <= gated_budget(gate, up, store).values).all()


def test_gated_budget_carries_errors_of_its_inputs():
    rng = np.random.default_rng(0)
    gate, up = rng.standard_normal(500) * 4, rng.standard_normal(500)
    off = 1e-3
    budget = gated_budget(gate, up, "float32", gate_error=off, up_error=off)
    for sign_gate in (-off, off):
        for sign_up in (-off, off):
            moved = gated(gate + sign_gate, up + sign_up) - gated(gate, up)
            assert budget.used_by(moved) <= 1.0


def test_silu_slope_is_its_largest_derivative():
    x = np.linspace(2.0, 3.0, 100_001)
    slopes = np.gradient(activation(x, function="silu"), x)
    assert slopes.max() <= SILU_SLOPE
    assert slopes.max() == pytest.approx(SILU_SLOPE, abs=1e-4)


def test_softmax_budget(store):
    x = make((16, 256), store) * 4
    exact = softmax(x)
    assert assert_covers(softmax_budget(x, store), torch.softmax(x, -1), exact) > 0.001
    held = softmax_enclosure(x, store=store)
    assert (running_budget(held, exact, store).values <= softmax_budget(x, store).values).all()


def test_rope_budget_holds_for_a_wrong_angle():
    rng = np.random.default_rng(0)
    a, b, angle = rng.standard_normal((3, 500))
    off = 1e-4
    exact = a * np.cos(angle) - b * np.sin(angle)
    moved = a * np.cos(angle + off) - b * np.sin(angle + off)
    assert rope_budget(a, b, "float32", angle_error=off).used_by(moved - exact) <= 1.0
    assert rope_budget(a, b, "float32").used_by(moved - exact) > 1.0


def test_storing_and_floor():
    exact = np.array([1.0, 1.0 + 2.0**-12, 2.0**-25])
    assert floor_budget(exact, "float16").values.tolist() == [0.0, 2.0**-12, 2.0**-25]
    budget = storing_budget(exact, "float16")
    assert (floor_budget(exact, "float16").values <= budget.values).all()
    assert budget.at(0).value == 2.0**-11 + 2.0**-25
    assert "h of float16" in budget.at(0).why


def test_used_by_is_the_worst_share():
    budget = Budget(np.array([1.0, 2.0, 0.0]), "an example")
    assert budget.used_by(np.array([0.5, -1.5, 0.0])) == 0.75
    assert budget.used_by(np.array([0.0, 0.0, 1e-9])) == np.inf
    assert budget.plus(budget).at(1).value == 4.0
