"""Right outputs are explained: no false DEFECT and no false SUSPECT, on data of every kind."""

import numpy as np
import pytest
import torch

from tests.support.layer_cases import DTYPES, KINDS, Draw, convention_cases, correct_cases
from verify.formats import decode, encode
from verify.reference.certificates.certify import certify
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import RmsNorm
from verify.reference.certificates.result import Outcome
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.grid import round_to
from verify.reference.layers.truncate import A100, H200, V100
from verify.reference.tensor_core import get_unit, matrix_product

SIZES = {"few rows": (3, 300), "narrow": (16, 7), "ordinary": (16, 96)}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_outputs_of_torch_are_explained(dtype, kind):
    wrong = []
    for seed, (rows, width) in enumerate(SIZES.values()):
        for case in correct_cases(Draw(DTYPES[dtype], rows, width, kind, seed)):
            certificate = certify(case.output, case.inputs, case.op)
            if certificate.outcome is not Outcome.EXPLAINED:
                wrong.append((case.name, rows, width, certificate.reasons))
    assert wrong == []


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_another_declared_convention_is_precision_and_named(dtype):
    seen = 0
    for case in convention_cases(Draw(DTYPES[dtype], 24, 128)):
        certificate = certify(case.output, case.inputs, case.op)
        assert certificate.outcome is Outcome.PRECISION, (case.name, certificate.reasons)
        assert any(case.expect in name for name in certificate.conventions), case.name
        assert "every element follows" in certificate.reasons[0]
        seen += 1
    assert seen >= 2


def test_numbers_tell_error_floor_and_budget():
    draw = Draw(torch.bfloat16, 16, 128)
    case = next(iter(correct_cases(draw)))
    numbers = certify(case.output, case.inputs, case.op).numbers
    assert numbers["elements"] == 16 * 128
    # A bfloat16 rounding of random data: 0.425 * 2^-8 relative, within 10 %.
    assert numbers["floor"] == pytest.approx(0.425 * 2.0**-8, rel=0.1)
    assert numbers["error_in_floors"] == pytest.approx(1.0, abs=0.01)
    assert 0.0 <= numbers["budget_used"] <= 1.0


def test_what_an_output_could_not_have_shown_is_said():
    draw = Draw(torch.bfloat16, 2, 64)
    case = next(iter(correct_cases(draw)))
    certificate = certify(case.output, case.inputs, RmsNorm(1e-6))
    assert certificate.outcome is Outcome.EXPLAINED
    assert "not excluded by this output: eps 1e-08 for 1e-06" in certificate.reasons


def test_an_eps_defect_under_another_convention_is_not_excused_by_it():
    draw = Draw(torch.float16, 64, 512)
    x, weight = draw.activations(), draw.gains()
    root = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    output = weight * (x.float() * root).to(x.dtype)
    certificate = certify(output, {"x": x, "weight": weight}, RmsNorm(1e-6))
    assert certificate.outcome is Outcome.DEFECT
    assert any("eps 1e-05 for 1e-06" in reason for reason in certificate.reasons)


CORES = {"sm_70": V100, "sm_80": A100, "sm_90": H200}


def on_tensor_core(architecture, positive, keys=1024):
    """FP16 operands, and their product as the bit-exact model of the tensor core gives it."""
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((16, keys)), rng.standard_normal((12, keys))
    if positive:
        x, weight = np.abs(x), np.abs(weight)
    x, weight = round_to(x, "float16"), round_to(weight, "float16")
    words = (encode(x, "float16"), np.ascontiguousarray(encode(weight, "float16").T))
    product = matrix_product(*words, None, get_unit(architecture))
    return decode(product, "float32"), {"x": x, "weight": weight}


@pytest.mark.parametrize("store", ["float32", "float16"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("architecture", sorted(CORES))
def test_products_of_a_declared_tensor_core_are_explained(architecture, positive, store):
    output, inputs = on_tensor_core(architecture, positive)
    declared = Arithmetic(CORES[architecture])
    certificate = certify(round_to(output, store), inputs, Linear(), declared, store=store)
    assert certificate.outcome is Outcome.EXPLAINED, certificate.reasons


@pytest.mark.parametrize("architecture", sorted(CORES))
def test_truncation_that_was_not_declared_is_precision(architecture):
    output, inputs = on_tensor_core(architecture, positive=True)
    certificate = certify(output, inputs, Linear(), store="float32")
    assert certificate.outcome is Outcome.PRECISION
    assert certificate.conventions[0].startswith("accumulate=tensor core")
    assert "gain of the whole" in certificate.reasons[0]
    # A tensor core that keeps fewer bits than the declared one is not that one.
    if architecture == "sm_70":
        declared = certify(output, inputs, Linear(), Arithmetic(H200), store="float32")
        assert declared.conventions == ("accumulate=tensor core (V100)",)
