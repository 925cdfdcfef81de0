"""Pairs: who is closer to FP64, and is the difference within both budgets?"""

import numpy as np
import pytest
import torch

from tests.support.layer_cases import Draw, rms
from verify.errors import ArgumentError
from verify.reference.certificates.certify import certify, certify_pair
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import LayerNorm, RmsNorm
from verify.reference.certificates.result import Outcome
from verify.reference.certificates.selection import Select
from verify.reference.layers.accumulate import FmaChain
from verify.reference.layers.arithmetic import Arithmetic


@pytest.fixture
def norm():
    draw = Draw(torch.bfloat16, 32, 256)
    x, weight = draw.activations(), draw.gains()
    fused = rms(x, weight)
    twice = weight * rms(x, torch.ones(256))
    return {"x": x, "weight": weight}, fused, twice


def test_two_orders_of_one_sum_are_equally_far():
    draw = Draw(torch.float32, 8, 256)
    x, weight = draw.activations(), draw.normal(16, 256)
    whole = torch.nn.functional.linear(x, weight)
    parts = sum(x[:, i : i + 32] @ weight[:, i : i + 32].T for i in range(0, 256, 32))
    pair = certify_pair(whole, parts, {"x": x, "weight": weight}, Linear())
    assert (whole != parts).any()
    assert pair.outcome is Outcome.EXPLAINED
    difference = next(check for check in pair.checks if check.name == "difference in both budgets")
    assert 0.0 < difference.statistic < 1.0
    assert pair.arithmetic == "A against B: FP32 sums in any order"


def test_conventions_that_differ_are_precision(norm):
    inputs, fused, twice = norm
    pair = certify_pair(fused, twice, inputs, RmsNorm(1e-6))
    assert pair.outcome is Outcome.PRECISION
    assert pair.conventions == ("B: cast=before-weight",)
    assert pair.reasons[0].startswith("A is closer to FP64, by a factor of 1.")
    assert pair.numbers["error_a"] == pytest.approx(pair.numbers["floor_a"], rel=0.01)


def test_conventions_declared_on_both_sides_are_named(norm):
    inputs, fused, twice = norm
    pair = certify_pair(
        fused, twice, inputs, RmsNorm(1e-6), op_b=RmsNorm(1e-6, cast="before-weight")
    )
    assert pair.outcome is Outcome.PRECISION
    assert pair.conventions == ("cast: after-weight for A, before-weight for B, as declared",)


def test_one_defective_side_is_a_defect_with_the_side_named(norm):
    inputs, fused, _ = norm
    wrong = rms(inputs["x"], inputs["weight"].float() + 1.0)
    pair = certify_pair(fused, wrong, inputs, RmsNorm(1e-6))
    assert pair.outcome is Outcome.DEFECT
    assert all(check.name.startswith(("B: ", "difference")) for check in pair.failed)
    assert "B: reproduced by: 1 added to the weight" in pair.reasons


def test_an_alternative_that_both_share_is_no_difference(norm):
    inputs, _, twice = norm
    pair = certify_pair(twice, twice, inputs, RmsNorm(1e-6))
    assert pair.outcome is Outcome.EXPLAINED
    assert any(reason.startswith("A and B are equally far") for reason in pair.reasons)


def test_formats_of_the_two_sides_may_differ(norm):
    inputs, fused, _ = norm
    wide = {name: value.float() for name, value in inputs.items()}
    pair = certify_pair(fused, rms(wide["x"], wide["weight"]), inputs, RmsNorm(1e-6))
    assert pair.outcome is Outcome.EXPLAINED
    assert pair.numbers["error_ratio"] > 1e3
    assert pair.reasons[0].startswith("B is closer to FP64")


def test_each_side_has_its_own_arithmetic():
    draw = Draw(torch.bfloat16, 8, 128)
    x, weight = draw.activations(), draw.normal(16, 128)
    total = torch.zeros(8, 16, dtype=torch.bfloat16)
    for k in range(128):
        total = (total.float() + torch.outer(x[:, k].float(), weight[:, k].float())).bfloat16()
    exact = torch.nn.functional.linear(x, weight)
    inputs = {"x": x, "weight": weight}
    assert certify(total, inputs, Linear()).outcome is Outcome.DEFECT
    coarse = Arithmetic(FmaChain(order="ascending", unit=2.0**-8))
    pair = certify_pair(exact, total, inputs, Linear(), arithmetic_b=coarse)
    assert pair.outcome is Outcome.EXPLAINED
    assert pair.numbers["error_ratio"] < 0.5


def test_a_pair_is_of_one_operation(norm):
    inputs, fused, _ = norm
    with pytest.raises(ArgumentError, match="two outputs of one operation"):
        certify_pair(fused, fused, inputs, RmsNorm(1e-6), op_b=LayerNorm(1e-6))


LOGITS = np.array([[3.0, 2.0, 2.0, 1.0], [0.0, 5.0, 5.0, 5.0]])


@pytest.mark.parametrize(
    ("ids", "op", "outcome", "conventions"),
    [
        ([0, 1], Select(), Outcome.EXPLAINED, ()),
        ([0, 3], Select(), Outcome.PRECISION, ("ties=highest-index",)),
        ([0, 2], Select(), Outcome.PRECISION, ("ties in another order",)),
        ([1, 1], Select(), Outcome.DEFECT, ()),
        ([[0, 1], [1, 2]], Select(k=2), Outcome.EXPLAINED, ()),
        ([[0, 2], [3, 2]], Select(k=2), Outcome.PRECISION, ("ties=highest-index",)),
        ([[0, 1], [1, 1]], Select(k=2), Outcome.DEFECT, ()),
        ([[1, 0], [1, 2]], Select(k=2), Outcome.DEFECT, ()),
    ],
)
def test_choices(ids, op, outcome, conventions):
    certificate = certify(np.array(ids), {"logits": LOGITS}, op)
    assert certificate.outcome is outcome
    assert certificate.conventions == conventions


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda: certify(np.array([0]), {}, Select()), "where:   logits"),
        (lambda: certify(np.array([0]), {"logits": LOGITS}, Select()), r"shape \(1,\)"),
        (lambda: certify(np.array([0, 9]), {"logits": LOGITS}, Select()), r"actual\[1\]"),
        (lambda: Select(k=0), ">= 1"),
        (lambda: Select(ties="random"), "lowest-index"),
    ],
)
def test_wrong_choices_are_refused(call, pattern):
    with pytest.raises(ArgumentError, match=pattern):
        call()


def test_attention_goes_through_the_same_front():
    from verify.reference.attention import AttentionInputs
    from verify.reference.certificates.certify import Attention
    from verify.reference.replay.arithmetic import tensor_core_prefill
    from verify.reference.replay.attention import replay

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 1, 32, generator=generator).half() for _ in range(3))
    inputs = {"q": q, "k": k, "v": v}
    declared = tensor_core_prefill("sm_90")
    replayed = replay(AttentionInputs(q, k, v), declared).output
    output = torch.from_numpy(replayed).half().reshape(1, 4, 1, 32)
    assert certify(output, inputs, Attention(), declared).outcome is Outcome.EXPLAINED
    one_row = Attention(rows=[(0, 2, 0)])
    assert certify(output[:, 2].reshape(1, 32), inputs, one_row, declared).op == "attention"
    assert certify(output + 0.01, inputs, Attention(), declared).outcome is Outcome.DEFECT
    with pytest.raises(ArgumentError, match="arithmetic that its kernel declares"):
        certify(output, inputs, Attention())
