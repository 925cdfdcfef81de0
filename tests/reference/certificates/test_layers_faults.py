"""Planted faults are found, and named where the method can."""

import numpy as np
import pytest
import torch

from tests.support.layer_cases import DTYPES, Draw, correct_cases, rms
from tests.support.layer_faults import (
    elementwise_faults,
    norm_faults,
    product_faults,
    rope_faults,
)
from verify.errors import ArgumentError
from verify.reference.certificates.certify import certify
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import LayerNorm, RmsNorm
from verify.reference.certificates.result import Outcome
from verify.reference.certificates.rotary import Rope

# Sizes at which every fault must be found; eps in bfloat16 needs some thousand elements.
GROUPS = {
    "norms": (norm_faults, 32, 256),
    "products": (product_faults, 24, 128),
    "elementwise": (elementwise_faults, 24, 128),
    "rope": (rope_faults, 24, 64),
}


@pytest.mark.parametrize("group", sorted(GROUPS))
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_fault_is_found_and_named(dtype, group):
    make, rows, width = GROUPS[group]
    for case in make(Draw(DTYPES[dtype], rows, width)):
        certificate = certify(case.output, case.inputs, case.op)
        assert certificate.outcome is Outcome.DEFECT, case.name
        said = "\n".join(certificate.reasons)
        assert case.expect in said, (case.name, said)


def make_case():
    return next(iter(correct_cases(Draw(torch.float32, 8, 64))))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_element_that_is_not_finite_is_a_defect(value):
    case = make_case()
    output = case.output.clone()
    output[3, 5] = value
    certificate = certify(output, case.inputs, case.op)
    assert certificate.outcome is Outcome.DEFECT
    assert certificate.failed[0].name == "non-finite elements"
    assert any("row 3 and column 5" in reason for reason in certificate.reasons)


def test_nan_that_the_inputs_contain_is_expected():
    draw = Draw(torch.bfloat16, 4, 64)
    x, weight = draw.activations(), draw.gains()
    x[2, 7] = float("nan")
    output = rms(x, weight)
    assert certify(output, {"x": x, "weight": weight}, RmsNorm(1e-6)).outcome is Outcome.EXPLAINED
    output[2] = 0.0
    assert certify(output, {"x": x, "weight": weight}, RmsNorm(1e-6)).outcome is Outcome.DEFECT


def test_overflow_of_float16_is_expected_where_the_product_is_too_large():
    x = torch.full((2, 64), 200.0, dtype=torch.float16)
    weight = torch.full((3, 64), 200.0, dtype=torch.float16)
    output = torch.nn.functional.linear(x, weight)
    assert torch.isinf(output).all()
    assert certify(output, {"x": x, "weight": weight}, Linear()).outcome is Outcome.EXPLAINED
    clamped = output.clamp(-65504, 65504)
    assert certify(clamped, {"x": x, "weight": weight}, Linear()).outcome is Outcome.DEFECT


def test_a_tie_rounded_away_from_even_is_a_defect():
    from verify.reference.certificates.elementwise import ResidualAdd

    a, b = torch.tensor([[256.0]]).bfloat16(), torch.tensor([[1.0]]).bfloat16()
    inputs = {"a": a, "b": b}
    assert certify(a + b, inputs, ResidualAdd()).outcome is Outcome.EXPLAINED
    up = torch.tensor([[258.0]]).bfloat16()
    assert certify(up, inputs, ResidualAdd()).outcome is Outcome.DEFECT


X = np.ones((2, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda: certify(X, {}, RmsNorm(1e-6)), "where:   x"),
        (lambda: certify(X, {"x": X, "gain": X}, RmsNorm(1e-6)), "allowed: x; optional weight"),
        (lambda: certify(X[:, :4], {"x": X}, RmsNorm(1e-6)), r"shape \(2, 4\)"),
        (lambda: certify(X.astype(np.float64), {"x": X}, RmsNorm(1e-6)), "output's own dtype"),
        (lambda: certify(X, {"x": X}, RmsNorm(1e-6), store="fp16"), "float16"),
        (lambda: RmsNorm(float("inf")), "found:   inf"),
        (lambda: LayerNorm(-1.0), "finite and >= 0"),
        (lambda: certify(X, {"x": X}, Rope()), "cos and sin, or positions"),
    ],
)
def test_wrong_calls_are_refused(call, pattern):
    with pytest.raises(ArgumentError, match=pattern):
        call()
