"""Right outputs are explained: no false DEFECT and no false SUSPECT, on data of every kind."""

import pytest
import torch

from tests.support.layer_cases import DTYPES, KINDS, Draw, convention_cases, correct_cases
from verify.reference.certificates.certify import certify
from verify.reference.certificates.norm import RmsNorm
from verify.reference.certificates.result import Outcome

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
